"""Cases to plan for: sensors with samples and a grid, their checkpoints (fig. 6), and own data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.plan import (
    DOCUMENT_RECOVERY_TIME,
    EXACTLY_ONCE,
    METHODS,
    PROPOSED,
    RECOVERY_TIME_WITHOUT_T_EST,
    RecoveryTime,
)

WINDOWS = 10
"""Disjoint windows of a data set: the document has 10⁵ rows and windows of 10⁴ steps."""
LEAST_WINDOWS = 3
"""Fewest windows of a file's second half."""
SLIDES = 10
"""Slides in the width of a window: the document's windows begin every 10³ of their 10⁴ steps."""
UNCHARGED = "exactly-once without T_est"
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
        Samples that are streamed, and on which success is measured, as `SensorLog.write` stores
        them. Counts and failure rates by formula need none.
    window : int
        Steps of a window.
    points : list of (ε, δ, T_SLA in ms)
        The grid.
    replications : int
        Further data sets, each as long as the log, that are drawn from the model.
    seed : int
        Of these data sets.
    recovery_time, without_t_est : RecoveryTime
        Of a recovery, and of one that does not pay T_est; by default those of the document.

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
    without_t_est: RecoveryTime = RECOVERY_TIME_WITHOUT_T_EST

    @property
    def samples(self) -> SensorLog:
        """The log; ValueError when the case has none."""
        if self.log is None:
            raise ValueError(
                "log must have samples, got None: "
                "give SensorLog.write(folder, values, model.names), from aftlib.core.sensorlog"
            )
        return self.log

    def query(
        self, epsilon: float, delta: float, t_sla_ms: float, method: str = PROPOSED
    ) -> ReplayQuery:
        """Return the query of windows at a point of the grid by a method or `UNCHARGED`.

        `UNCHARGED` is exactly-once whose recoveries do not pay T_est.
        """
        requirement = Requirement(epsilon, delta)
        recovery_time = self.recovery_time
        if method == UNCHARGED:
            method = EXACTLY_ONCE
            recovery_time = self.without_t_est
        return ReplayQuery(self.model, self.window, requirement, recovery_time, t_sla_ms, method)

    def partial_query(self, delta: float, t_sla_ms: float) -> ReplayQuery:
        """Return a query that replays some sensors: ε is 4/5 of the one that needs no replay."""
        sufficient = Requirement(1, delta).z * np.sqrt(self.model.covariance.max() / self.window)
        return self.query(float(4 / 5 * sufficient), delta, t_sla_ms)


def checkpoint_counts(case: PlanningCase) -> pd.DataFrame:
    """Count the checkpoints strictly inside a window for each method over the grid (D2 fig. 6).

    One row per point: epsilon, delta, t_sla_ms, method (one of `METHODS` or `UNCHARGED`);
    checkpoints; prepared: checkpoints if no recovery pays T_est, because the gain is prepared;
    after_failure: checkpoints of a window whose first interval fails, so that the rest is planned
    again.
    """
    prepared = replace(case, recovery_time=case.without_t_est)
    rows = []
    for point, method in product(case.points, [*METHODS, UNCHARGED]):
        query = case.query(*point, method)
        checkpoints = query.first_plan.checkpoints
        if_prepared = prepared.query(*point, method).first_plan.checkpoints
        counts = len(checkpoints), len(if_prepared), _after_failure(query)
        rows.append((*point, method, *counts))
    return pd.DataFrame(rows, columns=[*AXES, "method", "checkpoints", "prepared", "after_failure"])


def _after_failure(query: ReplayQuery) -> int:
    """Count the checkpoints of a window whose first interval fails."""
    plan = query.first_plan
    if not plan.checkpoints:
        return 0
    rest = query.plan(plan.checkpoints[0], plan.restored_variance(0))
    return 1 + len(rest.checkpoints)


def split_samples(
    table: pd.DataFrame, window: int, directory: Path
) -> tuple[GaussianModel, SensorLog]:
    """Learn the model of a step from the first half of the rows; store the second half as a log.

    `table` has one row per step and one column per sensor. Rows with gaps are left out. ValueError
    when the second half has fewer than `LEAST_WINDOWS` windows, or the first too few rows for the
    sensors.
    """
    whole = table[np.isfinite(table).all(axis=1)]
    n = table.shape[1]
    half = len(whole) // 2
    longest = (len(whole) - half) // LEAST_WINDOWS
    if window > longest or half <= n:
        fix = f"give -p window={longest}" if longest >= SLIDES else "give more rows"
        if half <= n:
            fix = "give more rows, or fewer sensors"
        raise ValueError(
            f"data must have more rows without gaps than sensors in its first half, and "
            f"{LEAST_WINDOWS} windows of {window:,} steps in its second, got {half:,} and "
            f"{len(whole) - half:,} rows of {n} sensors: {fix}"
        )
    model = GaussianModel.fit(whole[:half])
    samples = np.ascontiguousarray(whole.to_numpy(float))
    digest = hashlib.sha256(samples.tobytes())
    digest.update(json.dumps(model.names).encode())
    path = directory / f"own-{digest.hexdigest()[:16]}"
    about = {"rows": len(table), "whole": len(whole)}
    if path.exists():
        return model, SensorLog.open(path)
    return model, SensorLog.write(path, samples[half:], model.names, about)
