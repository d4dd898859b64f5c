"""Notebook 02: its parameters, the checkpoints of plans (fig. 6), and their failures (fig. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from pydantic import model_validator
from pyspark.sql import SparkSession

from aftlib.checkpoint_planning.drivers import run_driver, window_outcomes
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.pipeline import replay_stream
from aftlib.checkpoint_planning.plan import (
    DOCUMENT_RECOVERY_TIME,
    EXACTLY_ONCE,
    METHODS,
    PROPOSED,
    SPARED_RECOVERY_TIME,
    CheckpointPlan,
    RecoveryTime,
)
from aftlib.checkpoint_planning.replay import select_replay
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.paths import beijing_pm25
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.sweep import sweep, write_samples
from aftlib.workbench.parameters import ParameterModel, parameter

VARIANCE = 60.0
"""Variance of every sensor (D2 section 6.2)."""
WINDOWS = 10
"""Disjoint windows of a data set: the document has 10⁵ rows and windows of 10⁴ steps."""
SPARED = "exactly-once without T_est"
"""Exactly-once if only recoveries that estimate pay T_est; the document does not say."""
AXES = ["epsilon", "delta", "t_sla_ms"]
SPARK_WINDOWS = 3
"""Windows that are streamed on Spark; a micro-batch takes some tenths of a second."""
Point = tuple[float, float, float]
"""A point of the grid: its values on the `AXES`."""
DAY, EPSILON_SD = 24, 0.5
"""Of the real sensors: steps of a window, and ε in standard deviations of a window's mean."""


