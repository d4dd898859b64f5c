"""Time windows over a log of equal steps, and the aggregates of one sensor's samples in them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from aftlib.core.checks import require_choice, require_number

AGGREGATES = {"mean": "avg(value)", "sum": "sum(value)"}
"""Queries, and the expression by which Spark computes each of a window's samples `value`."""


def divisor(query: str, samples: np.ndarray | int) -> np.ndarray | int:
    """Return the divisor of a sum over `samples` samples: their number for a mean, else 1."""
    return samples if query == "mean" else 1


def result_per_mean(query: str, samples: np.ndarray | int) -> np.ndarray | float:
    """Return the result of `samples` samples whose mean is 1."""
    return samples / divisor(query, samples)


def results_of(query: str, sums: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Return windows' results from the sums and numbers of their samples; NaN without a sample.

    Every mean or sum of a window is computed here, or by Spark's own `AGGREGATES`.
    """
    return np.where(samples > 0, sums / divisor(query, np.maximum(samples, 1)), np.nan)


@dataclass(frozen=True)
class Windows:
    """Tumbling (slide = width) or sliding windows, one aggregate per key and window.

    Window j covers the steps [j·slide, j·slide + width) and ends at j·slide + width.
    """

    width: int  # steps
    slide: int  # steps, 1 … width, so that no step falls between windows
    query: str = "mean"  # one of AGGREGATES: of a key's samples in a window

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
        begin, end = ((step - self.width) // self.slide + 1 for step in (after, until))
        return range(max(0, begin), max(0, end))

    def aggregate(
        self, values: np.ndarray, first_step: int, windows: range
    ) -> tuple[np.ndarray, np.ndarray]:
        """Aggregates of the samples present, and their number, both (len(windows), n).

        `values` (steps, n) are consecutive steps from `first_step`, a multiple of `pane`, NaN where
        a sample is missing; they must cover the windows. The aggregate is NaN where a window has no
        sample. Slices are summed first and windows from slices, always in the same order, so the
        bits do not depend on how a log was cut into batches or keys into workers.
        """
        slices = len(values) // self.pane
        panes = values[: slices * self.pane].reshape(slices, self.pane, values.shape[1])
        # added along contiguous memory: NumPy's pairwise order then depends on `pane` alone
        panes = np.ascontiguousarray(panes.transpose(0, 2, 1))
        present = np.isfinite(panes)

        starts = (np.array(windows, dtype=np.intp) * self.slide - first_step) // self.pane
        sums = self._add_slices(np.where(present, panes, 0.0).sum(axis=-1), starts)
        samples = self._add_slices(present.sum(axis=-1), starts)
        return results_of(self.query, sums, samples), samples

    def _add_slices(self, slices: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return the sum of each window's slices; window i begins with slice `starts[i]`."""
        total = np.asarray(slices[starts])
        for offset in range(1, self.width // self.pane):
            total += slices[starts + offset]
        return total
