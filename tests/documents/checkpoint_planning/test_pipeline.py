"""Partial replay through Spark: planned micro-batches, a second run reads the replay set only."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from aftlib.core.generators import draw
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning.operator import bare_read, driver, open_operator
from aftlib.documents.checkpoint_planning.pipeline import (
    PlannedLog,
    read_batch,
    replay_stream,
    require_in_step,
)
from tests.documents.checkpoint_planning.crashes import MODEL, QUERY


@pytest.fixture
def log(tmp_path):
    # half a window at the end is not streamed: only whole windows have a plan
    return SensorLog.write(tmp_path / "log", draw(MODEL, 150, 2), MODEL.names)


def test_batches_are_the_plan_and_a_failed_one_replays_its_set(spark, log, tmp_path):
    def passes(point, batch):
        if (point, batch) == ("replayed", 1):
            raise RuntimeError("injected")

    with pytest.raises(StreamingQueryException, match="injected"):
        replay_stream(spark, QUERY, log, tmp_path, passes)
    first, second, third, fourth = QUERY.first_plan.times[1:]
    store = open_operator(QUERY, log, tmp_path).store
    assert not store.unfinished(first)  # the process ended of itself
    store.begin(first, "a killed process")
    done = replay_stream(spark, QUERY, log, tmp_path)
    records = done.records()
    assert records[["start", "stop"]].iloc[:2].to_numpy().tolist() == [[0, first], [first, second]]
    assert records["recovered"].tolist()[:3] == [False, True, False]
    assert records["sensors"][1] == len(QUERY.first_plan.replay[1].sensors) == 4
    assert records["stop"].iloc[-1] == 120
    assert (third, fourth) == (45, 60)
    true = log.read(None, 0, 120).reshape(2, 60, 8).mean(axis=1)
    results = {(r.start, r.key): r for r in done.results().itertuples()}
    assert len(results) == 16
    for (start, key), result in results.items():
        off = abs(result.value - true[start // 60, log.names.index(key)])
        assert result.samples == 60
        assert off <= (1e-12 if result.half_width == 0 else 0.3 * 2)
        assert (result.half_width > 0) <= (start == 0)


@pytest.mark.parametrize("lost", [("commits",), ("commits", "offsets"), ("all",)], ids=str)
def test_a_checkpoint_of_sparks_that_is_behind_does_no_harm(spark, log, tmp_path, lost):
    """A power failure may delete its last files, or all: no batch is done again."""
    place = tmp_path / "stream"
    done = replay_stream(spark, QUERY, log, place).records()
    if lost == ("all",):
        shutil.rmtree(place / "checkpoint")
    for name in set(lost) - {"all"}:
        folder = place / "checkpoint" / name
        last = max(int(path.name) for path in folder.glob("[0-9]*"))
        (folder / str(last)).unlink()
        (folder / f".{last}.crc").unlink(missing_ok=True)
    assert replay_stream(spark, QUERY, log, place).records().equals(done)


def test_spark_gets_the_boundaries_of_the_committed_batches(log, tmp_path):
    with driver(QUERY, log, tmp_path) as operator:
        operator.finish(bare_read(log))
    records = operator.store.records()
    planned = PlannedLog(log, tmp_path, 240, 2)
    assert [*map(planned.next_boundary, records["start"])] == records["stop"].tolist()
    assert planned.next_boundary(120) > 120  # the next one is planned


def test_a_checkpoint_of_sparks_that_ends_at_no_batch_of_the_state_is_refused(log, tmp_path):
    with driver(QUERY, log, tmp_path) as operator:
        operator.finish(bare_read(log))
    place = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (place / folder).mkdir(parents=True)
    (place / "metadata").write_text("{}")
    (place / "commits" / "0").write_text("v1\n{}")

    def committed_up_to(step):
        (place / "offsets" / "0").write_text(f'v1\n{{}}\n{{"{PlannedLog.unit}": {step}}}')

    committed_up_to(120)
    require_in_step(operator, tmp_path)
    for step in (7, 121):
        committed_up_to(step)
        with pytest.raises(ValueError, match=f"batch that ends at step {step}, .* got step 120 in"):
            require_in_step(operator, tmp_path)


def test_a_micro_batch_of_other_steps_is_refused(log, tmp_path):
    planned = PlannedLog(log, tmp_path, 120, 3)
    read = [batch for part in planned.partitions(15, 40) for batch in planned.read(part)]
    rows = pa.Table.from_batches(reversed(read))
    sums, counts = read_batch(rows, [6, 1], 15, 40)
    np.testing.assert_allclose(sums, log.read([6, 1], 15, 40).sum(axis=0))
    assert counts.tolist() == [25, 25]
    for steps in ((10, 40), (15, 45)):
        with pytest.raises(ValueError, match=r"must st.* at step \d+, .* got \[\d+\]: let one"):
            read_batch(rows, [6, 1], *steps)
