"""Estimable workers and error rates of assignments, by formula and counted on windows (D1 (9))."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np
import pandas as pd

from aftlib.core.checks import require_choice
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import (
    Assignment,
    assign_greedy,
    assign_packed,
    assign_random,
    assign_spread,
    residual_variance,
    residuals,
)
from aftlib.documents.approximately_once.best import assign_best

DOCUMENT = ("greedy", "h-best", "h-worst")
"""The methods that the document compares."""
RANDOM = "random"
"""The method that draws a random assignment."""
CHANCE = "greedy, ties by chance"
"""The method that is greedy, and places equal sensors in random order."""
DOCUMENT_ROWS = 1000
"""Rows of the document's data set."""
RAREST = 0.001
"""Error rate below which a sample has too few errors for a normal approximation."""


def without_rng(assign: Callable[..., Assignment]) -> Callable[..., Assignment]:
    """Return an assignment that is called like a drawn one, and draws nothing."""

    def assign_uneven(
        model: GaussianModel, workers: int, requirement: Requirement, rng: np.random.Generator
    ) -> Assignment:
        return assign(model, workers, requirement, uneven=True)

    return assign_uneven


# any number of workers: where m does not divide n, their sizes differ by one
ASSIGN: Mapping[str, Callable[..., Assignment]] = MappingProxyType(
    {
        "greedy": without_rng(assign_greedy),
        "h-best": without_rng(assign_spread),
        "h-worst": without_rng(assign_packed),
        RANDOM: partial(assign_random, uneven=True),
        CHANCE: partial(assign_greedy, uneven=True),
    }
)
"""The assignments by method, called with model, workers m, requirement and ``rng=``."""


