"""D1's experiments: notebook 01's parameters, figs 10–13 by formula and sample, and Beijing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.approximately_once.assignment import (
    Assignment,
    assign_greedy,
    assign_packed,
    assign_random,
    assign_spread,
    divisors,
    residual_variance,
    residuals,
)
from aftlib.approximately_once.best import assign_best
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.paths import beijing_pm25
from aftlib.core.requirement import Requirement
from aftlib.spark.sweep import sweep
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = ("greedy", "h-best", "h-worst")
"""The methods that the document compares."""
RANDOM, CHANCE = "random", "greedy, ties by chance"
"""Methods that are drawn: a random assignment, and greedy with equal sensors in random order."""
WORKERS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
EPSILONS = (0.4, 0.5, 0.6, 0.65, 0.66, 0.67, 0.7, 0.75, 0.8, 0.9, 1.0, 1.5, 1.96)
"""Settings around the smallest ε with estimable workers; only the document's figures have its."""
TIES = 5
"""Random orders of equal sensors that are tried in each setting."""
RAREST = 0.001
"""Error rate below which a sample has too few errors for a normal approximation."""
FRACTIONS = (0.4, 0.5, 0.7, 1.0)
"""Tolerances on the stations in Beijing, in standard deviations."""

# any number of workers: where m does not divide n, their sizes differ by one
ASSIGN: dict[str, Callable[..., Assignment]] = {
    "greedy": lambda *problem, rng: assign_greedy(*problem, uneven=True),
    "h-best": lambda *problem, rng: assign_spread(*problem, uneven=True),
    "h-worst": lambda *problem, rng: assign_packed(*problem, uneven=True),
    RANDOM: lambda model, m, requirement, rng: assign_random(
        model, m, requirement, rng, uneven=True
    ),
    CHANCE: lambda *problem, rng: assign_greedy(*problem, uneven=True, rng=rng),
}
"""The assignments by method, called with model, m, requirement and `rng`.

A method that is added, also in a notebook, appears in `grid`, and so in the figures of estimable
workers.
"""


class NotebookParameters(ParameterModel):
    """Parameters of notebook 01."""

    workers: list[int] | None = parameter(
        None,
        "worker counts m, divisors of `dimensions`; null: ours",
        smoke=[2, 6, 10, 24, 60],
        least=1,
    )
    epsilons: list[float] | None = parameter(
        None,
        "tolerances ε, sensor units; null: ours",
        smoke=[0.5, 0.65, 0.67, 0.7, 1.0, 1.96],
        above=0,
    )
    delta: float = parameter(0.05, "permitted failure probability δ", above=0, below=1)
    dimensions: int = parameter(120, "sensors of the generated data", least=2, most=5000)
    blocks: int = parameter(10, "equally large groups of correlated sensors", least=1)
    rows: int = parameter(
        20_000, "sampled windows", smoke=5000, quick=10_000, full=200_000, least=100
    )
    draws: int = parameter(
        20, "random assignments per number of workers", smoke=5, full=200, least=2, most=1000
    )
    seed: int = parameter(1, "of data and random assignments", least=0)

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse values that do not fit together."""
        n = self.dimensions
        given = [("blocks", self.blocks), *(("workers", m) for m in self.workers or [])]
        for name, number in given:
            if n % number:
                raise ValueError(
                    f"{name} must divide the {n} sensors, got {number}; choose from {divisors(n)}"
                )
        return self

    @property
    def model(self) -> GaussianModel:
        """The model of the windows' results, which also generates the sample."""
        return block_model(self.dimensions, self.blocks)

    @property
    def settings(self) -> tuple[list[int], list[float]]:
        """The values of m and of ε, both ascending."""
        usual = [m for m in WORKERS if self.dimensions % m == 0] or divisors(self.dimensions)[1:]
        return sorted({*(self.workers or usual)}), sorted({*(self.epsilons or EPSILONS)})


def grid(spark: SparkSession, parameters: NotebookParameters) -> pd.DataFrame:
    """Estimable workers and error rates in each setting (m, ε), by assignment (D1 figs 10–13).

    The columns are those of `ErrorRates`, and `bound`: an upper bound on the estimable workers of
    any assignment in this setting.
    """
    workers, epsilons = parameters.settings
    work = ErrorRates(
        parameters.model, epsilons, parameters.delta, parameters.rows, parameters.seed, {**ASSIGN}
    )
    points = []
    for method in ASSIGN:
        for number in range({RANDOM: parameters.draws, CHANCE: TIES}.get(method, 1)):
            points += [(method, m, number) for m in workers]
    frame = pd.concat(sweep(spark, work, points))
    bounds = pd.concat(sweep(spark, work.bounds, workers))
    frame = frame.merge(bounds, on=["workers", "epsilon"])
    return frame.sort_values(["method", "workers", "epsilon", "draw"], ignore_index=True)


