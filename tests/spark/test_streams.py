"""Streams: planned micro-batches, every end of a drained stream, a checkpoint's progress."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from aftlib.spark.streams import PlannedInput, committed_offset, drain

COLUMNS = pa.schema([("number", pa.int64()), ("boundaries", pa.int64())])


@dataclass
class Span(InputPartition):
    start: int
    stop: int


@dataclass(frozen=True)
class Counting(PlannedInput):
    """The numbers up to the last boundary, two partitions per micro-batch."""

    boundaries: tuple[int, ...]

    schema: ClassVar[str] = "number long, boundaries long"
    unit: ClassVar[str] = "number"

    def next_boundary(self, start):
        return next((b for b in self.boundaries if b > start), start)

    def partitions(self, start, stop):
        middle = (start + stop) // 2
        return [Span(start, middle), Span(middle, stop)]

    def read(self, partition):
        numbers = list(range(partition.start, partition.stop))
        rows = {"number": numbers, "boundaries": [len(self.boundaries)] * len(numbers)}
        yield pa.RecordBatch.from_pydict(rows, schema=COLUMNS)


def test_batches_end_at_the_boundaries_and_a_stopped_stream_goes_on(spark, tmp_path):
    batches = []

    def collect(frame, batch):
        rows = frame.collect()
        batches.append((batch, sorted(r["number"] for r in rows), {r["boundaries"] for r in rows}))

    for plan in (Counting((3, 10)), Counting((3, 10, 11))):
        drain(plan.stream(spark).writeStream, tmp_path, collect)
    # the second stream has the same name but another plan, and follows it
    assert batches == [(0, [0, 1, 2], {2}), (1, list(range(3, 10)), {2}), (2, [10], {3})]


def test_inputs_named_alike_at_the_same_time_keep_their_plans(spark, monkeypatch):
    register = type(spark.dataSource).register

    def slowly(self, source):
        register(self, source)
        time.sleep(0.3)

    monkeypatch.setattr(type(spark.dataSource), "register", slowly)
    with ThreadPoolExecutor() as pool:
        frames = list(pool.map(lambda n: Counting((n,)).stream(spark), (2, 5)))
    for frame, numbers in zip(frames, (2, 5), strict=True):
        counts = []
        with TemporaryDirectory() as folder:
            drain(frame.writeStream, Path(folder), lambda rows, _: counts.append(rows.count()))  # noqa: B023
        assert counts == [numbers]


@pytest.mark.parametrize(
    ("active", "error", "refusal"),
    [
        (True, None, None),
        (False, None, "was stopped by somebody else before its end: let one run"),
        (True, ArithmeticError("failed"), "failed"),
    ],
)
def test_every_end_of_a_stream_is_reported_and_stops_it(active, error, refusal):
    """Spark stops a stream without an error when a second run starts in its directory."""
    stream = MagicMock(isActive=active)  # Spark's writer and query in one
    for step in (stream.foreachBatch, stream.option, stream.start):
        step.return_value = stream
    stream.processAllAvailable.side_effect = error
    if refusal is None:
        drain(stream, Path("here"), print)
    else:
        with pytest.raises((RuntimeError, ArithmeticError), match=refusal):
            drain(stream, Path("here"), print)
    stream.foreachBatch.assert_called_once_with(print)
    stream.option.assert_called_once_with("checkpointLocation", "here/checkpoint")
    stream.stop.assert_called_once()


def write_checkpoint(checkpoint, started, committed):
    """Spark's files of micro-batches that ended at the steps 10, 20, …."""
    (checkpoint / "metadata").write_text("{}")
    for name, last in (("offsets", started), ("commits", committed)):
        (checkpoint / name).mkdir(exist_ok=True)
        for number in range(last + 1):
            offset = f'\n{{"step": {10 * (number + 1)}}}' if name == "offsets" else ""
            (checkpoint / name / str(number)).write_text("v1\n{}" + offset)


def test_sparks_checkpoint_reports_its_progress(tmp_path):
    assert committed_offset(tmp_path, "") is None
    write_checkpoint(tmp_path, started=0, committed=-1)
    assert committed_offset(tmp_path, "") is None
    write_checkpoint(tmp_path, started=2, committed=1)
    assert committed_offset(tmp_path, "") == {"step": 20}


@pytest.mark.parametrize("text", [None, "", "v1\n{}", 'v1\n{}\n{"st'])
def test_a_checkpoint_without_its_last_offset_is_refused_with_the_fix(tmp_path, text):
    write_checkpoint(tmp_path, started=2, committed=1)
    file = tmp_path / "offsets" / "1"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(ValueError, match="must be whole, .*1' cut or missing, .*: remove the fold"):
        committed_offset(tmp_path, "remove the folder")
