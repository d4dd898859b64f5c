"""What follows from plans over a grid: checkpoints (fig. 6), failures (fig. 7), success."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.plan import (
    DOCUMENT_RECOVERY_TIME,
    EXACTLY_ONCE,
    METHODS,
    PROPOSED,
    SPARED_RECOVERY_TIME,
    CheckpointPlan,
    RecoveryTime,
)
from aftlib.documents.checkpoint_planning.replay import ReplaySet

WINDOWS = 10
"""Disjoint windows of a data set: the document has 10⁵ rows and windows of 10⁴ steps."""
SPARED = "exactly-once without T_est"
"""Exactly-once if only recoveries that estimate pay T_est; the document does not say."""
AXES = ["epsilon", "delta", "t_sla_ms"]
Point = tuple[float, float, float]
"""A point of the grid: its values on the `AXES`."""


@dataclass(frozen=True)
class PlanningCase:
    """Sensors with their samples and the grid (ε, δ, T_SLA) to plan for.

    Parameters
    ----------
    model : GaussianModel
        Of the n sensors' values at one step.
    log : SensorLog, optional
        Samples that are streamed, and on which success is measured. Counts and failure rates by
        formula need none.
    window : int
        Steps of a window.
    points : list of (ε, δ, T_SLA in ms)
        The grid.
    replications : int
        Further data sets, each as long as the log, that are drawn from the model.
    seed : int
        Of these data sets.
    recovery_time, spared_time : RecoveryTime
        Of a recovery, and of one that estimates nothing; by default those of the document.

    Examples
    --------
    Checkpoints of each method for sensors with a covariance of your own:

    >>> import numpy as np
    >>> from aftlib import GaussianModel
    >>> from aftlib.documents.checkpoint_planning.cases import PlanningCase, checkpoint_counts
    >>> groups = np.kron(np.eye(5), np.full((20, 20), 30) + 30 * np.eye(20))
    >>> model = GaussianModel(np.zeros(100), groups)
    >>> case = PlanningCase(model, None, 10_000, points=[(0.12, 0.05, 50), (0.12, 0.05, 100)])
    >>> counts = checkpoint_counts(case)
    >>> counts.pivot_table(index="t_sla_ms", columns="method", values="checkpoints")["proposed"]
    t_sla_ms
    50     3.0
    100    1.0
    Name: proposed, dtype: float64
    """

    model: GaussianModel
    log: SensorLog | None
    window: int
    points: list[Point]
    replications: int = 10
    seed: int = 1
    recovery_time: RecoveryTime = DOCUMENT_RECOVERY_TIME
    spared_time: RecoveryTime = SPARED_RECOVERY_TIME

    @property
    def samples(self) -> SensorLog:
        """The log; ValueError when the case has none."""
        if self.log is None:
            raise ValueError("log must have samples, got None: give a SensorLog")
        return self.log

    def query(
        self, epsilon: float, delta: float, t_sla_ms: float, method: str = PROPOSED
    ) -> ReplayQuery:
        """Return the query of windows at one point of the grid, by one of `METHODS` or `SPARED`."""
        requirement, recovery_time = Requirement(epsilon, delta), self.recovery_time
        if method == SPARED:
            method, recovery_time = EXACTLY_ONCE, self.spared_time
        return ReplayQuery(self.model, self.window, requirement, recovery_time, t_sla_ms, method)

    def partial_query(self, delta: float, t_sla_ms: float) -> ReplayQuery:
        """Return a query that replays some sensors: ε is 4/5 of what needs no replay."""
        sufficient = Requirement(1, delta).z * np.sqrt(self.model.covariance.max() / self.window)
        return self.query(float(4 / 5 * sufficient), delta, t_sla_ms)


def checkpoint_counts(case: PlanningCase) -> pd.DataFrame:
    """Count the checkpoints strictly inside a window for each method over the grid (D2 fig. 6).

    One row per point: epsilon, delta, t_sla_ms, method (one of `METHODS` or `SPARED`), checkpoints.
    """
    rows = [
        (*point, method, len(case.query(*point, method).plan().checkpoints))
        for point, method in product(case.points, [*METHODS, SPARED])
    ]
    return pd.DataFrame(rows, columns=[*AXES, "method", "checkpoints"])


def measured_success(case: PlanningCase, query: ReplayQuery) -> pd.DataFrame:
    """Recover each window of the case's log from every checkpoint of a plan, by its replay set.

    From the checkpoint on only its set is replayed, the worst case (12). The log's samples need not
    be of the model. One row per interval in which a sensor is estimated: from_tau, tau, and
    replayed as in `restored_checkpoints`; predicted: the mean probability that an estimated
    sensor's result is within ε, by the model; measured: the share in the log's windows; windows.
    """
    windows = case.samples.steps // case.window
    samples = case.samples.read(None, 0, windows * case.window) - case.model.mean
    by_window = samples.reshape(windows, case.window, case.model.size)
    plan = query.first_plan
    rows = []
    for k, replay in enumerate(plan.replay):
        others = replay.estimated
        if others.size:
            begin, end = plan.times[k : k + 2]
            error = estimation_error(replay, by_window[:, begin:].sum(axis=1)) / case.window
            within = (np.abs(error) <= plan.requirement.epsilon).mean()
            predicted = plan.worst_case_reliability[k, others].mean()
            rows.append((begin, end, len(replay.sensors), predicted, within, windows))
    names = ["from_tau", "tau", "replayed", "predicted", "measured", "windows"]
    return pd.DataFrame(rows, columns=names)


def estimation_error(replay: ReplaySet, sums: np.ndarray) -> np.ndarray:
    """Return the errors of the estimated sensors' sums, from the deviations of all sums.

    `sums` has shape (windows, n), the result (windows, n − |O|).
    """
    return np.asarray(sums[:, replay.estimated] - sums[:, replay.sensors] @ replay.gain().T)


def failure_rates(case: PlanningCase) -> pd.DataFrame:
    """Compute how often results of "proposed" err by more than ε where it estimates (fig. 7).

    The failure probability at τ_k is that of the window's result in the worst case (12): of
    sensor i, 1 − erf(ε / √(2 v_i)) with v_i = (w − τ_k) Var(X_i | O_k) / w².

    One row per point of the grid whose plan estimates something: epsilon, delta, t_sla_ms,
    checkpoints: those with estimates; failed: the mean over sensors and checkpoints, a point of
    fig. 7; hardest: the largest of any sensor and checkpoint.

    The restored checkpoint itself has no such guarantee. restored: the lowest mean probability with
    which estimated sensors of a restored checkpoint are within ε; restored_all: that of all its
    sensors, of which replayed ones have no error; tau: the checkpoint's time.
    """
    rows = []
    for point in case.points:
        plan = case.query(*point).plan()
        estimates = [bool(replay.estimated.size) for replay in plan.replay]
        failed = 1 - plan.worst_case_reliability[estimates]
        if len(failed):
            checkpoints = restored_checkpoints(plan)
            worst = checkpoints.nsmallest(1, "restored").iloc[0]
            lowest = worst["restored"], worst["restored_all"], int(worst["tau"])
            rows.append((*point, len(failed), failed.mean(), failed.max(), *lowest))
    names = ["checkpoints", "failed", "hardest", "restored", "restored_all", "tau"]
    return pd.DataFrame(rows, columns=[*AXES, *names])


def restored_checkpoints(plan: CheckpointPlan) -> pd.DataFrame:
    """Compare the window's result with the checkpoint that is restored when an interval fails.

    One row per interval of the plan in which a sensor is estimated: from_tau, tau: τ_k and τ_{k+1}
    in steps; replayed: |O_k|; worst_case: mean probability that a window's result is within ε in
    the worst case (12), over all sensors; restored: the same of the estimated sensors' running
    means at τ_{k+1}, and restored_all: of all sensors', in which replayed sensors have no error.
    """
    rows = []
    worst_case = plan.worst_case_reliability.mean(axis=1)
    for k, replay in enumerate(plan.replay):
        if replay.estimated.size:
            within = plan.requirement.reliability(plan.restored_variance(k))
            begin, end = plan.times[k : k + 2]
            means = within[replay.estimated].mean(), within.mean()
            rows.append((begin, end, len(replay.sensors), worst_case[k], *means))
    names = ["from_tau", "tau", "replayed", "worst_case", "restored", "restored_all"]
    return pd.DataFrame(rows, columns=names)


def draw_failures(case: PlanningCase, points: Sequence[Point], part: int) -> np.ndarray:
    """Draw a data set and recover its windows from every checkpoint of each point's plan.

    Return the share of failures, mean over sensors and checkpoints: (windows, points).
    """
    rows = case.samples.steps
    window = case.window
    n = case.model.size
    totals = np.zeros((rows + 1, n))  # any interval's sum is a difference
    drawn = draw(case.model, rows, case.seed, part * rows)
    np.cumsum(drawn - case.model.mean, axis=0, out=totals[1:])
    starts = np.arange(0, rows - window + 1, max(1, window // WINDOWS))
    failed = np.empty((len(starts), len(points)))
    for i, point in enumerate(points):
        plan, shares = case.query(*point).plan(), []
        for tau, replay in zip(plan.times, plan.replay, strict=False):
            others = replay.estimated
            if others.size:
                rest = totals[starts + window] - totals[starts + tau]
                error = estimation_error(replay, rest)
                wrong = np.abs(error) / window > plan.requirement.epsilon
                shares.append(wrong.sum(axis=1) / n)
        failed[:, i] = np.mean(shares, axis=0)
    return failed
