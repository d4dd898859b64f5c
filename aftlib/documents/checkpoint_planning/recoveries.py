"""Two recoveries that notebook 02 shows: three sensors (D2 fig. 1), and a stream on Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning.drivers import run_driver, window_outcomes
from aftlib.documents.checkpoint_planning.operator import ReplayQuery, bare_read, open_operator
from aftlib.documents.checkpoint_planning.pipeline import replay_stream
from aftlib.documents.checkpoint_planning.plan import RecoveryTime

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