@dataclass(frozen=True)
class ErrorRates:
    """Error rates of assignments: those that a model predicts beside those that windows show.

    The estimates and the prediction come from `model`, and errors are counted on `windows`. These
    may be a sample of the model, or the later windows of real sensors, whose earlier windows the
    model was learned from. An instance is also a function of one point (method, m, draw), which
    Spark's tasks run.

    Parameters
    ----------
    model : GaussianModel
        Model of the n sensors' window results.
    epsilons : sequence of float
        Tolerances ε, ascending, in the sensors' unit.
    delta : float
        Permitted failure probability δ.
    windows : ndarray, shape (windows, n), or a function that returns one
        Window results without gaps. A function is called in each Spark task, so that a large sample
        is drawn there instead of being sent.
    seed : int
        Seed of the methods that are drawn.
    shared : int
        Number of successive windows to which one sample belongs: 1 for disjoint windows.
    counted_draws : int
        Number of draws of a method for which errors are counted.
    assign : mapping, optional
        Assignments by method, by default `ASSIGN`.

    Notes
    -----
    An estimate's error is Gaussian with the variance v of D1 eq. (2), so it exceeds ε with
    probability 1 − erf(ε / √(2 v)). Errors in one window depend on each other. Windows that share
    no sample are independent; the standard error is that of the mean over windows, with the
    autocovariances of windows that do share samples.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import ErrorRates, GaussianModel
    >>> model = GaussianModel(np.zeros(4), np.kron(np.eye(2), [[1, 0.9], [0.9, 1]]))
    >>> windows = np.random.default_rng(1).multivariate_normal(model.mean, model.covariance, 1000)
    >>> rates = ErrorRates(model, [0.9, 1.2], delta=0.05, windows=windows)
    >>> table = rates.table(["greedy"], workers=[2])
    >>> table[["epsilon", "estimable", "rate", "measured"]].round(3)
       epsilon  estimable   rate  measured
    0      0.9          2  0.039     0.040
    1      1.2          2  0.006     0.007
    """

    model: GaussianModel
    epsilons: Sequence[float]
    delta: float
    windows: np.ndarray | Callable[[], np.ndarray]
    seed: int = 1
    shared: int = 1
    counted_draws: int = 1
    assign: Mapping[str, Callable[..., Assignment]] = field(default_factory=lambda: dict(ASSIGN))

    @cached_property
    def scaled(self) -> np.ndarray:
        """Λ (x − μ) of the windows, shape (n, windows)."""
        windows = self.windows() if callable(self.windows) else self.windows
        if np.ndim(windows) != 2 or np.shape(windows)[1] != self.model.size:
            raise ValueError(
                f"windows must have shape (windows, {self.model.size}), as the model has "
                f"{self.model.size} sensors, got {np.shape(windows)}: give one row per window"
            )
        return np.asarray(self.model.precision @ (windows - self.model.mean).T)

    def table(self, methods: Iterable[str], workers: Iterable[int], draws: int = 5) -> pd.DataFrame:
        """Return one row per method, number of workers m, draw and ε.

        Parameters
        ----------
        methods : iterable of str
            Names in `assign`, such as "greedy", "h-best", "h-worst" and "random".
        workers : iterable of int
            Numbers m of workers, each in 1 … n.
        draws : int
            Draws of "random" and "greedy, ties by chance".

        Returns
        -------
        DataFrame
            Columns: method, workers, draw, epsilon; estimable: the number of estimable workers;
            rate: the error rate (9) by formula, the mean over the sensors of estimable workers;
            largest: the largest error rate of such a sensor; everyone: the mean over all sensors;
            measured, error: the rate (9) in the windows and its standard error; first: the rate in
            the first `DOCUMENT_ROWS` of them; z: (measured − rate) / error. Columns are NaN without
            estimable workers, the last four except at the first `counted_draws` draws, and z where
            the rate is below `RAREST`.

        Raises
        ------
        ValueError
            For an unknown method, a number of workers outside 1 … n, or windows of another number
            of sensors.
        """
        frames = []
        for method in methods:
            require_choice("each of methods", method, self.assign)
            often = draws if method in (RANDOM, CHANCE) else 1
            frames += [self((method, m, number)) for m in workers for number in range(often)]
        return pd.concat(frames, ignore_index=True)

    def __call__(self, point: tuple[str, int, int]) -> pd.DataFrame:
        """Return the rows of one method, number of workers and draw."""
        method, m, number = point
        assign = self.assign[method]
        workers = None
        off = None
        rows = []
        for epsilon in self.epsilons:
            requirement = Requirement(epsilon, self.delta)
            rng = np.random.default_rng([self.seed, number])
            assignment = assign(self.model, m, requirement, rng=rng)
            if assignment.workers != workers:  # else variances and errors are those of the last ε
                workers = assignment.workers
                variance = residual_variance(self.model, workers)
                if number < self.counted_draws:
                    off = np.abs(residuals(self.model, workers, self.scaled))
            chance = 1 - requirement.reliability(variance)
            counted = assignment.estimable_keys
            row = {"epsilon": epsilon, "estimable": assignment.estimable.sum()}
            row["everyone"] = chance.mean()
            if counted.any():
                row |= {"rate": chance[counted].mean(), "largest": chance[counted].max()}
            if counted.any() and off is not None:
                row |= self._count(off[counted] > epsilon)
            rows.append(row)
        columns = ["epsilon", "estimable", "rate", "largest", "everyone"]
        frame = pd.DataFrame(rows, columns=[*columns, "measured", "error", "first"])
        z = ((frame["measured"] - frame["rate"]) / frame["error"]).where(frame["rate"] >= RAREST)
        return frame.assign(method=method, workers=m, draw=number, z=z)

    def _count(self, wrong: np.ndarray) -> dict[str, float]:
        """Rate of wrong estimates (sensors, windows), its standard error, and the first rate."""
        share = wrong.mean(axis=0)  # of each window
        error = standard_error(share, self.shared)
        return {"measured": share.mean(), "error": error, "first": share[:DOCUMENT_ROWS].mean()}

    def bounds(self, m: int) -> pd.DataFrame:
        """Return an upper bound on the estimable workers of any assignment to m workers."""
        requirements = [Requirement(epsilon, self.delta) for epsilon in self.epsilons]
        bounds = [assign_best(self.model, m, each, uneven=True).bound for each in requirements]
        return pd.DataFrame({"workers": m, "epsilon": self.epsilons, "bound": bounds})


def standard_error(values: np.ndarray, shared: int = 1) -> float:
    """Standard error of the mean of a series in which values `shared` apart are independent.

    The variance of the mean is (γ₀ + 2 Σ γ_k) / N over the lags k < `shared`; it counts as at least
    γ₀ / N.
    """
    centred = values - values.mean()
    variance = centred @ centred / (len(values) - 1)
    lagged = sum(
        float(centred[lag:] @ centred[:-lag]) / len(values)
        for lag in range(1, min(shared, len(values)))
    )
    return float(np.sqrt((variance + 2 * max(lagged, 0.0)) / len(values)))
