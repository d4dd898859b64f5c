"""Notebook 01's parameters, and its sensors: generated ones, and stations in Beijing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.checks import require_choice, require_number, with_value
from aftlib.core.datasets import read_table
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import COVARIANCES, generated_model
from aftlib.core.paths import beijing_pm25
from aftlib.core.sensorlog import SensorLog
from aftlib.core.sensortable import SensorTable
from aftlib.core.windows import Windows
from aftlib.spark.sweep import write_samples
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, WINDOWS, UNSCALED = "rows are aggregates", "rows are samples", "rows are samples, Σ unscaled"
PARTS = 10
"""Equal segments of time into which real data are cut, to compute intervals over segments."""
BLOCK_WORKERS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
BLOCK_EPSILONS = (0.4, 0.5, 0.6, 0.65, 0.66, 0.67, 0.7, 0.75, 0.8, 0.9, 1.0, 1.5, 1.96)
FRACTIONS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Tolerances of real sensors, in median standard deviations."""


@dataclass(frozen=True)
class SensorCase:
    """A log of sensors, their model, and the grid of m and ε to try on it."""

    log: SensorLog  # on which estimates are evaluated; for real sensors, the second half
    samples: GaussianModel  # model of single samples
    windows: Windows
    delta: float
    workers: tuple[int, ...]
    epsilons: tuple[float, ...]
    replications: int  # parts of the log beyond the first
    about: dict[str, int]  # counts to show: rows, gaps, rows left out of the fit

    @property
    def readings(self) -> dict[str, tuple[GaussianModel, Windows]]:
        """Model of the window aggregates and their windows, for each reading of the rows.

        The last one models windows of samples by the mean and covariance of single samples.
        """
        width, query = self.windows.width, self.windows.query
        over = self.samples.aggregate(width, query)
        return {
            ROWS: (self.samples, Windows(1, 1)),
            WINDOWS: (over, self.windows),
            UNSCALED: (self.samples, self.windows),
        }


class NotebookParameters(ParameterModel):
    """Parameters of notebook 01."""

    workers: list[int] | None = parameter(
        None,
        "worker counts m, divisors of `dimensions`; null: the document's",
        smoke=[2, 6, 10, 24, 60],
        least=1,
    )
    epsilons: list[float] | None = parameter(
        None,
        "tolerances ε, sensor units; null: around the document's",
        smoke=[0.5, 0.65, 0.67, 0.8, 1.0, 1.96],
        above=0,
    )
    delta: float = parameter(0.05, "permitted failure probability δ", above=0, below=1)
    dimensions: int = parameter(120, "sensors of the generated data", least=2, most=5000)
    blocks: int = parameter(10, "equally large groups of correlated sensors", least=1)
    covariance: str = parameter(
        "block", "of generated sensors: block, autoregressive, factor or random"
    )
    rows: int = parameter(1000, "rows of the document's experiment", least=1)
    replications: int = parameter(
        20, "further data sets of the same size", smoke=8, quick=10, full=200, least=1
    )
    width: int = parameter(3, "window, steps", least=1)
    slide: int = parameter(1, "steps", least=1)
    seed: int = parameter(1, "of data, random assignments and resampling", least=0)

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse values that do not fit together."""
        require_choice("covariance", self.covariance, COVARIANCES)
        require_number("slide", self.slide, least=1, most=self.width, whole=True)
        n = self.dimensions
        if n % self.blocks:
            raise ValueError(
                f"blocks must divide dimensions = {n}, got {self.blocks!r}; choose from "
                f"{divisors(n)}"
            )
        if self.rows < self.width:
            raise ValueError(
                f"rows must hold a window of width = {self.width} steps, got {self.rows!r}; "
                "give more rows or a smaller width"
            )
        for m in self.workers or ():
            if n % m:
                raise ValueError(
                    f"workers must divide the {n} sensors, got {m!r}; choose from {divisors(n)}"
                )
        return self

    def case(self, spark: SparkSession, directory: Path) -> SensorCase:
        """Return the generated sensors; their log is stored under `directory`, and reused."""
        n, total = self.dimensions, self.rows * (1 + self.replications)
        model = generated_model(self.covariance, n, self.blocks, self.seed)
        name = f"{self.covariance}-n{n}-b{self.blocks}-rows{total}-seed{self.seed}"
        path = directory / name
        usual = [m for m in BLOCK_WORKERS if n % m == 0] or divisors(n)[1:]
        return SensorCase(
            log=write_samples(spark, model, total, self.seed, path),
            samples=model,
            windows=Windows(self.width, self.slide),
            delta=self.delta,
            workers=_ascending(self.workers, usual),
            epsilons=_ascending(self.epsilons, BLOCK_EPSILONS),
            replications=self.replications,
            about={"rows": total, "sensors": n},
        )

    def real(self, directory: Path) -> SensorCase:
        """Return the stations in Beijing, on which a model of the first half is tried."""
        path, table = directory / "beijing-second-half", read_table(str(beijing_pm25()))
        log = SensorLog.open(path) if path.exists() else table.split()[1].write_log(path)
        return real_case(table, log, Windows(self.width, self.slide), self.delta)

    @property
    def block(self) -> int | None:
        """Number of sensors in each block of generated data; None for data without blocks."""
        return self.dimensions // self.blocks if self.covariance == "block" else None


def divisors(n: int) -> list[int]:
    """Return the numbers that divide `n`, ascending."""
    return [m for m in range(1, n + 1) if n % m == 0]


def real_case(table: SensorTable, log: SensorLog, windows: Windows, delta: float) -> SensorCase:
    """Return real sensors: a model fitted on the first half of a table, and a log of the second.

    `workers` are up to ten numbers from 2 to n in about equal ratios, and `epsilons` are fractions
    of the median standard deviation.
    """
    model, _, left_out = fitted(table)
    n, deviation = model.size, float(np.sqrt(np.median(np.diag(model.covariance))))
    ratios = np.unique(np.geomspace(min(2, n), n, 10).round().astype(int)).tolist()
    about = {"sensors": n, "rows": len(table.values)}
    return SensorCase(
        log=log,
        samples=model,
        windows=windows,
        delta=delta,
        workers=tuple(ratios),
        epsilons=tuple(float(f"{f * deviation:.2g}") for f in FRACTIONS),
        replications=PARTS - 1,
        about=about | {"incomplete rows left out of the fit": left_out},
    )


def fitted(table: SensorTable) -> tuple[GaussianModel, SensorTable, int]:
    """Return a model of the first half's samples, then the second half, then the rows left out.

    The model is fitted to the complete rows. If these are at most ten per sensor, each covariance
    comes from all rows that have both sensors. With very few rows the correlations are shrunk.
    ValueError for a sensor that has no value in one of the halves, or does not vary in the first.
    """
    first, test = table.split()
    complete, n = np.isfinite(first.values).all(axis=1), len(table.names)
    rows = first.values[complete] if complete.sum() > 10 * n else first.values
    frame = pd.DataFrame(rows, columns=list(table.names))
    shrinkage = "auto" if len(rows) <= 2 * n else 0.0
    model = GaussianModel.fit(frame, missing="estimate", shrinkage=shrinkage)
    return model, test, len(first.values) - len(rows)


def _ascending(given: Sequence[Any] | None, usual: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(with_value(usual if given is None else given))
