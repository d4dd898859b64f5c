"""D2 fig. 6: how many checkpoints a window takes, by method, ε, δ and T_SLA."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.checkpoint_planning.experiments.cases import AXES, Case
from aftlib.checkpoint_planning.plan import CheckpointPlan

METHODS = ("exactly-once", "no-relaxation", "proposed")
_SCHEMA = (
    "method string, epsilon double, delta double, t_sla_ms double, checkpoints long, sensors long"
)


def checkpoint_counts(spark: SparkSession, case: Case) -> pd.DataFrame:
    """Checkpoints strictly inside a window for each method over the grid (D2 fig. 6).

    Parameters
    ----------
    spark : SparkSession
        The grid is one Spark job; a task takes some (method, ε, δ, T_SLA).
    case : Case

    Returns
    -------
    DataFrame
        method, epsilon, delta, t_sla_ms, checkpoints, and sensors: |O| at the window's beginning.

    Raises
    ------
    ValueError
        When the shortest T_SLA does not suffice to replay all sensors over one step.
    """
    # the longest of all recoveries over one step: what it permits, every other plan permits too
    case.plan(case.epsilons[0], case.deltas[0], min(case.t_slas), "exactly-once")
    points = pd.DataFrame({"method": METHODS}).merge(case.points, how="cross")

    def count(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            plans = [case.plan(e, d, t, m) for m, e, d, t in frame.itertuples(index=False)]
            sizes = [len(plan.replay[0].sensors) for plan in plans]
            taken = [len(plan.checkpoints) for plan in plans]
            yield frame.assign(checkpoints=taken, sensors=sizes)

    cut = spark.createDataFrame(points).repartition(4 * spark.sparkContext.defaultParallelism)
    found = cut.mapInPandas(count, _SCHEMA).toPandas()
    return found.sort_values(["method", *AXES], ignore_index=True)


def counts_table(counts: pd.DataFrame, delta: float) -> pd.DataFrame:
    """Counts as text, "exactly-once / no-relaxation / proposed", T_SLA down and ε across.

    Raises
    ------
    ValueError
        When the counts have no such δ.
    """
    chosen = counts[np.isclose(counts["delta"], delta)]
    if chosen.empty:
        known = ", ".join(f"{d:g}" for d in sorted(counts["delta"].unique()))
        raise ValueError(f"delta must be one of {known}, got {delta!r}")
    wide = chosen.pivot_table(index=["t_sla_ms", "epsilon"], columns="method", values="checkpoints")
    cells = wide[list(METHODS)].astype(int).astype(str).agg(" / ".join, axis=1)
    return cells.unstack("epsilon")


def plan_table(plan: CheckpointPlan) -> pd.DataFrame:
    """A plan's intervals: begin, end, sensors replayed, tuples, and reliability R of (12)."""
    return pd.DataFrame(
        {
            "begin": plan.times[:-1],
            "end": plan.times[1:],
            "sensors": [len(replay.sensors) for replay in plan.replay],
            "tuples": plan.tuples,
            "reliability": plan.worst_case_reliability.min(axis=1),
        }
    )
