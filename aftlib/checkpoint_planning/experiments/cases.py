"""What D2's grid is run on: groups of correlated sensors, and the promises asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from aftlib.checkpoint_planning.plan import CheckpointPlan, plan_checkpoints
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.samples import write_samples

AXES = ("epsilon", "delta", "t_sla_ms")


@dataclass(frozen=True)
class Case:
    """Sensors with their samples and the grid (ε, δ, T_SLA) to plan for.

    Attributes
    ----------
    model : GaussianModel
        Of the n sensors' values at one step.
    log : SensorLog
        The document's experiment: the first rows of the endless sample that `seed` names.
    windows : Windows
        Every window follows the same plan.
    epsilons, deltas, t_slas : tuple of float
        The grid; T_SLA in milliseconds.
    recovery_time : RecoveryTime
        What the plans count on.
    replications : int
        Further stretches of the sample, each as long as the log.
    seed : int
        Of the sample and of resampling.
    """

    model: GaussianModel
    log: SensorLog
    windows: Windows
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    t_slas: tuple[float, ...]
    recovery_time: RecoveryTime
    replications: int
    seed: int

    def plan(
        self, epsilon: float, delta: float, t_sla_ms: float, method: str = "proposed"
    ) -> CheckpointPlan:
        """Plan of a window under one promise."""
        asked = Requirement(epsilon, delta), self.recovery_time, t_sla_ms, method
        return plan_checkpoints(self.model, self.windows.width, *asked, self.windows.query)

    @property
    def points(self) -> pd.DataFrame:
        """The grid: epsilon, delta, t_sla_ms, one row a promise."""
        values = pd.MultiIndex.from_product([self.epsilons, self.deltas, self.t_slas], names=AXES)
        return values.to_frame(index=False).astype(float)


def block_case(
    spark: SparkSession,
    directory: Path,
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
) -> Case:
    """D2's data set (section 6.2): equal groups of sensors that go together, drawn on Spark.

    The log is kept under `directory`, keyed by its parameters, and reused when it is there.
    """
    model = block_model(sensors, groups, variance, covariance)
    kind = f"n{sensors}-g{groups}-v{variance:g}-c{covariance:g}"
    log = write_samples(
        spark, model, rows, seed, directory / f"groups-{kind}-rows{rows}-seed{seed}"
    )
    grid = tuple(epsilons), tuple(deltas), tuple(t_slas)
    return Case(model, log, windows, *grid, recovery_time, replications, seed)
