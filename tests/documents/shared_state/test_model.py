"""D3's formulas by hand."""

import numpy as np
import pytest

from aftlib.documents.shared_state.tuples import (
    TupleStream,
    busiest_shares,
    merged_sums,
    shared_throughput,
    shuffle_throughput,
)


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