class NotebookParameters(ParameterModel):
    """Parameters of notebook 02."""

    epsilons: list[float] = parameter(
        [0.05, 0.08, 0.10, 0.11, 0.12, 0.13, 0.15], "tolerances ε, sensor units", above=0, most=1e50
    )
    deltas: list[float] = parameter(
        [0.01, 0.05, 0.1], "permitted failure probabilities δ", smoke=[0.05, 0.1], above=0, below=1
    )
    t_slas: list[float] = parameter([35, 50, 75, 100, 200], "T_SLA, ms")
    epsilon: float = parameter(0.12, "ε at which figures begin", above=0, most=1e50)
    delta: float = parameter(0.05, "δ of figures and measured recoveries", above=0, below=1)
    t_sla: float = parameter(50.0, "T_SLA at which figures begin, ms")
    sensors: int = parameter(100, "n of the generated data", least=1, most=10_000)
    groups: int = parameter(5, "equally large groups of correlated sensors", least=1)
    covariance: float = parameter(30.0, "inside a group; the variance is 60", least=0, most=59.9)
    window: int = parameter(10_000, "steps w", least=WINDOWS)
    replications: int = parameter(
        10, "further data sets of ten windows", smoke=4, full=200, least=1
    )
    seed: int = parameter(1, "of data and failures", least=0)
    ns: list[int] = parameter(
        [10, 100, 1000, 10_000],
        "sensors of timed recoveries",
        smoke=[10, 100, 10_000],
        least=4,
        most=10_000,
    )
    turns: int = parameter(
        20,
        "repetitions of each measured time, a tenth above 1,000 sensors",
        smoke=5,
        full=50,
        least=5,
    )
    kills: int = parameter(72, "killed drivers of each series", smoke=5, least=1)

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse groups that are not equally large."""
        if self.sensors % self.groups:
            raise ValueError(
                f"groups must divide sensors = {self.sensors}, got {self.groups!r}; give a divisor"
            )
        return self

    @property
    def point(self) -> dict[str, float]:
        """The point at which figures begin, by the names of the `AXES`."""
        return dict(zip(AXES, (self.epsilon, self.delta, self.t_sla), strict=True))

    def case(self, spark: SparkSession, directory: Path) -> PlanningCase:
        """Return D2's data set (section 6.2), drawn on Spark, and the grid.

        The grid includes `epsilon`, `delta` and `t_sla`. The log is stored under `directory`, with
        a name made of its parameters, and used again.
        """
        model = block_model(self.sensors, self.groups, VARIANCE, self.covariance)
        rows = WINDOWS * self.window
        name = f"groups-n{self.sensors}-g{self.groups}-c{self.covariance:.15g}"
        path = directory / f"{name}-rows{rows}-seed{self.seed}"
        log = write_samples(spark, model, rows, self.seed, path)
        epsilons = sorted({*self.epsilons, self.epsilon})
        deltas = sorted({*self.deltas, self.delta})
        points = [*product(epsilons, deltas, sorted({*self.t_slas, self.t_sla}))]
        return PlanningCase(model, log, self.window, points, self.replications, self.seed)


@dataclass(frozen=True)
class PlanningCase:
    """Sensors with their samples and the grid (ε, δ, T_SLA) to plan for."""

    model: GaussianModel  # of the n sensors' values at one step
    log: SensorLog  # the document's data set: the first rows of the sample that `seed` names
    window: int
    points: list[Point]  # of the grid
    replications: int  # further data sets, each as long as the log
    seed: int  # of the sample
    recovery_time: RecoveryTime = DOCUMENT_RECOVERY_TIME
    spared_time: RecoveryTime = SPARED_RECOVERY_TIME  # of a recovery that estimates nothing

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


def recover_on_spark(
    spark: SparkSession, query: ReplayQuery, log: SensorLog, directory: Path
) -> pd.DataFrame:
    """Kill a driver in the second window; its replacement recovers, then streams on Spark.

    The kill hits the first interval in which a sensor is estimated, if there is one.

    Three windows are streamed. The replacement recovers the failed interval before Spark starts,
    as `replay_stream` does always, and streams the rest in micro-batches that end at the plan's τ.

    Return the rows of `window_outcomes`, with the columns intervals, of the window; and on_spark:
    those of them that were Spark's micro-batches.
    """
    windows = replace(log, steps=SPARK_WINDOWS * query.window)
    plan = query.first_plan
    estimating = [
        tau for tau, each in zip(plan.times, plan.replay, strict=False) if each.estimated.size
    ]
    step = query.window + (estimating or [0])[0]
    run_driver(directory, query, windows, ("replayed", step))
    with replay_stream(spark, query, windows, directory) as store:
        outcomes = window_outcomes(query, windows, store)
        records = store.records()
    of_spark = records["start"] > records.loc[records["recovered"], "start"].max()
    window = records["start"] // query.window
    return outcomes.assign(
        intervals=window.value_counts().reindex(range(SPARK_WINDOWS)),
        on_spark=of_spark.groupby(window).sum(),
    )


def sampled_failures(spark: SparkSession, case: PlanningCase, rates: pd.DataFrame) -> pd.DataFrame:
    """Recover every window of drawn data sets from every checkpoint; return `rates` with controls.

    Part 0 is the case's log, the document's data set; `replications` further ones are drawn. In
    each, windows begin every tenth of a window, as in the document.

    Added columns: sampled: the share of results that err by more than ε; low, high: its 95 %
    interval, and z: its distance from `failed` in standard errors, both from disjoint windows,
    because sensors of a window err together; missed: the data sets, out of `parts`, in which some
    point lies below 1 − δ.
    """
    points = list(rates[AXES].itertuples(index=False, name=None))
    fail = partial(draw_failures, case, points)
    failed = np.stack(sweep(spark, fail, range(1 + case.replications)))
    disjoint = failed[:, ::WINDOWS].reshape(-1, len(points))
    error = np.maximum(disjoint.std(axis=0, ddof=1), 1e-12) / np.sqrt(len(disjoint))
    sampled = disjoint.mean(axis=0)
    return rates.assign(
        sampled=sampled,
        low=np.maximum(sampled - 1.96 * error, 0),
        high=sampled + 1.96 * error,
        z=(sampled - rates["failed"]) / error,
        missed=int((failed.mean(axis=1) > rates["delta"].to_numpy()).any(axis=1).sum()),
        parts=len(failed),
    )


def draw_failures(case: PlanningCase, points: Sequence[Point], part: int) -> np.ndarray:
    """Draw a data set and recover its windows from every checkpoint of each point's plan.

    Return the share of failures, mean over sensors and checkpoints: (windows, points).
    """
    rows, window, n = case.log.steps, case.window, case.model.size
    totals = np.zeros((rows + 1, n))  # any interval's sum is a difference
    drawn = draw(case.model, rows, case.seed, part * rows)
    np.cumsum(drawn - case.model.mean, axis=0, out=totals[1:])
    starts = np.arange(0, rows - window + 1, window // WINDOWS)
    failed = np.empty((len(starts), len(points)))
    for i, point in enumerate(points):
        plan, shares = case.query(*point).plan(), []
        for tau, replay in zip(plan.times, plan.replay, strict=False):
            others = replay.estimated
            if others.size:
                rest = totals[starts + window] - totals[starts + tau]
                error = rest[:, others] - rest[:, replay.sensors] @ replay.gain().T
                wrong = np.abs(error) / window > plan.requirement.epsilon
                shares.append(wrong.sum(axis=1) / n)
        failed[:, i] = np.mean(shares, axis=0)
    return failed


def beijing_failures(delta: float) -> pd.DataFrame:
    """Replay D2's sensors at real stations, whose hours depend on each other, and count failures.

    PM2.5 at twelve stations in Beijing, in windows of a day without gaps. The model of one hour is
    fitted to the first half of the days; from a checkpoint at τ hours on, the other half's days are
    estimated. One row per τ: tau, replayed: |O|, guaranteed: 1 − δ; within: the share of estimates
    within ε, and worst_sensor: that of the worst station.
    """
    hours = pd.read_parquet(beijing_pm25())
    days = hours.to_numpy(float).reshape(-1, DAY, hours.shape[1])
    days = days[np.isfinite(days).all(axis=(1, 2))]
    past, later = np.split(days, [len(days) // 2])
    limit = EPSILON_SD * past.mean(axis=1).std(axis=0)  # ε of each station
    model = GaussianModel.fit(past.reshape(-1, len(limit)))
    permitted = (limit * DAY / Requirement(1, delta).z) ** 2
    rows = []
    for tau in range(0, DAY, 6):
        replay = select_replay(model, permitted / (DAY - tau))
        o, others = list(replay.sensors), replay.estimated
        rest = (later[:, tau:] - model.mean).sum(axis=1)
        error = rest[:, others] - rest[:, o] @ replay.gain().T
        within = (np.abs(error) / DAY <= limit[others]).mean(axis=0)
        rows.append((tau, len(o), 1 - delta, within.mean(), within.min()))
    return pd.DataFrame(rows, columns=["tau", "replayed", "guaranteed", "within", "worst_sensor"])
