"""Plans of checkpoint times with which every recovery meets ε, δ and T_SLA (D2 section 5)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import require_choice, require_instance, require_number, require_plain
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.windows import AGGREGATES, divisor
from aftlib.documents.checkpoint_planning.replay import ReplaySet, select_replay

EXACTLY_ONCE = "exactly-once"
"""Replay all sensors (section 6.2)."""
NO_RELAXATION = "no-relaxation"
"""Replay the sensors that suffice at the window's beginning (section 6.2)."""
PROPOSED = "proposed"
"""Choose the replayed sensors again at each checkpoint (section 6.2)."""
ADAPTIVE = "adaptive"
"""Ours: plan each interval as the only one that fails, and plan again after a failure."""
METHODS = (PROPOSED, NO_RELAXATION, EXACTLY_ONCE, ADAPTIVE)

_ROUNDED = 1e-9
"""Share of the permitted variance by which rounding in several recoveries may exceed it."""


@dataclass(frozen=True)
class RecoveryTime:
    """T_rec = fixed + per tuple · tuples, in milliseconds (D2 eq. (24)).

    Parameters
    ----------
    fixed_ms : float
        T_res + T_est, the fixed part of every recovery; finite, at least 0.
    per_tuple_ms : float
        T_rep of one replayed tuple; finite, above 0.

    Examples
    --------
    >>> from aftlib import RecoveryTime
    >>> recovery_time = RecoveryTime(fixed_ms=28.33, per_tuple_ms=9.332e-4)
    >>> round(recovery_time(20_000), 2)
    46.99
    >>> recovery_time.max_tuples(t_sla_ms=50)
    23221
    """

    fixed_ms: float
    per_tuple_ms: float

    def __post_init__(self) -> None:
        require_number("fixed_ms", self.fixed_ms, least=0)
        require_number("per_tuple_ms", self.per_tuple_ms, above=0)

    def __call__(self, tuples: float) -> float:
        """Return the milliseconds to recover by replaying `tuples` ≥ 0 tuples."""
        require_number("tuples", tuples, least=0)
        return float(self.fixed_ms + self.per_tuple_ms * tuples)

    def max_tuples(self, t_sla_ms: float, least: int = 0) -> int:
        """Return the most tuples that can be replayed within T_SLA (D2 eq. (25)).

        It is the largest m ≤ 2⁵³ whose recovery time is at most `t_sla_ms` in floating-point
        numbers. So a T_SLA that equals the recovery time of m tuples permits m. ValueError when
        T_SLA is too short for `least` tuples.
        """
        require_plain("t_sla_ms", t_sla_ms, "float")
        shortest = self(least)
        if not (isinstance(t_sla_ms, Real) and t_sla_ms >= shortest):
            raise ValueError(
                f"t_sla_ms must be at least {shortest!r} to replay {least} tuples, got "
                f"{t_sla_ms!r}; allow more time" + ", or plan for fewer sensors" * (least > 0)
            )
        return bisect_right(range(2**53 + 1), t_sla_ms, key=self) - 1


DOCUMENT_RECOVERY_TIME = RecoveryTime(fixed_ms=28.33, per_tuple_ms=9.332e-4)
"""The document's measurement for n = 100 sensors on its machine (D2 eqs (27), (28))."""
RECOVERY_TIME_WITHOUT_T_EST = RecoveryTime(fixed_ms=2.0, per_tuple_ms=9.332e-4)
"""The same without T_est: the longest T_res is 2 ms (D2 section 6.1)."""


