"""The model's closed forms against counting by hand."""

import numpy as np
import pytest

from aftlib.shared_state.scaling import MergeCosts, ShuffleCosts, expected_states, load_imbalance
from aftlib.shared_state.tuplelog import TupleStream


@pytest.mark.parametrize(
    ("skew", "expected"),
    [(1.2, (2.18, 5.27, 19.4)), (1.4, (3.01, 8.11, 31.5)), (2.0, (4.97, 14.6, 58.4))],
)
def test_imbalance_is_the_digests(skew, expected):
    shares = TupleStream(1, skew=skew).shares
    ranks = np.arange(100_000)
    found = [load_imbalance(shares, ranks % p, p) for p in (8, 24, 96)]
    assert found == pytest.approx(expected, rel=0.02)


def test_imbalance_by_hand():
    assert load_imbalance(np.array([6, 1, 1]), np.array([0, 1, 1]), 2) == 1.5
    assert load_imbalance(np.array([1.0]), np.array([3]), 4) == 4


@pytest.mark.parametrize("receivers", [[0, 2], [-1, 0]])
def test_receivers_outside_are_refused(receivers):
    with pytest.raises(ValueError, match=r"receivers must lie in 0 … 1, got"):
        load_imbalance(np.ones(2), np.array(receivers), 2)


def test_imbalance_of_nothing_is_refused():
    with pytest.raises(ValueError, match="shares must hold something, got none"):
        load_imbalance(np.zeros(2), np.array([0, 1]), 2)


def test_a_shuffle_saturates_at_its_busiest_receiver():
    costs = ShuffleCosts(0, 3e-7, 1e-7)
    assert costs.receiver_share == 0.25
    assert costs.saturation(0.5) == 8
    before, at, after = (costs.throughput(10**6, p, max(1 / p, 0.5), True) for p in (4, 8, 16))
    assert before == pytest.approx(10**7)
    assert at == after == pytest.approx(2 * 10**7)
    assert costs.throughput(10**6, 1, 1.0, False) == pytest.approx(2.5e6)
    fixed = ShuffleCosts(1, 3e-7, 1e-7)
    assert fixed.throughput(10**6, 1, 1.0, True) == pytest.approx(10**6 / 1.4)


def test_merging_one_after_another_has_a_best_parallelism():
    costs = MergeCosts(0.5, 4e-8, 1e-6)
    speeds = {p: costs.throughput(10**8, p, 10_000) for p in range(1, 60)}
    assert max(speeds, key=speeds.get) == round(costs.best_tasks(10**8, 10_000)) == 20
    assert speeds[1] == pytest.approx(10**8 / (0.5 + 4 + 0.01))


def test_expected_states_by_counting():
    stream = TupleStream(50_000, keys=5_000, skew=1.4)
    counted = len(set(stream.draw(0)[1]))
    assert expected_states(stream.shares, 50_000) == pytest.approx(counted, rel=0.05)
    assert expected_states(np.array([1.0]), 10) == 1
