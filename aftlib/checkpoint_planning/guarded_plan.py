"""Plans that a guard watches: when to take checkpoints while replay sets follow the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.replay import select_replay
from aftlib.core.gaussian import GaussianModel
from aftlib.guard.partial import PartialGuard


@dataclass(frozen=True, eq=False)
class GuardedPlan:
    """Checkpoint times of the next window, and the sensors read after a failure in each interval.

    `times` are τ_0 … τ_K = w, `replay` K arrays of key indices, ascending; the others' part of
    the window's mean is estimated, and its error was declared to be within ε.
    """

    times: tuple[int, ...]
    replay: tuple[np.ndarray, ...]

    @property
    def tuples(self) -> tuple[int, ...]:
        """Tuples that a failure in each interval makes replay."""
        sizes = np.diff(self.times)
        return tuple(len(o) * int(size) for o, size in zip(self.replay, sizes, strict=True))


def replay_guard(
    window: int,
    grid: Sequence[int],
    epsilon: ArrayLike,
    delta: float,
    sensors: int,
    seasons: Sequence[float] = (),
) -> PartialGuard:
    """A guard for failures after each τ of the grid, 0 first; O is chosen as in D2 fig. 3.

    After a failure in (τ, …] only O is read up to the window's end, as D2 eq. (12) has it.
    """
    if not len(grid) or grid[0] != 0:
        raise ValueError(f"grid must begin with 0, the window's beginning, got {list(grid)!r}")

    def select(covariance: np.ndarray, target: np.ndarray) -> tuple[int, ...]:
        return select_replay(GaussianModel(np.zeros(sensors), covariance), target).sensors

    spans = [(tau, window) for tau in grid]
    return PartialGuard(window, spans, epsilon, delta, sensors, select, seasons)


def plan_guarded(
    guard: PartialGuard,
    recovery_time: RecoveryTime,
    t_sla_ms: float,
    also: Sequence[int] = (),
    start: int = 0,
) -> GuardedPlan:
    """From each time the largest of the guard's grid that T_SLA lets reach (D2 fig. 4).

    Each window has its own plan, for O follows the accounts: made when the last is through. The
    sensors in `also` are read in any case. What is left after a failure is planned from a `start`.

    ValueError when T_SLA does not reach from one time of the grid to the next.
    """
    marks = [*(interval.start for interval in guard.intervals), guard.window]
    replay = [np.union1d(o, also).astype(int) for o in guard.replay]
    most = recovery_time.max_tuples(t_sla_ms)
    times, chosen = [start], []
    while times[-1] < guard.window:
        o = replay[marks.index(times[-1])]
        reach = times[-1] + most // len(o) if len(o) else guard.window
        following = [tau for tau in marks if times[-1] < tau <= reach]
        if not following:
            after = min(tau for tau in marks if tau > times[-1])
            needed = recovery_time(len(o) * (after - times[-1]))
            raise ValueError(
                f"t_sla_ms must be at least {needed:.6g} to replay {len(o)} sensors from "
                f"{times[-1]} to {after}, got {t_sla_ms!r}; give a finer grid or more time"
            )
        times.append(max(following))
        chosen.append(o)
    return GuardedPlan(tuple(times), tuple(chosen))
