"""Time windows over a log of equal steps: which exist, which overlap, what they aggregate."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from aftlib.core.aggregation import AGGREGATES, Aggregate


@dataclass(frozen=True)
class Windows:
    """Tumbling (slide = width) or sliding windows, one aggregate per key and window.

    Window j covers the steps [j·slide, j·slide + width) and ends at j·slide + width.
    """

    width: int  # steps
    slide: int  # steps, 1 … width, so that no step falls between windows
    query: str = "mean"  # "sum", "min" or "max": the aggregate of a key's samples in a window

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1 step, got {self.width!r}")
        if not 1 <= self.slide <= self.width:
            raise ValueError(
                f"slide must lie in 1 … width = {self.width}, got {self.slide!r}; "
                "a larger slide would leave steps out of every window"
            )
        if self.query not in tuple(AGGREGATES):  # a list has no hash
            raise ValueError(f"query must be 'mean', 'sum', 'min' or 'max', got {self.query!r}")

    @property
    def pane(self) -> int:
        """Steps of the slices that all windows share, gcd(width, slide)."""
        return gcd(self.width, self.slide)

    def ending_in(self, after: int, until: int) -> range:
        """Windows j whose end lies in (after, until]."""
        return range(max(0, self._count_ended(after)), max(0, self._count_ended(until)))

    def aggregate(
        self, values: np.ndarray, first_step: int, windows: range
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean, sum or extreme of the samples present, and their number, both (len(windows), n).

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
        """Sum (or extreme) and number of the samples present in every whole slice: (slices, n).

        `values` (steps, n) are consecutive steps from a multiple of `pane`.
        """
        present, aggregation = np.isfinite(values), self.aggregation
        return (
            self._sliced(np.where(present, values, aggregation.initial), aggregation.merge),
            self._sliced(present.astype(np.int64), np.add),
        )

    def joined(
        self, sums: np.ndarray, samples: np.ndarray, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What `aggregate` gives, from slices; `starts` is the first slice of each window."""
        sums = self._windowed(sums, starts, self.aggregation.merge)
        samples = self._windowed(samples, starts, np.add)
        return self.aggregation.finish(sums, samples), samples

    @property
    def aggregation(self) -> Aggregate:
        """The aggregate that `query` names."""
        return AGGREGATES[self.query]

    def _sliced(self, values: np.ndarray, fold: np.ufunc) -> np.ndarray:
        slices = len(values) // self.pane
        panes = values[: slices * self.pane].reshape(slices, self.pane, values.shape[1])
        # summed along contiguous memory: NumPy's pairwise order then depends on `pane` alone
        return np.asarray(fold.reduce(np.ascontiguousarray(panes.transpose(0, 2, 1)), axis=-1))

    def _windowed(self, sums: np.ndarray, starts: np.ndarray, fold: np.ufunc) -> np.ndarray:
        total = sums[starts]
        for offset in range(1, self.width // self.pane):
            fold(total, sums[starts + offset], out=total)
        return total

    def _count_ended(self, step: int) -> int:
        """Number of windows whose end is at most `step` (negative before the first)."""
        return (step - self.width) // self.slide + 1