@dataclass(frozen=True)
class ErrorRates:
    """Function that a Spark task runs at a point (method, m, draw).

    It returns a frame with one row per ε. Columns: method, workers, draw, epsilon; estimable: the
    number of estimable workers; rate: the error rate (9) by formula, the mean over the sensors of
    estimable workers; largest: the largest error rate of such a sensor; everyone: the mean over all
    sensors; sampled, error: the rate (9) in sampled windows and its standard error; z: (sampled −
    rate) / error. Columns are NaN without estimable workers, the last three except at draw 0, and z
    where the rate is below `RAREST`.

    An estimate's error is Gaussian with the variance v of eq. (2), so it exceeds ε with probability
    1 − erf(ε / √(2 v)). Errors in one window depend on each other, but windows are independent: the
    standard error is that of the mean over windows.
    """

    model: GaussianModel
    epsilons: list[float]
    delta: float
    rows: int
    seed: int
    assign: Mapping[str, Callable[..., Assignment]]

    @cached_property
    def scaled(self) -> np.ndarray:
        """Λ (x − μ) of the sampled windows, shape (n, rows)."""
        sample = draw(self.model, self.rows, self.seed)
        return self.model.precision @ (sample - self.model.mean).T

    def __call__(self, point: tuple[str, int, int]) -> pd.DataFrame:
        """Return the rows of one method, number of workers and draw."""
        method, m, number = point
        workers, rows = None, []
        for epsilon in self.epsilons:
            requirement = Requirement(epsilon, self.delta)
            rng = np.random.default_rng([self.seed, number])
            assignment = self.assign[method](self.model, m, requirement, rng=rng)
            if assignment.workers != workers:  # else variances and errors are those of the last ε
                workers = assignment.workers
                variance = residual_variance(self.model, workers)
                off = np.abs(residuals(self.model, workers, self.scaled)) if number == 0 else None
            chance, counted = 1 - requirement.reliability(variance), assignment.estimable_keys
            row = {"epsilon": epsilon, "estimable": assignment.estimable.sum()}
            row["everyone"] = chance.mean()
            if counted.any():
                row |= {"rate": chance[counted].mean(), "largest": chance[counted].max()}
            if counted.any() and off is not None:
                wrong = (off[counted] > epsilon).mean(axis=0)  # of each window
                row |= {"sampled": wrong.mean(), "error": wrong.std(ddof=1) / np.sqrt(self.rows)}
            rows.append(row)
        columns = ["epsilon", "estimable", "rate", "largest", "everyone", "sampled", "error"]
        frame = pd.DataFrame(rows, columns=columns)
        z = ((frame["sampled"] - frame["rate"]) / frame["error"]).where(frame["rate"] >= RAREST)
        return frame.assign(method=method, workers=m, draw=number, z=z)

    def bounds(self, m: int) -> pd.DataFrame:
        """Return an upper bound on the estimable workers of any assignment to m workers."""
        requirements = [Requirement(epsilon, self.delta) for epsilon in self.epsilons]
        bounds = [assign_best(self.model, m, each, uneven=True).bound for each in requirements]
        return pd.DataFrame({"workers": m, "epsilon": self.epsilons, "bound": bounds})


def beijing(delta: float, workers: int = 6) -> pd.DataFrame:
    """Greedy on hourly PM2.5 of twelve stations: a model of the first half, tried on the second.

    Columns: epsilon, µg/m³; estimable: workers; expected, measured: error rate (9) by the model,
    and in the second half. Hours that miss a station are left out.
    """
    table = pd.read_parquet(beijing_pm25()).select_dtypes("number")
    half = len(table) // 2
    model = GaussianModel.fit(table[:half].dropna())
    scaled = model.precision @ (table[half:].dropna().to_numpy() - model.mean).T
    deviation, rows = np.sqrt(np.median(np.diag(model.covariance))), []
    for epsilon in np.multiply(FRACTIONS, deviation):
        requirement = Requirement(float(epsilon), delta)
        assignment = assign_greedy(model, workers, requirement)
        counted = assignment.estimable_keys
        if counted.any():
            variance = residual_variance(model, assignment.workers)[counted]
            off = np.abs(residuals(model, assignment.workers, scaled)[counted])
            rates = (1 - requirement.reliability(variance)).mean(), (off > epsilon).mean()
            rows.append((epsilon, assignment.estimable.sum(), *rates))
    return pd.DataFrame(rows, columns=["epsilon", "estimable", "expected", "measured"])
