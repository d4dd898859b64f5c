"""Aggregates of one sensor's samples over a window: a class each, used wherever windows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:  # workers aggregate and need no model, whose imports take long
    from aftlib.core.gaussian import GaussianModel


class Aggregate(ABC):
    """How samples become a window's result, and the distribution of that result.

    Samples are added to a part, parts are merged in any order, and the merged part is finished with
    the number of samples in it. A new aggregate is one class, entered in `AGGREGATES`.
    """

    initial: ClassVar[float]
    """The part of no samples."""
    merge: ClassVar[np.ufunc]
    """Joins two parts; `merge.reduce` joins the samples of one."""
    spark: ClassVar[str]
    """Its name in ``pyspark.sql.functions``."""
    gaussian: ClassVar[bool] = True
    """Whether it is linear, so that Gaussian samples have a Gaussian result."""

    def add(self, values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the part and the number of the finite samples along an axis."""
        present = np.isfinite(values)
        finite = np.where(present, values, self.initial)
        part = self.merge.reduce(finite, axis=axis, initial=self.initial)
        return part, present.sum(axis=axis)

    def finish(self, parts: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Return the results of parts with so many samples each, NaN where there are none."""
        return np.where(samples > 0, parts, np.nan)

    def divisor(self, steps: Any) -> Any:
        """Return the number by which a sum over so many steps is divided."""
        return steps**0

    def of_mean(self, mean: Any, steps: Any) -> Any:
        """Return the linear result of so many steps whose mean is known."""
        return mean * steps / self.divisor(steps)

    def extrapolate(self, results: np.ndarray, samples: np.ndarray, steps: int) -> np.ndarray:
        """Estimate the results of all `steps` from those of so many samples of each."""
        return results

    @abstractmethod
    def model(
        self, step: GaussianModel, steps: int, rng: np.random.Generator | None = None
    ) -> GaussianModel:
        """Return the model of the results over `steps` independent steps, each with model `step`.

        `rng` draws windows where there is no closed form.
        """


class Sum(Aggregate):
    """Σ x."""

    initial, merge, spark = 0.0, np.add, "sum"

    def extrapolate(self, results: np.ndarray, samples: np.ndarray, steps: int) -> np.ndarray:
        """Scale the sums up to all steps."""
        return results * steps / np.maximum(samples, 1)

    def model(
        self, step: GaussianModel, steps: int, rng: np.random.Generator | None = None
    ) -> GaussianModel:
        """Return N(Lμ, LΣ)."""
        return step.aggregate(steps, "sum")


class Mean(Aggregate):
    """Σ x / L."""

    initial, merge, spark = 0.0, np.add, "avg"

    def finish(self, parts: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Return the means of the samples that are there."""
        return np.divide(parts, samples, out=np.full(parts.shape, np.nan), where=samples > 0)

    def divisor(self, steps: Any) -> Any:
        """Return the number of steps."""
        return steps

    def of_mean(self, mean: Any, steps: Any) -> Any:
        """Return the mean itself."""
        return mean

    def model(
        self, step: GaussianModel, steps: int, rng: np.random.Generator | None = None
    ) -> GaussianModel:
        """Return N(μ, Σ/L)."""
        return step.aggregate(steps, "mean")


class Extreme(Aggregate):
    """Largest or smallest sample; its estimates are in `aftlib.core.extremes`."""

    gaussian = False

    def model(
        self, step: GaussianModel, steps: int, rng: np.random.Generator | None = None
    ) -> GaussianModel:
        """Return the moments of drawn windows, and further ones to count errors on."""
        from aftlib.core.extremes import DRAWS, WindowExtremes

        if rng is None:
            raise ValueError("rng must draw the windows of extremes, got None; give a Generator")
        return WindowExtremes(step, steps, self.spark, rng, max(DRAWS, 2 * step.size + 2))


class Minimum(Extreme):
    """min x."""

    initial, merge, spark = np.inf, np.minimum, "min"


class Maximum(Extreme):
    """max x."""

    initial, merge, spark = -np.inf, np.maximum, "max"


AGGREGATES: dict[str, Aggregate] = {
    "mean": Mean(),
    "sum": Sum(),
    "min": Minimum(),
    "max": Maximum(),
}
"""By the name that a query has."""
