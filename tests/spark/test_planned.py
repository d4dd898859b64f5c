"""A planned input: micro-batches end at its boundaries, and a stopped stream goes on there."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from aftlib.spark.streams import PlannedInput, drain

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
