"""What D2's grid is run on, and how many checkpoints its plans take (D2 fig. 6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning import plan
from aftlib.checkpoint_planning.plan import CheckpointPlan, plan_checkpoints
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.sweep import write_samples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AXES = ("epsilon", "delta", "t_sla_ms")
METHODS = (*plan.METHODS[::-1], plan.ADAPTIVE)
_SCHEMA = (
    "method string, epsilon double, delta double, t_sla_ms double, checkpoints long, sensors long"
)


@dataclass(frozen=True)
class PlanningCase:
    """Sensors with their samples and the grid (ε, δ, T_SLA) to plan for."""

    model: GaussianModel  # of the n sensors' values at one step
    log: SensorLog  # the document's experiment: the first rows of the sample that `seed` names
    windows: Windows  # every one follows the same plan
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    t_slas: tuple[float, ...]  # ms
    recovery_time: RecoveryTime  # what the plans count on
    replications: int  # further stretches of the sample, each as long as the log
    seed: int  # of the sample and of resampling

    def plan(
        self, epsilon: float, delta: float, t_sla_ms: float, method: str = "proposed"
    ) -> CheckpointPlan:
        """Plan of a window under one promise."""
        asked = self.model, self.windows.width, Requirement(epsilon, delta), self.recovery_time
        return plan_checkpoints(*asked, t_sla_ms, method=method, query=self.windows.query)

    @property
    def points(self) -> pd.DataFrame:
        """The grid: epsilon, delta, t_sla_ms, one row a promise."""
        values = pd.MultiIndex.from_product([self.epsilons, self.deltas, self.t_slas], names=AXES)
        return values.to_frame(index=False).astype(float)


def block_case(
    spark: SparkSession,
    directory: Path,
    *,
    sensors: int,
    groups: int,
    variance: float,
    covariance: float,
    windows: Windows,
    rows: int,
    replications: int,
    seed: int,
    epsilons: Sequence[float],
    deltas: Sequence[float],
    t_slas: Sequence[float],
    recovery_time: RecoveryTime = DOCUMENT_RECOVERY_TIME,
) -> PlanningCase:
    """D2's data set (section 6.2): equal groups of sensors that go together, drawn on Spark.

    The log is kept under `directory`, keyed by its parameters, and reused when it is there.
    """
    model = block_model(sensors, groups, variance, covariance)
    kind = f"n{sensors}-g{groups}-v{variance:.15g}-c{covariance:.15g}"
    path = directory / f"groups-{kind}-rows{rows}-seed{seed}"
    log = write_samples(spark, model, rows, seed, path)
    grid = tuple(epsilons), tuple(deltas), tuple(t_slas)
    return PlanningCase(model, log, windows, *grid, recovery_time, replications, seed)


def checkpoint_counts(spark: SparkSession, case: PlanningCase) -> pd.DataFrame:
    """Checkpoints strictly inside a window for each method over the grid (D2 fig. 6).

    method, epsilon, delta, t_sla_ms, checkpoints, and sensors: |O| at the window's beginning. One
    Spark job; a task takes some (method, ε, δ, T_SLA). ValueError when the shortest T_SLA does not
    suffice to replay all sensors over one step.
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
    """Counts as text, one after another as in `METHODS`, T_SLA down and ε across.

    ValueError when the counts have no such δ.
    """
    chosen = counts[np.isclose(counts["delta"], delta)]
    if chosen.empty:
        known = ", ".join(f"{d:g}" for d in sorted(counts["delta"].unique()))
        raise ValueError(f"delta must be one of {known}, got {delta!r}")
    wide = chosen.pivot_table(index=["t_sla_ms", "epsilon"], columns="method", values="checkpoints")
    cells = wide[list(METHODS)].astype(int).astype(str).agg(" / ".join, axis=1)
    return cells.unstack("epsilon")


def maximum_counts(
    case: PlanningCase,
    delta: float,
    t_sla_ms: float,
    shares: Sequence[float] = (1, 2, 3, 3.5, 4, 5),
) -> pd.DataFrame:
    """Plans of the windows' maxima: checkpoints of each method of the document.

    epsilon, as so many standard deviations of the sensor that varies most (`deviations`); sensors:
    |O| at the window's beginning and at its end by "proposed".
    """
    scale, rows = float(np.sqrt(case.model.covariance.diagonal().max())), []
    for share in shares:
        asked = case.model, case.windows.width, Requirement(share * scale, delta)
        every = *asked, case.recovery_time, t_sla_ms
        plans = {method: plan_checkpoints(*every, method, "max") for method in plan.METHODS[::-1]}
        sizes = [len(replay.sensors) for replay in plans["proposed"].replay]
        taken = {method: len(found.checkpoints) for method, found in plans.items()}
        row = {"deviations": share, "epsilon": share * scale, **taken}
        rows.append(row | {"sensors first": sizes[0], "sensors last": sizes[-1]})
    return pd.DataFrame(rows)
