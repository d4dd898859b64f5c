"""Plans of checkpoint times with which every recovery meets ε, δ and T_SLA (D2 section 5)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.replay import COMPARED_TO, ReplaySet, select_replay
from aftlib.core.checks import require_choice, require_instance, require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.labels import ArrayRecord
from aftlib.core.requirement import Requirement
from aftlib.core.windows import AGGREGATES

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("proposed", "no-relaxation", "exactly-once")
"""Methods to choose the replayed sensors (D2 section 6.2)."""
ADAPTIVE = "adaptive"
"""Ours: plan each interval as the only one that fails, and plan again after a failure."""

QUERIES = ("mean", "sum")
"""Aggregates that can be planned."""


@dataclass(frozen=True, eq=False, repr=False)
class CheckpointPlan(ArrayRecord):
    """Checkpoint times of a window, and the sensors to replay after a failure in each interval.

    A plan is valid until the first approximate recovery, because its later replay sets
    assume exact checkpoints. After a failure in interval k, plan again with `start` =
    times[k + 1] and `checkpoint_variance` = restored_variance(k). An "adaptive" plan guarantees
    `single_failure_variance`; the next plan covers later failures.

        R(c^k, O) = min_i P(|Y_i − y_i| ≤ ε | c^k, o)     (D2 eq. (12))

    Attributes
    ----------
    times : tuple of int
        τ_0 < … < τ_K in steps since the window began, from the plan's start to the window's end.
    replay : tuple of ReplaySet
        K sets; set k is replayed over (τ_k, τ_{k+1}] when that interval fails.
    requirement : Requirement
        ε and δ that the plan keeps.
    query : {"mean", "sum"}
        The window's query, over the steps of each sensor.
    checkpoint_variance : ndarray, shape (n,)
        Variance of each sensor's aggregate restored at τ_0; 0 where that is exact.

    Examples
    --------
    >>> from aftlib import GaussianModel, RecoveryTime, Requirement, plan_checkpoints
    >>> model = GaussianModel([20, 20], [[1.0, 0.9], [0.9, 1.0]])
    >>> plan = plan_checkpoints(model, 12, Requirement(0.3, 0.05), RecoveryTime(0, 1), t_sla_ms=5)
    >>> plan.times, plan.checkpoints, plan.tuples
    ((0, 5, 10, 12), (5, 10), (5, 5, 0))
    >>> plan.worst_case_reliability.min(axis=1).round(4)
    array([0.9829, 0.9982, 0.9891])
    """

    times: tuple[int, ...]
    replay: tuple[ReplaySet, ...]
    requirement: Requirement
    query: str
    checkpoint_variance: np.ndarray

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Times strictly inside the window, at which checkpoints are taken."""
        return self.times[1:-1]

    @property
    def tuples(self) -> tuple[int, ...]:
        """Tuples replayed when interval k fails, |O_k| (τ_{k+1} − τ_k), K numbers."""
        sizes = (len(replay.sensors) for replay in self.replay)
        return tuple(m * (b - a) for m, (a, b) in zip(sizes, pairwise(self.times), strict=True))

    @property
    def worst_case_variance(self) -> np.ndarray:
        """Variance of the window's result when every interval after τ_k fails, shape (K, n).

        From τ_k on only set k is replayed: D2 eq. (16) as definition 1 uses it.
        """
        steps = [self.times[-1] - begin for begin in self.times[:-1]]
        return self._result_variance(steps)

    @property
    def single_failure_variance(self) -> np.ndarray:
        """Variance of the window's result when interval k alone fails, shape (K, n)."""
        return self._result_variance([b - a for a, b in pairwise(self.times)])

    @property
    def worst_case_reliability(self) -> np.ndarray:
        """P(|Y_i − y_i| ≤ ε) in the worst case after τ_k, shape (K, n); the row minima are (12)."""
        return self.requirement.reliability(self.worst_case_variance)

    def to_frame(self, step: Any = None, start: Any = None) -> pd.DataFrame:
        """One row per interval: begin, end, sensors replayed, tuples, least worst-case reliability.

        Times are steps. With `step`, a duration such as "1min", they are Timedeltas since the
        window began; with `start`, the Timestamp of that beginning, too, they are Timestamps.
        """
        import pandas as pd

        times: Any = pd.Index(self.times)
        if step is not None:
            times = pd.to_timedelta(np.array(self.times) * pd.Timedelta(step))
        elif start is not None:
            raise ValueError(f"start must be given with step, got {start!r}; add step='1min' or so")
        if start is not None:
            times = pd.Timestamp(start) + times
        return pd.DataFrame(
            {
                "begin": times[:-1],
                "end": times[1:],
                "replayed": [len(replay.sensors) for replay in self.replay],
                "tuples": self.tuples,
                "reliability": self.worst_case_reliability.min(axis=1),
            }
        )

    def restored_variance(self, interval: int) -> np.ndarray:
        """Variance of the checkpoint restored after a failure in this interval, shape (n,).

        Raises
        ------
        ValueError
            When the plan has no such interval.
        """
        if not 0 <= interval < len(self.replay):
            raise ValueError(
                f"interval must lie inside 0 … {len(self.replay) - 1}, got {interval!r}; "
                "interval k ends at times[k + 1]"
            )
        begin, end = self.times[interval : interval + 2]
        spent = self._debt + (end - begin) * self.replay[interval].variance
        return np.asarray(spent / _weight(self.query, end))

    @property
    def _debt(self) -> np.ndarray:
        return np.asarray(_weight(self.query, self.times[0]) * self.checkpoint_variance)

    def _result_variance(self, steps: list[int]) -> np.ndarray:
        estimated = [m * replay.variance for m, replay in zip(steps, self.replay, strict=True)]
        return np.asarray((self._debt + estimated) / _weight(self.query, self.times[-1]))


