"""The model's closed forms against counting by hand."""

import numpy as np
import pandas as pd
import pytest

from aftlib.shared_state.scaling import (
    MergeCosts,
    ShuffleCosts,
    costs_table,
    expected_states,
    fitted,
    held_out,
    imbalances,
    load_imbalance,
    modelled,
)
from aftlib.shared_state.strategies import STRATEGIES
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


AT = ["strategy", "skew", "tasks"]
STREAMS = [TupleStream(1000, skew=skew) for skew in (0.0, 1.2, 1.4, 2.0)]


@pytest.fixture(scope="module")
def imbalance(spark):
    return imbalances(spark, STREAMS, [1, 2, 4, 8, 24, 96])


def costs():
    shuffle = {("upfront", s.skew, 1): ShuffleCosts(0.3, 3e-7, 3e-7) for s in STREAMS}
    work = {0.0: 8e-8, 1.2: 6e-8, 1.4: 5e-8, 2.0: 4e-8}
    late = {(n, s, 1): MergeCosts(0.3, work[s], 4e-8) for n in STRATEGIES[1:] for s in work}
    return shuffle | late


def test_imbalance_behind_spark_is_near_the_closed_form(imbalance):
    """Within a few per cent, because Spark's hash function is another one."""
    wide = imbalance.pivot_table(index="tasks", columns="skew", values="imbalance")
    for skew, expected in ((1.2, (2.18, 5.27, 19.4)), (1.4, (3.01, 8.11, 31.5))):
        assert wide.loc[[8, 24, 96], skew].tolist() == pytest.approx(expected, rel=0.1)
    assert wide.loc[[8, 24, 96], 2.0].tolist() == pytest.approx((4.97, 14.6, 58.4), rel=0.05)
    assert (wide.loc[1] == 1).all()


def test_costs_by_hand():
    """Service and the rest of a run; where services overlap, they are shortened."""
    stream = TupleStream(1000, 1, 0.0)  # one key: a sum per task
    run = {"skew": 0.0, "tasks": 2, "tuples": 1000, "throughput": 100.0, "sender_s": np.nan,
           "receiver_s": np.nan, "read_s": 1, "parse_s": 2, "sum_s": 1, "merge_s": 6}  # fmt: skip
    shuffled = {"strategy": "upfront", "sender_s": 4.0, "receiver_s": 2.0}
    measured = pd.DataFrame([run | {"strategy": "late local"}, run | shuffled])
    loads = pd.DataFrame({"skew": [0.0], "tasks": [2], "imbalance": [1.5]})
    costs = fitted(measured, loads, [stream])
    late = costs["late local", 0.0, 2]  # 10 s: 4 / 2 of work, 2 sums of 3 s, 2 left
    assert (late.fixed_s, late.tuple_s, late.merge_s) == pytest.approx((2, 4e-3, 3))
    upfront = costs["upfront", 0.0, 2]  # 10 s: 4 / 2, and 2 on the busiest, which has 3 / 4
    assert upfront == ShuffleCosts(6.5, 4e-3, 2e-3)
    faster = fitted(measured.assign(throughput=250.0), loads, [stream])
    assert faster["late local", 0.0, 2] == MergeCosts(0.0, 2e-3, 1.5)


def test_the_model_is_its_closed_form(imbalance):
    at = modelled(costs(), imbalance, STREAMS, 10**8, pipelined=True).set_index(AT)["throughput"]
    assert at["upfront", 2.0, 96] == pytest.approx(1 / (3e-7 * 0.6079), rel=0.02)
    assert at["upfront", 0.0, 1] == pytest.approx(10**8 / (0.3 + 60))
    assert set(at.index.unique("strategy")) == {"upfront"}  # the others have nothing to pipeline
    at = modelled(costs(), imbalance, STREAMS, 10**8).set_index(AT)["throughput"]
    assert at["late local", 0.0, 2] == pytest.approx(10**8 / (0.3 + 4 + 2 * 100_000 * 4e-8))
    table = costs_table(costs(), STREAMS, 10**8).set_index(["strategy", "skew"])
    assert table.loc[("upfront", 1.4), "b"] == 0.5
    assert table.loc[("upfront", 2.0), "ends_at"] == pytest.approx(2 / 0.6079, rel=1e-3)
    assert table.loc[("late local", 0.0), "ends_at"] == pytest.approx((8 / 4e-3) ** 0.5)


def test_the_model_predicts_more_tasks_from_fewer(imbalance):
    unused = {("upfront", 0.0, 2): ShuffleCosts(9, 9, 9)}  # a prediction does not use itself
    runs = [
        {"strategy": n, "skew": s, "tasks": p, "tuples": 100_000, "throughput": 1e5 + r}
        for n in STRATEGIES for s in (0.0, 2.0) for p in (1, 2) for r in range(3)
    ]  # fmt: skip
    found = held_out(pd.DataFrame(runs), costs() | unused, imbalance, STREAMS).set_index(AT)
    assert len(found) == 3 * 2
    row = found.loc[("upfront", 0.0, 2)]
    assert row["modelled"] == pytest.approx(100_000 / (0.3 + 0.03), rel=0.01)
    assert row["measured"] == 1e5 + 1
    assert row["ratio"] == row["modelled"] / row["measured"]
