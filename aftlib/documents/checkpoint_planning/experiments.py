"""The parameters of notebook 02, and the case that they describe."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Self

from pydantic import model_validator
from pyspark.sql import SparkSession

from aftlib.core.generators import block_model
from aftlib.documents.checkpoint_planning.cases import (
    AXES,
    WINDOWS,
    PlanningCase,
    SensorTable,
    split_samples,
)
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.spark.sweep import write_samples

VARIANCE = 60.0
"""Variance of every sensor (D2 section 6.2)."""
COVARIANCE = 30.0
"""Covariance of two sensors of a group (D2 section 6.2)."""


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
