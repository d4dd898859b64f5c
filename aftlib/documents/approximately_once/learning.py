"""Error rates if the model is learned from few rows: what it promises, and what is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import ndtr

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import draw
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import assign_greedy, residual_variance
from aftlib.spark.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aftlib.documents.approximately_once.experiments import NotebookParameters

LEARNED_ROWS = (100, 200, 500, 1000, 2000, 5000, 10_000)
"""Numbers of rows that a model is learned from."""
REPEATS = 5
"""Data sets of each size."""
COUNTED = "sample covariance"
"""Name of the sample's covariance."""
SHRUNK = "shrunk"
"""Name of the covariance with correlations shrunk as `GaussianModel.fit` does."""


def true_rates(
    model: GaussianModel,
    learned: GaussianModel,
    workers: Sequence[Sequence[int]],
    epsilon: float,
) -> np.ndarray:
    """Probability that each sensor's estimate by a learned model is off by more than ε, shape (n,).

    `model` is the true one. An estimate's error is (Λ̂_AA)⁻¹ Λ̂_A (x − μ̂), which is Gaussian under
    the true model, with a mean where μ̂ is wrong.
    """
    rates = np.empty(model.size)
    for keys in map(list, workers):
        block = learned.precision[np.ix_(keys, keys)]
        weights = np.linalg.solve(block, learned.precision[keys])
        mean = weights @ (model.mean - learned.mean)
        deviation = np.sqrt(np.einsum("kn,nl,kl->k", weights, model.covariance, weights))
        rates[keys] = ndtr((mean - epsilon) / deviation) + ndtr((-mean - epsilon) / deviation)
    return rates


def learning_curve(
    spark: SparkSession, parameters: NotebookParameters, workers: int
) -> pd.DataFrame:
    """Greedy's error rate if Σ is learned from rows of the document's data.

    Columns: rows, repeat, epsilon; covariance: `COUNTED` (only with more rows than sensors) or
    `SHRUNK`; rate: the error rate (9) that the learned model predicts; true: the true one, by
    formula. Both are over the sensors of the workers that the learned model calls estimable, and
    NaN without such workers.
    """
    _, epsilons = parameters.settings
    curve = LearningCurve(parameters.model, epsilons, parameters.delta, parameters.seed, workers)
    points = [(rows, repeat) for rows in LEARNED_ROWS for repeat in range(REPEATS)]
    return pd.concat(sweep(spark, curve, points), ignore_index=True)


@dataclass(frozen=True)
class LearningCurve:
    """Function that a Spark task runs at a point (rows, repeat) of `learning_curve`."""

    model: GaussianModel
    epsilons: Sequence[float]
    delta: float
    seed: int
    workers: int

    def __call__(self, point: tuple[int, int]) -> pd.DataFrame:
        """Return one row per ε and kind of covariance."""
        rows, repeat = point
        sample = draw(self.model, rows, self.seed + 1 + repeat)
        fits = {SHRUNK: GaussianModel.fit(sample, shrinkage="auto")}
        if rows > self.model.size:
            fits[COUNTED] = GaussianModel.fit(sample)
        lines = [
            {"covariance": name, "epsilon": epsilon} | self._rate(learned, epsilon)
            for name, learned in fits.items()
            for epsilon in self.epsilons
        ]
        return pd.DataFrame(lines).assign(rows=rows, repeat=repeat)

    def _rate(self, learned: GaussianModel, epsilon: float) -> dict[str, float]:
        requirement = Requirement(epsilon, self.delta)
        assignment = assign_greedy(learned, self.workers, requirement, uneven=True)
        true = true_rates(self.model, learned, assignment.workers, epsilon)
        chance = 1 - requirement.reliability(residual_variance(learned, assignment.workers))
        counted = assignment.estimable_keys
        if not counted.any():
            return {"rate": np.nan, "true": np.nan}
        return {"rate": chance[counted].mean(), "true": true[counted].mean()}
