"""The parameters of notebook 02, the case that they describe, and two recoveries that it shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from pydantic import model_validator
from pyspark.sql import SparkSession

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning.cases import (
    AXES,
    SLIDES,
    WINDOWS,
    PlanningCase,
    split_samples,
)
from aftlib.documents.checkpoint_planning.drivers import run_driver, window_outcomes
from aftlib.documents.checkpoint_planning.operator import ReplayQuery, bare_read, open_operator
from aftlib.documents.checkpoint_planning.pipeline import replay_stream
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.spark.sweep import write_samples

VARIANCE = 60.0
"""Variance of every sensor (D2 section 6.2)."""
COVARIANCE = 30.0
"""Covariance of two sensors of a group (D2 section 6.2)."""
SPARK_WINDOWS = 3
"""Windows that are streamed on Spark; a micro-batch takes some tenths of a second."""
FIGURE_1 = pd.DataFrame(
    {
        "X1": [21, 22, 22, 22, 23, 23, 23],
        "X2": [21, 21, 22, 22, 22, 23, 23],
        "X3": [19, 20, 20, 20, 19, 20, 21],
    },
    index=pd.Index(range(1, 8), name="step"),
    dtype=float,
)
"""Sensor values of D2 fig. 1."""
FAILURE = 5
"""Step of the failure in fig. 1."""
FIGURE_1_QUERY = ReplayQuery(
    GaussianModel([22, 22, 20], [[1.0, 0.85, 0.40], [0.85, 0.90, 0.30], [0.40, 0.30, 0.60]]),
    window=len(FIGURE_1),
    requirement=Requirement(0.44, 0.05),
    recovery_time=RecoveryTime(0, 1),
    t_sla_ms=6,
)
"""Our choice, as fig. 1 has no model: X1 and X2 correlate strongly (.90), X3 weakly (.52, .41). At
1 ms per replayed tuple these give the document's plan."""


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
    window: int = parameter(10_000, "steps w", least=SLIDES)
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
        12,
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
        own: pd.DataFrame | None = None,
    ) -> PlanningCase:
        """Return D2's data set (section 6.2), drawn on Spark, or `own`, the file's; and the grid.

        The grid includes `epsilon`, `delta` and `t_sla`. The log is stored under `directory`, with
        a name made of its parameters, and used again.
        """
        epsilons = sorted({*self.epsilons, self.epsilon})
        deltas = sorted({*self.deltas, self.delta})
        points = [*product(epsilons, deltas, sorted({*self.t_slas, self.t_sla}))]
        if (own is None) != (self.data is None):
            raise ValueError(f"own must be the table of the file data = {self.data!r}; pass both")
        if own is not None:
            model, log = split_samples(own, self.window, directory)
        else:
            model = block_model(self.sensors, self.groups, VARIANCE, COVARIANCE)
            rows = WINDOWS * self.window
            name = f"groups-n{self.sensors}-g{self.groups}-c{COVARIANCE:.15g}"
            path = directory / f"{name}-rows{rows}-seed{self.seed}"
            log = write_samples(spark, model, rows, self.seed, path)
        return PlanningCase(model, log, self.window, points, self.replications, self.seed)


def recover_three_sensors(directory: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Aggregate fig. 1's window, fail, restore the checkpoint and replay the plan's sensors.

    The failure is at step `FAILURE`. `directory` must be new; it gets the log and the state.

    Return two frames. One row per sample: step, sensor, value, state: checkpointed, replayed or
    estimated. One row per sensor, as the operator emitted it: sensor, checkpoint: mean in c¹,
    restored, half_width, truth, error.
    """
    query = FIGURE_1_QUERY
    plan = query.first_plan
    log = SensorLog.write(directory / "log", FIGURE_1.to_numpy(), FIGURE_1.columns.tolist())
    _, begin, end = plan.times  # the failure is in the second interval
    operator = open_operator(query, log, directory / "state")
    operator.store.begin(begin, "the process that crashed")
    operator.finish(bare_read(log))

    replayed = [query.model.names[i] for i in plan.replay[1].sensors]
    cells = FIGURE_1.reset_index().melt("step", var_name="sensor")
    states = np.where(cells["sensor"].isin(replayed), "replayed", "estimated")
    cells["state"] = np.where(cells["step"].between(begin + 1, end), states, "checkpointed")

    results = operator.store.results().set_index("key")
    table = pd.DataFrame({"checkpoint": FIGURE_1.iloc[:begin].mean(), "restored": results["value"]})
    table = table.assign(half_width=results["half_width"], truth=FIGURE_1.mean())
    table["error"] = (table["restored"] - table["truth"]).abs()
    return cells, table.rename_axis("sensor").reset_index()


def recover_on_spark(
    spark: SparkSession, query: ReplayQuery, log: SensorLog, directory: Path
) -> pd.DataFrame:
    """Kill a driver in the second window; its replacement recovers, then streams on Spark.

    The kill hits the first interval in which a sensor is estimated, if there is one. At most
    `SPARK_WINDOWS` windows are streamed. The replacement recovers the failed interval before Spark
    starts, as `replay_stream` does always, and streams the rest in micro-batches that end at the
    plan's τ.

    Return the rows of `window_outcomes` with two more columns: intervals, their number in the
    window; and on_spark, how many of them were Spark's micro-batches.
    """
    number = min(SPARK_WINDOWS, log.steps // query.window)
    windows = replace(log, steps=number * query.window)
    plan = query.first_plan
    interval = (plan.estimating or [0])[0]
    step = query.window + plan.times[interval]
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
