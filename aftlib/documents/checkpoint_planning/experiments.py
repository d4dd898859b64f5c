"""Notebook 02: its parameters, samples of fig. 7, a stream on Spark, and real sensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import pandas as pd
from pydantic import model_validator
from pyspark.sql import SparkSession

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.paths import beijing_pm25
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning.cases import (
    AXES,
    WINDOWS,
    PlanningCase,
    draw_failures,
    estimation_error,
)
from aftlib.documents.checkpoint_planning.drivers import run_driver, window_outcomes
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.pipeline import replay_stream
from aftlib.documents.checkpoint_planning.replay import select_replay
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.spark.sweep import sweep, write_samples

VARIANCE = 60.0
"""Variance of every sensor (D2 section 6.2)."""
COVARIANCE = 30.0
"""Covariance of two sensors of a group (D2 section 6.2)."""
LEAST_WINDOWS = 3
"""Fewest windows of a file's second half."""
SPARK_WINDOWS = 3
"""Windows that are streamed on Spark; a micro-batch takes some tenths of a second."""
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
    data: str | None = parameter(None, "a CSV or Parquet file of sensors; null: generated data")
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

    def case(
        self,
        spark: SparkSession,
        directory: Path,
        read: Callable[[str], SensorTable] | None = None,
    ) -> PlanningCase:
        """Return D2's data set (section 6.2), drawn on Spark, or that of `data`; and the grid.

        The grid includes `epsilon`, `delta` and `t_sla`. The log is stored under `directory`, with
        a name made of its parameters, and used again. `read` reads the file `data`.
        """
        epsilons = sorted({*self.epsilons, self.epsilon})
        deltas = sorted({*self.deltas, self.delta})
        points = [*product(epsilons, deltas, sorted({*self.t_slas, self.t_sla}))]
        if self.data is not None and read is not None:
            model, log = split_samples(read(self.data), self.window, directory)
        else:
            model = block_model(self.sensors, self.groups, VARIANCE, COVARIANCE)
            rows = WINDOWS * self.window
            name = f"groups-n{self.sensors}-g{self.groups}-c{COVARIANCE:.15g}"
            path = directory / f"{name}-rows{rows}-seed{self.seed}"
            log = write_samples(spark, model, rows, self.seed, path)
        return PlanningCase(model, log, self.window, points, self.replications, self.seed)


class SensorTable(Protocol):
    """The result of a reader of sensor files, such as `aftlib.sensor_plans.sensor_file`'s."""

    @property
    def values(self) -> np.ndarray:
        """Samples, shape (rows, n), NaN where one is missing."""

    @property
    def names(self) -> tuple[str, ...]:
        """The n sensors."""


def split_samples(
    table: SensorTable, window: int, directory: Path
) -> tuple[GaussianModel, SensorLog]:
    """Learn the model of a step from the first half of the rows; store the second half as a log.

    Rows with gaps are left out. ValueError when the second half has fewer than two windows, or the
    first too few rows for the sensors.
    """
    whole = table.values[np.isfinite(table.values).all(axis=1)]
    learned, streamed = np.split(whole, [len(whole) // 2])
    longest = len(streamed) // LEAST_WINDOWS
    if window > longest or len(learned) <= len(table.names):
        fix = f"give -p window={longest}" if longest >= WINDOWS else "give more rows"
        if len(learned) <= len(table.names):
            fix = "give more rows, or fewer sensors"
        raise ValueError(
            f"data must have more rows without gaps than sensors in its first half, and "
            f"{LEAST_WINDOWS} windows of {window:,} steps in its second, got {len(learned):,} and "
            f"{len(streamed):,} rows of {len(table.names)} sensors: {fix}"
        )
    frame = pd.DataFrame(learned, columns=list(table.names))
    model = GaussianModel.fit(frame)
    digest = hashlib.sha256(np.ascontiguousarray(whole).tobytes())
    digest.update(json.dumps(model.names).encode())
    path = directory / f"own-{digest.hexdigest()[:16]}"
    about = {"rows": len(table.values), "whole": len(whole)}
    if path.exists():
        return model, SensorLog.open(path)
    return model, SensorLog.write(path, streamed, model.names, about)


def recover_on_spark(
    spark: SparkSession, query: ReplayQuery, log: SensorLog, directory: Path
) -> pd.DataFrame:
    """Kill a driver in the second window; its replacement recovers, then streams on Spark.

    The kill hits the first interval in which a sensor is estimated, if there is one. At most
    `SPARK_WINDOWS` windows are streamed. The replacement recovers the failed interval before Spark
    starts, as `replay_stream` does always, and streams the rest in micro-batches that end at the
    plan's τ.

    Return the rows of `window_outcomes`, with the columns intervals, of the window; and on_spark:
    those of them that were Spark's micro-batches.
    """
    number = min(SPARK_WINDOWS, log.steps // query.window)
    windows = replace(log, steps=number * query.window)
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
        intervals=window.value_counts().reindex(range(number)),
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
    apart = -(-case.window // max(1, case.window // WINDOWS))  # begins between disjoint windows
    disjoint = failed[:, ::apart].reshape(-1, len(points))
    spread = disjoint.std(axis=0, ddof=1)
    exact = rates["failed"].to_numpy()
    # if no drawn result fails, the spread is that of sensors which fail together
    spread = np.where(spread > 0, spread, np.maximum(np.sqrt(exact * (1 - exact)), 1e-12))
    error = spread / np.sqrt(len(disjoint))
    sampled = disjoint.mean(axis=0)
    return rates.assign(
        sampled=sampled,
        low=np.maximum(sampled - 1.96 * error, 0),
        high=sampled + 1.96 * error,
        z=(sampled - rates["failed"]) / error,
        missed=int((failed.mean(axis=1) > rates["delta"].to_numpy()).any(axis=1).sum()),
        parts=len(failed),
    )


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
        error = estimation_error(replay, (later[:, tau:] - model.mean).sum(axis=1))
        within = (np.abs(error) / DAY <= limit[replay.estimated]).mean(axis=0)
        rows.append((tau, len(replay.sensors), 1 - delta, within.mean(), within.min()))
    return pd.DataFrame(rows, columns=["tau", "replayed", "guaranteed", "within", "worst_sensor"])