def plan_checkpoints(
    model: GaussianModel,
    window: int,
    requirement: Requirement,
    recovery_time: RecoveryTime,
    t_sla_ms: float,
    method: str = "proposed",
    query: str = "mean",
    start: int = 0,
    checkpoint_variance: ArrayLike | None = None,
) -> CheckpointPlan:
    """Plan the fewest checkpoints: alternately a replay set and the latest next time (D2 fig. 4).

    Parameters
    ----------
    model : GaussianModel
        Distribution of the n sensors' values at one time step; steps are independent.
    window : int
        Steps w ≥ 1 of the window, one tuple per sensor and step.
    requirement : Requirement
        ε, in the unit of the window's result, and δ.
    recovery_time : RecoveryTime
        Milliseconds as a function of the replayed tuples. With an `estimate_ms`, an interval
        replays all sensors if its end can then be later, because nothing is estimated.
    t_sla_ms : float
        Longest recovery permitted.
    method : {"proposed", "no-relaxation", "exactly-once", "adaptive"}
        "proposed" chooses the sensors again at each checkpoint by eq. (20); "no-relaxation"
        keeps the choice of the window's beginning; "exactly-once" replays every sensor; "adaptive"
        lets one failed interval spend all of ε, and must be planned again after each failure.
    query : {"mean", "sum"}
        The window's query, over the steps of each sensor.
    start : int
        τ at which the plan begins, in steps since the window began.
    checkpoint_variance : array_like, shape (n,), optional
        σ_c, variance of each sensor's aggregate over (0, start] after an approximate restoration;
        0 by default.

    Returns
    -------
    CheckpointPlan

    Raises
    ------
    ValueError
        When an argument is out of range, T_SLA is too short for one step (the message names the
        shortest that works), or the restored part already exceeds ε.

    Notes
    -----
    Target (20) for the variance of one step of a mean is (w² σ* − τ² σ_c) / (w − τ); for a sum, w²
    and τ² are 1. All targets grow with τ by the same factor, so the sensors are put in order once
    and each later set is a prefix of that order.

    "adaptive" meets ε, δ and T_SLA for every pattern of failures if it is planned again after each.
    Let A = w² σ* (σ* for a sum) be the permitted error variance of the window's sum, and d_i the
    error variance of sensor i's sum at the last checkpoint. d_i is 0 until a failure, because a
    checkpoint that is reached without a failure is exact. Interval k replays a set O with
    (τ_{k+1} − τ_k) Var(X_i | O) ≤ A − d_i for all i and a recovery within T_SLA. If it does not
    fail, d_i stays. If it fails, d_i grows to at most A, because the errors of different steps are
    independent. The rest is planned with the tolerance A − d_i; where it is 0 all sensors are
    replayed, and T_SLA must permit that for one step. By induction d_i ≤ A at the window's end. All
    intervals have the same length (± 1), which minimises the length of the longest interval.

    Examples
    --------
    The fewer sensors are replayed, the fewer checkpoints are needed:

    >>> from aftlib import GaussianModel, RecoveryTime, Requirement, plan_checkpoints
    >>> model = GaussianModel([20, 20], [[1.0, 0.9], [0.9, 1.0]])
    >>> problem = model, 12, Requirement(0.3, 0.05), RecoveryTime(0, 1)
    >>> plan_checkpoints(*problem, t_sla_ms=5).times
    (0, 5, 10, 12)
    >>> plan_checkpoints(*problem, t_sla_ms=5, method="exactly-once").times
    (0, 2, 4, 6, 8, 10, 12)
    >>> plan_checkpoints(*problem, t_sla_ms=5, method="adaptive").times
    (0, 4, 8, 12)
    """
    require_instance("model", model, GaussianModel)
    require_instance("requirement", requirement, Requirement)
    require_instance("recovery_time", recovery_time, RecoveryTime)
    require_choice("method", method, (*METHODS, ADAPTIVE))
    require_choice("query", query, QUERIES)
    require_number("window", window, least=1, whole=True)
    require_number("start", start, least=0, below=window, whole=True)
    window, start = int(window), int(start)
    variance = _restored(model, start, checkpoint_variance)
    chosen = _first_replay(model, requirement, method, query, variance, start, window)

    reach = partial(recovery_time.max_steps, of=model.size, t_sla_ms=t_sla_ms)
    sensors = model.size if method == ADAPTIVE else len(chosen.sensors)
    shortest = recovery_time(model.size, full=True)  # over one step
    if sensors < model.size:
        shortest = min(shortest, recovery_time(sensors))
    if not (isinstance(t_sla_ms, Real) and t_sla_ms >= shortest):
        raise ValueError(
            f"t_sla_ms must be at least {shortest!r} to replay {sensors} sensors over one step, "
            f"got {t_sla_ms!r}; allow more time, or replay fewer sensors by a larger epsilon"
        )
    if method == ADAPTIVE:
        marks, alone = _alone(chosen, window - start, partial(_furthest, model=model, reach=reach))
        marks = tuple(start + mark for mark in marks)
        return CheckpointPlan(marks, (alone,) * (len(marks) - 1), requirement, query, variance)

    times, replay = [start], list[ReplaySet]()
    while True:
        furthest, steps = _furthest(chosen, window - times[-1], model, reach)
        replay.append(furthest)
        times.append(times[-1] + steps)
        if times[-1] == window:
            return CheckpointPlan(tuple(times), tuple(replay), requirement, query, variance)
        relaxed = (window - start) / (window - times[-1])
        chosen = chosen.loosened(relaxed if method == "proposed" else 1.0)


