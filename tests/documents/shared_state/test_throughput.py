"""Throughput is measured of equal sums, and computed by formulas that hold by hand."""

import numpy as np
import pytest

from aftlib.documents.shared_state import throughput
from aftlib.documents.shared_state.experiments import sources
from aftlib.documents.shared_state.throughput import (
    busiest_shares,
    merged_sums,
    shared_throughput,
    shuffle_throughput,
)
from aftlib.documents.shared_state.tuples import TupleStream
from tests.documents.shared_state.slow import listed


def test_strategies_are_timed_in_turns(spark, tmp_path):
    streams = [TupleStream(20_000, 100, skew) for skew in (0.0, 1.4)]
    inputs = sources(spark, tmp_path, streams)
    measured = throughput.measure(spark, inputs, 2, 1)
    assert measured[["skew", "strategy"]].to_numpy().tolist() == [
        [skew, strategy] for skew in inputs for strategy in throughput.STRATEGIES
    ]
    assert set(measured["tuples"]) == {20_000}
    assert 0 < throughput.receivers_share(measured) < 1


def test_a_server_and_a_shuffle_are_timed_with_one_task_and_with_more(spark, tmp_path):
    inputs = sources(spark, tmp_path, [TupleStream(20_000, 100)])
    for grown in (
        throughput.growth(spark, inputs[0.0], 20_000, 2, 1),
        throughput.shuffle_growth(spark, inputs, 2, 1),
    ):
        assert grown["tasks"].tolist() == [1, 2] and (grown["throughput"] > 0).all()


def test_flushes_merge_the_same_sums():
    flushes = throughput.flush_costs(50, 20, 1, 1)
    assert flushes["flush"].tolist() == list(throughput.FLUSHES)
    assert (flushes["per_s"] > 0).all()


def test_each_flush_leaves_the_same_table():
    rng = np.random.default_rng(1)
    batches = [throughput.one_each(rng.choice(50, 20, replace=False)) for _ in range(10)]
    tables = []
    for flush in (throughput.TEN, throughput.ONE, throughput.BARRIER):
        with throughput.shared_table() as table, table() as shared:
            shared.prepare(0)
            throughput.merge_batches(shared, batches, flush)
            tables.append(listed(shared.read()))
    assert tables[0] == tables[1] == tables[2] and len(tables[0]) == 50


def test_the_busiest_receiver_has_at_least_the_most_frequent_key():
    shares = busiest_shares(1_000, 1.4, 8, hashes=20)
    assert shares.shape == (20,) and len(set(shares)) > 1
    top = TupleStream(1, 1_000, 1.4).shares[0]
    assert np.all(shares >= top) and np.all(shares < 1)
    assert busiest_shares(1_000, 1.4, 1, hashes=3) == pytest.approx([1, 1, 1])
    assert busiest_shares(100_000, 0.0, 8, hashes=3) == pytest.approx([1 / 8] * 3, rel=0.02)


def test_senders_or_the_busiest_receiver_limit_a_shuffle():
    assert shuffle_throughput(np.array([0.5, 0.25]), 4, 0.5) == pytest.approx([4, 8])
    assert shuffle_throughput(np.array([0.5]), 4, 0.1) == pytest.approx([4 / 0.9])


def test_a_shared_table_grows_until_merging_takes_as_long_as_summing():
    stream = TupleStream(1_000_000, 1_000)
    assert merged_sums(stream, 4) == pytest.approx(4_000)
    # 10 ns per tuple, 1 µs per merged sum: p* = √(n·10 / (1,000·1,000)) = √10
    speeds = [shared_throughput(stream, p, 1_000, 10) for p in range(1, 9)]
    assert speeds[0] == pytest.approx(1 / 1.1)
    assert int(np.argmax(speeds)) + 1 == 3


def test_few_tuples_hold_few_sums():
    """A task cannot hold more sums than it has read tuples."""
    rng = np.random.default_rng(1)
    stream = TupleStream(2_000, 1_000, 1.2)
    drawn = [len(np.unique(rng.choice(1_000, 1_000, p=stream.shares))) for _ in range(200)]
    assert merged_sums(stream, 2) == pytest.approx(2 * np.mean(drawn), rel=0.02)
