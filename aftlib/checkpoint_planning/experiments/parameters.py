"""The parameters of notebook 02."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import model_validator

from aftlib.checkpoint_planning.experiments.cases import PlanningCase
from aftlib.checkpoint_planning.experiments.costs import require_claim_sizes
from aftlib.checkpoint_planning.recovery_time import (
    DOCUMENT_ESTIMATE_MS,
    DOCUMENT_RECOVERY_TIME,
)
from aftlib.core.checks import require_number, require_numbers, with_value
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows
from aftlib.spark.sweep import write_samples
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_SENSORS = 20_000
"""Most sensors whose covariance and gain matrix fit into memory."""
_TOLERANCE: dict[str, Any] = {"above": 0, "below": 1e100}
_CHANCE: dict[str, Any] = {"above": 0, "below": 1}
_SENSORS: dict[str, Any] = {"least": 1, "most": MOST_SENSORS}


class NotebookParameters(ParameterModel):
    """Parameters of notebook 02."""

    epsilons: list[float] = parameter(
        [0.05, 0.08, 0.10, 0.11, 0.12, 0.13, 0.15], "tolerances ε, sensor units", **_TOLERANCE
    )
    deltas: list[float] = parameter(
        [0.01, 0.05, 0.1], "permitted failure probabilities δ", smoke=[0.05, 0.1], **_CHANCE
    )
    t_slas: list[float] = parameter(
        [35, 50, 75, 100, 200], "T_SLA, ms, planned with the document's recovery time"
    )
    epsilon: float = parameter(0.12, "ε at which figures with a slider begin", **_TOLERANCE)
    delta: float = parameter(0.05, "δ of figures and of the measured recoveries", **_CHANCE)
    t_sla: float = parameter(
        50.0, "T_SLA, ms, where a section does not measure its own; sliders begin with it"
    )
    sensors: int = parameter(100, "n of the generated data", **_SENSORS)
    groups: int = parameter(5, "equally large groups of correlated sensors", least=1)
    variance: float = parameter(60.0, "of every sensor", **_TOLERANCE)
    covariance: float = parameter(30.0, "inside a group")
    window: int = parameter(10_000, "steps w", least=1)
    slide: int = parameter(1_000, "steps between windows", least=1)
    rows: int = parameter(100_000, "steps of the document's experiment", smoke=40_000, least=1)
    replications: int = parameter(
        10, "further data sets of the same size", smoke=6, full=30, least=1
    )
    seed: int = parameter(1, "of data, failures and resampling", least=0)
    ns: list[int] = parameter(
        [10, 100, 1000, 3000],
        "numbers of sensors for which recovery times are measured",
        smoke=[10, 100, 1000],
        full=[10, 100, 1000, 3000, 10000],
        **_SENSORS,
    )
    repeats: int = parameter(
        9, "recoveries for each n and share", smoke=5, quick=5, full=15, least=2
    )
    budgets: list[int] = parameter([10_000, 30_000, 100_000], "tuples replayed while measuring")
    restarts: int = parameter(20, "killed drivers", smoke=2, full=100, least=1)

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse values that do not fit together."""
        shortest = DOCUMENT_RECOVERY_TIME(self.sensors)  # replays every sensor over one step
        require_numbers("t_slas", self.t_slas, least=shortest)
        require_number("t_sla", self.t_sla, least=shortest)
        self._check_model()
        if self.slide > self.window:
            raise ValueError(f"slide must be at most window = {self.window}, got {self.slide!r}")
        if self.rows < self.window:
            raise ValueError(f"rows must hold a window of {self.window} steps, got {self.rows!r}")
        require_numbers("budgets", self.budgets, least=self.sensors, whole=True)
        require_claim_sizes(self.ns)
        return self

    def _check_model(self) -> None:
        if self.sensors % self.groups:
            raise ValueError(
                f"groups must divide sensors = {self.sensors}, got {self.groups!r}; groups are "
                "equally large"
            )
        size = self.sensors // self.groups
        lowest = -self.variance / max(1, size - 1)
        if not lowest * 0.999 < self.covariance < self.variance * 0.999:
            raise ValueError(
                f"covariance must lie between {lowest:g} and variance = {self.variance:g}, got "
                f"{self.covariance!r}; no {size} sensors of a group can be correlated like that"
            )

    def case(self, spark: SparkSession, directory: Path) -> PlanningCase:
        """Return D2's data set (section 6.2), drawn on Spark, and the grid.

        The grid includes `epsilon`, `delta` and `t_sla`. The log is stored under `directory`, with
        a name made of its parameters, and used again.
        """
        model = block_model(self.sensors, self.groups, self.variance, self.covariance)
        kind = f"n{self.sensors}-g{self.groups}-v{self.variance:.15g}-c{self.covariance:.15g}"
        path = directory / f"groups-{kind}-rows{self.rows}-seed{self.seed}"
        return PlanningCase(
            model=model,
            log=write_samples(spark, model, self.rows, self.seed, path),
            windows=Windows(self.window, self.slide),
            epsilons=tuple(with_value(self.epsilons, self.epsilon)),
            deltas=tuple(with_value(self.deltas, self.delta)),
            t_slas=tuple(with_value(self.t_slas, self.t_sla)),
            recovery_time=DOCUMENT_RECOVERY_TIME,
            replications=self.replications,
            seed=self.seed,
            estimate_ms=DOCUMENT_ESTIMATE_MS,
        )

    @property
    def partial_epsilon(self) -> float:
        """Four fifths of the ε at which no sensor needs replay, so that some sensors are replayed.

        It is used to measure recoveries.
        """
        enough = Requirement(1, self.delta).z * np.sqrt(self.variance / self.window)
        return float(4 / 5 * enough)