def _furthest(
    chosen: ReplaySet, steps: int, model: GaussianModel, reach: Callable[[int], int]
) -> tuple[ReplaySet, int]:
    """Return the set, or all sensors if they reach further, and the number of steps reached."""
    reached, everything = (min(steps, reach(m)) for m in (len(chosen.sensors), model.size))
    if everything > reached:
        return ReplaySet.everything(model), everything
    return chosen, reached


def _alone(
    tightest: ReplaySet, steps: int, furthest: Callable[[ReplaySet, int], tuple[ReplaySet, int]]
) -> tuple[tuple[int, ...], ReplaySet]:
    """Cut `steps` into the fewest intervals that meet T_SLA if each may spend all of ε.

    `tightest` is the set for one interval of all steps. A shorter interval needs fewer sensors, so
    that tuples grow with the length, and bisection finds the longest interval that fits.
    """

    def chosen(length: int) -> tuple[ReplaySet, int]:
        return furthest(tightest.loosened(steps / length), length)

    def fits(length: int) -> bool:
        return chosen(length)[1] == length

    longest = bisect_left(range(2, steps + 1), True, key=lambda length: not fits(length)) + 1
    count = -(-steps // longest)
    marks = tuple(round(k * steps / count) for k in range(count + 1))
    return marks, chosen(int(np.diff(marks).max()))[0]


def _first_replay(
    model: GaussianModel,
    requirement: Requirement,
    method: str,
    query: str,
    variance: np.ndarray,
    start: int,
    window: int,
) -> ReplaySet:
    """Set for the plan's first interval; the later ones of every method are no larger."""
    steps = window - start
    if method == "exactly-once":
        return ReplaySet.everything(model)
    allowed = _weight(query, window) * requirement.max_variance
    debt = _weight(query, start) * variance
    left = allowed - debt
    if left.min() < -COMPARED_TO * allowed:
        worst = int(left.argmin())
        smallest = float(requirement.z * np.sqrt(debt[worst] / _weight(query, window)))
        raise ValueError(
            f"checkpoint_variance leaves nothing of epsilon = {requirement.epsilon!r} for sensor "
            f"{model.names[worst]!r}; use an epsilon of at least {smallest!r}, or "
            "method='exactly-once', which adds no error of its own"
        )
    target = np.maximum(left, 0) / steps
    if method == "no-relaxation":
        target = np.minimum(target, allowed / window)
    return select_replay(model, target)


def _restored(model: GaussianModel, start: int, given: ArrayLike | None) -> np.ndarray:
    variance = np.zeros(model.size) if given is None else np.array(given, dtype=float)
    if variance.shape != (model.size,):
        raise ValueError(
            f"checkpoint_variance must have shape ({model.size},), one per sensor, "
            f"got {variance.shape}"
        )
    bad = ~((variance >= 0) & np.isfinite(variance))
    if bad.any():
        raise ValueError(
            f"checkpoint_variance must be finite and at least 0, got {float(variance[bad][0])} for "
            f"sensor {model.names[int(bad.argmax())]!r}; use 0 for a sensor restored exactly"
        )
    if start == 0 and variance.any():
        raise ValueError(
            "checkpoint_variance must be 0 if start is 0, because nothing is aggregated then, got "
            f"up to {float(variance.max())}; pass the step of the restored checkpoint as start"
        )
    variance.flags.writeable = False
    return variance


def _weight(query: str, steps: int) -> int:
    """Square of the factor from an aggregate over `steps` steps to the sum (D2 eq. (14))."""
    return AGGREGATES[query].divisor(steps) ** 2