@dataclass(frozen=True, eq=False)
class CheckpointPlan:
    """Checkpoint times of a window, and the sensors to replay after a failure in each interval.

    Set k suffices if every interval from k on fails, in an "adaptive" plan if no other interval
    fails. A plan is valid until the first approximate recovery, because its later replay sets
    assume exact checkpoints. After a failure in interval k before the last, plan again with
    `start` = times[k + 1] and `checkpoint_variance` = restored_variance(k). The next plan covers
    later failures.

        R(c^k, O) = min_i ``P(|Y_i − y_i| ≤ ε | c^k, o)``     (D2 eq. (12))

    Attributes
    ----------
    times : tuple of int
        τ_0 < … < τ_K in steps since the window began, from the plan's start to the window's end.
    replay : tuple of ReplaySet
        K sets; set k is replayed over (τ_k, τ_{k+1}] when that interval fails.
    requirement : Requirement
        ε and δ of the plan.
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
    replay: tuple[ReplaySet, ...] = field(repr=False)
    requirement: Requirement
    query: str
    checkpoint_variance: np.ndarray = field(repr=False)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Times strictly inside the window, at which checkpoints are taken."""
        return self.times[1:-1]

    @property
    def tuples(self) -> tuple[int, ...]:
        """Tuples replayed when interval k fails, ``|O_k|`` (τ_{k+1} − τ_k), K numbers."""
        sizes = [len(replay.sensors) for replay in self.replay]
        return tuple(m * (b - a) for m, (a, b) in zip(sizes, pairwise(self.times), strict=True))

    @property
    def estimating(self) -> list[int]:
        """Indices of the intervals whose failure leaves a sensor to be estimated, ascending."""
        return [k for k, replay in enumerate(self.replay) if replay.estimated.size]

    @property
    def worst_case_variance(self) -> np.ndarray:
        """Variance of the window's result when every interval after τ_k fails, shape (K, n).

        From τ_k on only set k is replayed: D2 eq. (16) as definition 1 uses it.
        """
        window = self.times[-1]
        estimated = [
            (window - begin) * replay.variance
            for begin, replay in zip(self.times, self.replay, strict=False)
        ]
        return np.asarray((self._debt + estimated) / squared_divisor(self.query, window))

    @property
    def worst_case_reliability(self) -> np.ndarray:
        """``P(|Y_i − y_i| ≤ ε)`` in the worst case after τ_k, shape (K, n). Row minima are (12)."""
        return self.requirement.reliability(self.worst_case_variance)

    def restored_variance(self, interval: int) -> np.ndarray:
        """Return the variance of the checkpoint restored after this interval failed, shape (n,).

        Raises
        ------
        ValueError
            When the plan has no such interval.
        """
        require_number("interval", interval, least=0, below=len(self.replay), whole=True)
        begin, end = self.times[interval : interval + 2]
        total = self._debt + (end - begin) * self.replay[interval].variance
        return np.asarray(total / squared_divisor(self.query, end))

    @property
    def _debt(self) -> np.ndarray:
        """Error variance of each sensor's sum up to τ_0."""
        return squared_divisor(self.query, self.times[0]) * self.checkpoint_variance


def squared_divisor(query: str, steps: int) -> float:
    """Return the square of the number that divides a sum over `steps` steps (D2 eq. (16))."""
    return float(divisor(query, steps)) ** 2


