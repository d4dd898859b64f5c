"""Time windows over a log of equal steps, and the aggregates of one sensor's samples in them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, ClassVar

import numpy as np

from aftlib.core.checks import require_choice, require_number


class Aggregate:
    """A linear aggregate function, Σ x / divisor: Gaussian samples have a Gaussian result.

    Samples are added to a part, parts are merged in any order, and the merged part is finished with
    the number of samples in it. A new aggregate is one class, entered in `AGGREGATES`.
    """

    initial: ClassVar[float]
    """The part without samples."""
    merge: ClassVar[np.ufunc]
    """Merges two parts; `merge.reduce` makes a part of samples."""
    spark: ClassVar[str]
    """Its name in ``pyspark.sql.functions``."""

    def add(self, values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the part and the number of the finite samples along an axis."""
        present = np.isfinite(values)
        finite = np.where(present, values, self.initial)
        part = self.merge.reduce(finite, axis=axis, initial=self.initial)
        return part, present.sum(axis=axis)

    def finish(self, parts: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Return the results of parts with `samples` samples each, NaN where there are none."""
        return np.where(samples > 0, parts, np.nan)

    def divisor(self, steps: Any) -> Any:
        """Return the number by which a sum over `steps` steps is divided."""
        return steps**0

    def of_mean(self, mean: Any, steps: Any) -> Any:
        """Return the result of a linear aggregate over `steps` steps with the mean `mean`."""
        return mean * steps / self.divisor(steps)

    def extrapolate(self, results: np.ndarray, samples: np.ndarray, steps: int) -> np.ndarray:
        """Estimate the results of whole windows from `results` over `samples` of their steps."""
        return results


class Sum(Aggregate):
    """Σ x."""

    initial, merge, spark = 0.0, np.add, "sum"

    def extrapolate(self, results: np.ndarray, samples: np.ndarray, steps: int) -> np.ndarray:
        """Scale the sums up to all steps."""
        return results * steps / np.maximum(samples, 1)


class Mean(Aggregate):
    """Σ x / L."""

    initial, merge, spark = 0.0, np.add, "avg"

    def finish(self, parts: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Return the means of the samples present."""
        return np.divide(parts, samples, out=np.full(parts.shape, np.nan), where=samples > 0)

    def divisor(self, steps: Any) -> Any:
        """Return the number of steps."""
        return steps

    def of_mean(self, mean: Any, steps: Any) -> Any:
        """Return the mean itself."""
        return mean


AGGREGATES: dict[str, Aggregate] = {
    "mean": Mean(),
    "sum": Sum(),
}
"""Aggregates by the name of the query."""


@dataclass(frozen=True)
class Windows:
    """Tumbling (slide = width) or sliding windows, one aggregate per key and window.

    Window j covers the steps [j·slide, j·slide + width) and ends at j·slide + width.
    """

    width: int  # steps
    slide: int  # steps, 1 … width, so that no step falls between windows
    query: str = "mean"  # or "sum": the aggregate of a key's samples in a window

    def __post_init__(self) -> None:
        require_number("width", self.width, least=1)
        require_number("slide", self.slide, least=1, most=self.width)
        require_choice("query", self.query, AGGREGATES)

    @property
    def pane(self) -> int:
        """Steps per slice, gcd(width, slide), so that every window consists of whole slices."""
        return gcd(self.width, self.slide)

    def ending_in(self, after: int, until: int) -> range:
        """Windows j whose end lies in (after, until]."""
        return range(max(0, self._count_until(after)), max(0, self._count_until(until)))

    def aggregate(
        self, values: np.ndarray, first_step: int, windows: range
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean or sum of the samples present, and their number, both (len(windows), n).

        `values` (steps, n) are consecutive steps from `first_step`, a multiple of `pane`, NaN where
        a sample is missing; they must cover the windows. The aggregate is NaN where a window has no
        sample. Slices are summed first and windows from slices, always in the same order, so the
        bits do not depend on how a log was cut into batches or keys into workers.
        """
        if first_step % self.pane:
            raise ValueError(
                f"first_step must be a multiple of {self.pane} steps, got {first_step!r}"
            )
        last_step = first_step + len(values) - 1
        if windows:
            begin, end = windows[0] * self.slide, windows[-1] * self.slide + self.width - 1
            if begin < first_step or end > last_step:
                raise ValueError(
                    f"values must cover the steps {begin} … {end} of windows {windows}, "
                    f"got {first_step} … {last_step}"
                )

        starts = (np.array(windows, dtype=np.intp) * self.slide - first_step) // self.pane
        return self.joined(*self.slices(values), starts)

    def slices(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sum and number of the samples present in every whole slice: (slices, n).

        `values` (steps, n) are consecutive steps from a multiple of `pane`.
        """
        slices = len(values) // self.pane
        panes = values[: slices * self.pane].reshape(slices, self.pane, values.shape[1])
        # added along contiguous memory: NumPy's pairwise order then depends on `pane` alone
        return self.aggregation.add(np.ascontiguousarray(panes.transpose(0, 2, 1)), axis=-1)

    def joined(
        self, sums: np.ndarray, samples: np.ndarray, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the result of `aggregate` from slices; window i begins with slice `starts[i]`."""
        sums = self._fold_slices(sums, starts, self.aggregation.merge)
        samples = self._fold_slices(samples, starts, np.add)
        return self.aggregation.finish(sums, samples), samples

    @property
    def aggregation(self) -> Aggregate:
        """The aggregate that `query` names."""
        return AGGREGATES[self.query]

    def _fold_slices(self, sums: np.ndarray, starts: np.ndarray, fold: np.ufunc) -> np.ndarray:
        total = sums[starts]
        for offset in range(1, self.width // self.pane):
            fold(total, sums[starts + offset], out=total)
        return total

    def _count_until(self, step: int) -> int:
        """Number of windows whose end is at most `step` (negative before the first)."""
        return (step - self.width) // self.slide + 1
