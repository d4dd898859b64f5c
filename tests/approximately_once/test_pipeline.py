"""Approximately-once recovery through Spark, with workers killed for real."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyspark.sql.functions as f
import pytest

from aftlib.approximately_once.assignment import assign_packed, assign_spread
from aftlib.approximately_once.pipeline import Query, recover_stream
from aftlib.approximately_once.sink import Outage
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

MODEL = block_model(6, 2)
STEPS = 120
REQUIREMENT = Requirement(1.0, 0.05)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    values = draw(MODEL, STEPS, 4)
    values[33, 2] = np.nan
    return SensorLog.write(tmp_path_factory.mktemp("log") / "log", values, MODEL.names)


def query(log, windows, assign=assign_spread, requirement=REQUIREMENT, **other):
    model = MODEL.aggregate(windows.width, windows.query)
    settings = {"every": 40} | other
    return Query(log, windows, model, assign(model, 2, requirement), requirement, **settings)


def batch(log, windows):
    """The same aggregates without streaming: value and samples by (start, key)."""
    due = windows.ending_in(0, log.steps)
    aggregates, samples = windows.aggregate(log.read(None, 0, log.steps), 0, due)
    return {
        (j * windows.slide, name): (aggregates[i, k], samples[i, k])
        for i, j in enumerate(due)
        for k, name in enumerate(log.names)
    }


def assert_equal_where_computed(windows, expected):
    """Every window of every key once; what is not estimated, bit for bit the batch's."""
    rows = {(row.start, row.key): row for row in windows.itertuples()}
    assert len(windows) == len(rows) == len(expected)
    for place, (value, samples) in expected.items():
        row = rows[place]
        if not row.estimated:
            assert (row.value, row.samples) == (value, samples)
            assert np.isnan(row.half_width)


@pytest.mark.parametrize("windows", [Windows(10, 5), Windows(7, 7, "sum"), Windows(3, 1)])
def test_undisturbed_stream_equals_the_batch_bit_for_bit(spark, log, tmp_path, windows):
    done = recover_stream(spark, query(log, windows, every=50), tmp_path)
    assert not done.windows["estimated"].any()
    assert done.outages == []
    assert_equal_where_computed(done.windows, batch(log, windows))
    if windows.slide == windows.width:
        wide = spark.read.parquet(*map(str, sorted(log.path.glob("*.parquet"))))
        sums = [f.sum(f.when(~f.isnan(name), f.col(name))).alias(name) for name in log.names]
        frame = wide.groupBy(f.floor(f.col("step") / 7).alias("w")).agg(*sums).toPandas()
        expected = frame.set_index(frame["w"] * 7)[list(log.names)].sort_index().iloc[:-1].stack()
        values = done.windows.set_index(["start", "key"])["value"].reindex(expected.index)
        np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_killed_estimable_worker_is_estimated_where_it_lost_input(spark, log, tmp_path):
    """Twice: inside a micro-batch, and for longer, which the next one remembers."""
    windows, outages = Windows(10, 5), [Outage(0, 12, 21), Outage(1, 70, 87)]
    stream_query = query(log, windows)
    assert stream_query.assignment.estimable.all()
    done = recover_stream(spark, stream_query, tmp_path, outages)
    true = batch(log, windows)
    assert_equal_where_computed(done.windows, true)
    lost = done.windows[done.windows["estimated"]]
    sides = [[log.names[k] for k in worker] for worker in stream_query.assignment.workers]
    # windows that overlap [failure, recovery), and none else
    assert set(zip(lost["start"], lost["key"], strict=True)) == {
        (start, key)
        for starts, keys in zip((range(5, 21, 5), range(65, 86, 5)), sides, strict=True)
        for start in starts
        for key in keys
    }
    assert (lost["half_width"] <= REQUIREMENT.epsilon).all()
    for recorded, outage in zip(done.outages, outages, strict=True):
        assert replace(recorded, crashed_pid=None, replacement_pid=None) == outage
        assert recorded.crashed_pid not in (None, recorded.replacement_pid)
    for row in lost.itertuples():  # the model's posterior, given the other worker
        seen = {key: true[row.start, key][0] for key in sides[row.key in sides[0]]}
        posterior = stream_query.model.condition(seen)
        i = posterior.names.index(row.key)
        assert row.value == pytest.approx(posterior.mean[i], abs=1e-12)
        assert row.half_width == pytest.approx(REQUIREMENT.half_width(posterior.variance[i]))


TIGHT = {"assign": assign_packed, "requirement": Requirement(0.3, 0.05)}


@pytest.mark.parametrize("other", [TIGHT, {"recover": "exact"}])
def test_killed_worker_that_is_not_estimated_is_exact(spark, log, tmp_path, other):
    windows = Windows(10, 5)
    done = recover_stream(spark, query(log, windows, **other), tmp_path, [Outage(1, 52, 61)])
    assert not done.windows["estimated"].any()
    assert_equal_where_computed(done.windows, batch(log, windows))
    assert done.outages == []
    assert done.splits.query("worker == 1 and start == 40")["attempt"].tolist() == [1]


def test_stopped_query_goes_on_where_it_was(spark, log, tmp_path):
    windows = Windows(10, 5)
    recover_stream(spark, query(log, windows, stop=60), tmp_path, [Outage(1, 45, 50)])
    done = recover_stream(spark, query(log, windows), tmp_path)
    assert done.splits["start"].min() == 60
    assert_equal_where_computed(done.windows, batch(log, windows))
    assert done.windows["estimated"].any()


@pytest.mark.parametrize("outage", [Outage(2, 5, 6), Outage(0, 120, 121), Outage(0, 9, 8)])
def test_outages_that_cannot_be_are_refused(spark, log, tmp_path, outage):
    with pytest.raises(
        ValueError, match=r"outages must name a worker in 0 … 1, a failure in 0 … 119"
    ):
        recover_stream(spark, query(log, Windows(10, 5)), tmp_path, [outage])


def test_bad_queries_are_refused(log):
    with pytest.raises(ValueError, match="every must be a whole number at least 1, got 0"):
        query(log, Windows(10, 5), every=0)
    with pytest.raises(ValueError, match="every must be a whole number at least 1, got 1.5"):
        query(log, Windows(10, 5), every=1.5)
    with pytest.raises(ValueError, match="each of seasons must be above 0, got 0"):
        query(log, Windows(10, 5), recover="guard", seasons=(12, 0))
    with pytest.raises(ValueError, match="stop must lie in 0 … 120, got 121"):
        query(log, Windows(10, 5), stop=121)
    with pytest.raises(ValueError, match="recover must be one of model, guard, exact, got 'luck'"):
        query(log, Windows(10, 5), recover="luck")
    other = SimpleNamespace(names=("a",), steps=3)
    with pytest.raises(ValueError, match="model and assignment must have the log's 1 keys, got a"):
        query(other, Windows(3, 1))


def test_speculation_is_refused(log, tmp_path):
    conf = {"spark.speculation": "true"}
    running = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))
    with pytest.raises(ValueError, match="spark.speculation must be off.*slow worker is not a"):
        recover_stream(running, query(log, Windows(10, 5)), tmp_path)


def test_the_directory_of_another_query_is_refused(spark, log, tmp_path):
    recover_stream(spark, query(log, Windows(10, 5), stop=40), tmp_path)
    with pytest.raises(ValueError, match="path holds the results of another query"):
        recover_stream(spark, query(log, Windows(10, 5, "sum")), tmp_path)
