"""Sums by slice and key: what tasks make of their tuples, and how these are merged (D3)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import AGGREGATES, Aggregate, Partials
from aftlib.shared_state.stream import loops

SUMS = AGGREGATES["mean"]
"""What is kept of a slice's key: the sum of its values and their number."""

_FIRST_ROWS = 2**12
_KEPT = {
    "sum": (loops.ADD, [loops.VALUE]),
    "count": (loops.MAX, [loops.COUNT]),  # of the values nothing is asked: they must not overflow
    "min": (loops.MIN, [loops.VALUE]),
    "max": (loops.MAX, [loops.VALUE]),
    "mean": (loops.ADD, [loops.VALUE, loops.COUNT]),
}
"""How an aggregate's values merge, and which columns of the table are its components."""


class SliceSums:
    """Aggregates by (slice, key): a hash table that grows with the number of keys, not of tuples.

    A slice is `pane` ticks long. Each tuple costs one look-up; the table is at most half full,
    32 bytes a row. A sum that leaves the 64 bits is an OverflowError.
    """

    def __init__(self, pane: int, aggregate: Aggregate = SUMS) -> None:
        self.pane = pane
        self._how, self._columns = _KEPT[aggregate.name]
        self._table = np.zeros((_FIRST_ROWS, 4), np.int64)
        self._used = 0

    def add(self, block: np.ndarray) -> None:
        """Add tuples: slice number, key and value, shape (3, n)."""
        self._enter(*block, np.empty(0, np.int64))

    def merge(self, other: Partials) -> None:
        """Merge sums and counts by slice start and key; windows must be starts of slices."""
        sums, counts = np.ascontiguousarray(other.values.T)
        self._enter(other.windows // self.pane, other.keys, sums, counts)

    def _enter(self, *columns: np.ndarray) -> None:
        """Enter rows, and enlarge the table whenever it has become too full to go on."""
        row, status = 0, loops.FULL
        while status == loops.FULL:
            status, row, self._used = loops.merge(*columns, self._how, row, self._table, self._used)
            if status == loops.FULL:
                larger = np.zeros((2 * len(self._table), 4), np.int64)
                loops.moved(self._table, larger)
                self._table = larger
        if status == loops.OVERFLOW:
            parts, keys, *_ = columns
            raise OverflowError(
                f"sum of key {keys[row]} in the slice from {int(parts[row]) * self.pane} leaves "
                "the 64 bits: scale the values down, or use smaller windows"
            )

    def take(self) -> Partials:
        """What there is so far by slice start and key, sorted; nothing is left afterwards."""
        rows = self._table[self._table[:, loops.COUNT] > 0]
        self._table, self._used = np.zeros_like(self._table), 0
        rows = rows[np.lexsort((rows[:, loops.KEY], rows[:, loops.SLICE]))]
        return Partials(
            rows[:, loops.SLICE] * self.pane, rows[:, loops.KEY], rows[:, self._columns]
        )


def merged(partials: Iterable[Partials]) -> Partials:
    """Tasks' sums and counts merged, each slice and key once, sorted; the late local merge."""
    sums = SliceSums(1)
    for each in partials:
        sums.merge(each)
    return sums.take()


def window_sums(slices: Partials, windows: Windows) -> Partials:
    """Sums of windows [start, start + width) from those of their slices (D3 eqs. (1), (2)).

    Windows begin at 0, slide, 2·slide, …; those that hold a tuple are given.
    """
    if windows.pane == windows.width:
        return slices
    parts = []
    for back in range(0, windows.width, windows.pane):
        starts = slices.windows - back
        inside = (starts >= 0) & (starts % windows.slide == 0)
        parts.append(Partials(starts[inside], slices.keys[inside], slices.values[inside]))
    return merged(parts)
