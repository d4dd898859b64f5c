"""Plans with a guard: T_SLA holds, and a closed account changes O and the times."""

import numpy as np
import pytest

from aftlib.checkpoint_planning.guarded_replay import plan_guarded, replay_guard
from aftlib.checkpoint_planning.recovery_time import RecoveryTime

WINDOW, GRID, N = 12, range(0, 12, 2), 5
COST = RecoveryTime(1.0, 1.0)


def windows(rounds, seed=1):
    """Correlated sensors whose samples also depend on the samples before them."""
    rng = np.random.default_rng(seed)
    common, own = (rng.normal(size=(rounds * WINDOW, k)) for k in (1, N))
    for t in range(1, len(common)):
        common[t] += 0.9 * common[t - 1]
    return (common + 0.2 * own).reshape(rounds, WINDOW, N)


@pytest.mark.parametrize("t_sla_ms", [11.0, 14.0, 25.0, 61.0])
def test_every_interval_is_recovered_within_t_sla(t_sla_ms):
    guard = replay_guard(WINDOW, GRID, 0.6, 0.05, N)
    for window in windows(150):
        plan = plan_guarded(guard, COST, t_sla_ms)
        assert plan.times[0] == 0
        assert plan.times[-1] == WINDOW
        assert set(plan.times[1:-1]) <= set(GRID)
        assert max(map(COST, plan.tuples)) <= t_sla_ms
        guard.update(window)
    assert 0 < min(map(len, plan.replay)) < N
    starts = [interval.start for interval in guard.intervals]
    for tau, o in zip(plan.times, plan.replay, strict=False):
        np.testing.assert_array_equal(o, guard.replay[starts.index(tau)])


def test_what_need_not_be_read_reaches_the_windows_end():
    guard = replay_guard(WINDOW, GRID, 100.0, 0.05, N)
    guard.update(windows(50))
    plan = plan_guarded(guard, COST, 11.0)
    assert plan.times == (0, WINDOW)
    assert plan.tuples == (0,)


def test_a_t_sla_that_does_not_reach_the_next_time_is_refused():
    guard = replay_guard(WINDOW, GRID, 0.6, 0.05, N)
    with pytest.raises(ValueError, match="t_sla_ms must be at least 11 to replay 5 sensors from 0"):
        plan_guarded(guard, COST, 10.9)


@pytest.mark.parametrize("grid", [[], [2, 4]])
def test_a_grid_that_leaves_out_the_beginning_is_refused(grid):
    with pytest.raises(ValueError, match=r"grid must begin with 0, .* got \["):
        replay_guard(WINDOW, grid, 0.6, 0.05, N)
