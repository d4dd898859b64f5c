"""Plans of minima and maxima: valid on newly drawn windows; refusals."""

from itertools import pairwise

import numpy as np
import pytest

from aftlib.checkpoint_planning.experiments import cases
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.plan import plan_checkpoints
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.core.extremes import most_likely_within
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows

MODEL = block_model(8, 2, 4.0, 3.9, mean=5.0)
WINDOW, TOLERANCE = 24, Requirement(1.15, 0.1)
TIME = RecoveryTime(0, 1)


def plan(query="max", method="proposed", **options):
    return plan_checkpoints(MODEL, WINDOW, TOLERANCE, TIME, 40, method, query, **options)


def test_fewer_sensors_are_replayed_the_less_of_the_window_may_be_lost():
    sizes = {
        m: [len(r.sensors) for r in plan(method=m).replay] for m in ("proposed", "exactly-once")
    }
    assert sizes["proposed"] == sorted(sizes["proposed"], reverse=True)
    assert sizes["proposed"][-1] < sizes["proposed"][0] < 8
    assert set(sizes["exactly-once"]) == {8}
    counts = [
        len(plan(method=m).checkpoints) for m in ("proposed", "no-relaxation", "exactly-once")
    ]
    assert counts == sorted(counts) and counts[0] < counts[2]


@pytest.mark.parametrize("query", ["min", "max"])
def test_results_are_within_epsilon_as_often_as_the_plan_says(query):
    result, rng = plan(query), np.random.default_rng(1)
    extreme = np.max if query == "max" else np.min
    success = result.worst_case_reliability
    assert success.min() >= 1 - TOLERANCE.delta - 1e-9
    for (begin, _), replay, row in zip(pairwise(result.times), result.replay, success, strict=True):
        rest, observed = replay.estimated, list(replay.sensors)
        gain, variance, within = replay.gain(), replay.variance[replay.estimated], []
        for _ in range(150):
            window = MODEL.mean + rng.standard_normal((WINDOW, 8)) @ MODEL.cholesky.T
            seen = window[begin:, observed] - MODEL.mean[observed]
            known = extreme(window[:begin, rest], axis=0) if begin else None
            means = MODEL.mean[rest] + seen @ gain.T
            value, *_ = most_likely_within(means, variance, TOLERANCE, known, query)
            within.append(np.abs(value - extreme(window[:, rest], axis=0)) <= TOLERANCE.epsilon)
        assert np.mean(within, axis=0).min() >= row.min() - 3 * np.sqrt(0.1 * 0.9 / 150)


@pytest.mark.parametrize(("epsilon", "replayed"), [(1e-200, 8), (1e200, 0)])
def test_any_epsilon_is_planned_for(epsilon, replayed):
    """Though its square is no number: how much a later checkpoint relaxes does not depend on it."""
    for query in ("max", "mean"):
        requirement = Requirement(epsilon, 0.1)
        schedule = plan_checkpoints(MODEL, WINDOW, requirement, TIME, 40, query=query)
        assert {len(replay.sensors) for replay in schedule.replay} == {replayed}


def test_a_plan_from_the_middle_is_that_of_what_is_left():
    later = plan(start=14)
    assert later.times[0] == 14
    rest = plan_checkpoints(MODEL, 10, TOLERANCE, TIME, 40, query="max")
    assert [r.sensors for r in later.replay] == [r.sensors for r in rest.replay]


def test_what_a_maximum_has_no_plan_for_is_refused():
    with pytest.raises(ValueError, match="method must be one of proposed, no-relaxation, exactly-"):
        plan(method="adaptive")
    with pytest.raises(ValueError, match="checkpoint_variance must be 0 for a max, got up to 0.5"):
        plan(start=3, checkpoint_variance=np.full(8, 0.5))
    for variance in (lambda p: p.worst_case_variance, lambda p: p.restored_variance(0)):
        with pytest.raises(ValueError, match="query must be 'mean' or 'sum' for a variance"):
            variance(plan())
    with pytest.raises(ValueError, match="query must be 'mean' or 'sum' with recover='guard', got"):
        ReplayQuery(MODEL, WINDOW, TOLERANCE, TIME, 40, query="max", recover="guard", grid=(0, 12))


def test_a_maximum_needs_a_far_larger_epsilon_than_a_mean():
    windows = Windows(10_000, 1_000)
    model, grid = block_model(100, 5, 60.0, 30.0), ((0.1,), (0.05,), (50.0,))
    case = cases.PlanningCase(model, None, windows, *grid, DOCUMENT_RECOVERY_TIME, 1, 1)
    table = cases.maximum_counts(case, 0.05, 50, shares=(1, 3, 4, 5)).set_index("deviations")
    assert table["exactly-once"].tolist() == [43] * 4
    assert table["proposed"].is_monotonic_decreasing
    assert table["proposed"].iloc[0] == 43 and table["proposed"].iloc[-1] == 0
    for share, row in table.iterrows():
        problem = model, 10_000, Requirement(share * 60**0.5, 0.05), DOCUMENT_RECOVERY_TIME, 50
        schedule = plan_checkpoints(*problem, query="max")
        ends = len(schedule.replay[0].sensors), len(schedule.replay[-1].sensors)
        assert (row["sensors first"], row["sensors last"]) == ends
        assert row["proposed"] == len(schedule.checkpoints) <= row["no-relaxation"]