def plan_checkpoints(
    model: GaussianModel,
    window: int,
    requirement: Requirement,
    recovery_time: RecoveryTime,
    t_sla_ms: float,
    method: str = PROPOSED,
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
        Milliseconds as a function of the replayed tuples.
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
        shortest that works), or the restored part already exceeds ε (the exactly-once plan is made
        then, too).

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
    """
    require_instance("model", model, GaussianModel, "GaussianModel.fit(frame)")
    require_instance("requirement", requirement, Requirement, "Requirement(epsilon, delta)")
    require_instance(
        "recovery_time", recovery_time, RecoveryTime, "RecoveryTime(fixed_ms, per_tuple_ms)"
    )
    require_choice("method", method, METHODS)
    require_choice("query", query, AGGREGATES)
    require_number("window", window, least=1, whole=True)
    require_number("start", start, least=0, below=window, whole=True)
    window = int(window)  # NumPy's integers would change the type of the times
    start = int(start)
    variance = _checked_variance(model, start, checkpoint_variance)
    if method == EXACTLY_ONCE:
        first_set = ReplaySet.everything(model.size)
    else:
        squared = squared_divisor(query, window)
        debt = squared_divisor(query, start) * variance
        target = _target(model, requirement, debt, squared, window - start)
        if method == NO_RELAXATION:  # a plan that begins later does not relax either
            target = np.minimum(target, squared * requirement.max_variance / window)
        first_set = select_replay(model, target)
    sensors = model.size if method == ADAPTIVE else len(first_set.sensors)
    max_tuples = recovery_time.max_tuples(t_sla_ms, least=sensors)  # at least one step
    if method == ADAPTIVE:
        times, replay = _equal_intervals(first_set, start, window, max_tuples)
    else:
        relaxes = method == PROPOSED
        times, replay = _latest_checkpoints(first_set, start, window, max_tuples, relaxes)
    return CheckpointPlan(tuple(times), tuple(replay), requirement, query, variance)


def _latest_checkpoints(
    first_set: ReplaySet, start: int, window: int, max_tuples: int, relaxes: bool
) -> tuple[list[int], list[ReplaySet]]:
    """Take each checkpoint as late as `max_tuples` allow; relax the set at each (D2 fig. 4).

    Each set would suffice until the window's end, because all later intervals may fail, too.
    """
    times = [start]
    replay = [first_set]
    while True:
        sensors = len(replay[-1].sensors)
        reached = times[-1] + max_tuples // sensors if sensors else window
        times.append(min(window, reached))
        if times[-1] == window:
            return times, replay
        # of the permitted variance of a step to that at the start
        ratio = (window - start) / (window - times[-1])
        replay.append(first_set.loosened(ratio) if relaxes else first_set)


def _equal_intervals(
    first_set: ReplaySet, start: int, window: int, max_tuples: int
) -> tuple[list[int], list[ReplaySet]]:
    """Cut the window into the fewest intervals that meet T_SLA if each may spend all of ε.

    `first_set` suffices for one interval of all steps. A shorter interval needs fewer sensors, so
    that tuples grow with the length, and bisection finds the longest interval that fits.
    """
    steps = window - start

    def exceeds(length: int) -> bool:
        return len(first_set.loosened(steps / length).sensors) * length > max_tuples

    longest = bisect_left(range(2, steps + 1), True, key=exceeds) + 1
    count = -(-steps // longest)
    times = [start + round(k * steps / count) for k in range(count + 1)]
    alone = first_set.loosened(steps / int(np.diff(times).max()))
    return times, [alone] * count


def _target(
    model: GaussianModel, requirement: Requirement, debt: np.ndarray, squared: float, steps: int
) -> np.ndarray:
    """Return the target: the permitted variance of a step of each sensor in the first interval.

    It is (20) times the steps that are left, because a mean of independent steps has the variance
    of one step over their number. `debt` is the error variance of each sensor's sum at the last
    checkpoint. `squared` is the square of what divides the window's sum, and `steps` are left of
    the window.
    """
    allowed = squared * requirement.max_variance
    left = allowed - debt
    if left.min() < -_ROUNDED * allowed:
        worst = int(left.argmin())
        smallest = float(requirement.z * np.sqrt(debt[worst] / squared))
        raise ValueError(
            f"checkpoint_variance leaves nothing of epsilon = {requirement.epsilon!r} for sensor "
            f"{model.names[worst]!r}; use an epsilon of at least {smallest!r}, or "
            "method='exactly-once', which adds no error to this one"
        )
    return np.maximum(left, 0) / steps


def _checked_variance(model: GaussianModel, start: int, given: ArrayLike | None) -> np.ndarray:
    """Return the argument `checkpoint_variance`, checked, as a read-only copy."""
    variance = np.zeros(model.size) if given is None else np.array(given, dtype=float)
    bad = variance[~np.isfinite(variance) | (variance < 0) | ((variance > 0) & (start == 0))]
    if variance.shape != (model.size,) or bad.size:
        raise ValueError(
            f"checkpoint_variance must be {model.size} finite numbers, at least 0, and 0 if start "
            f"is 0, got shape {variance.shape} with {bad[:5].tolist()} out of bounds and start = "
            f"{start}; pass the plan's restored_variance(k), and times[k + 1] as start"
        )
    variance.flags.writeable = False
    return variance
