"""Sums by slice and key: what tasks make of their tuples, and how these are merged (D3)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aftlib.core.windows import Windows
from aftlib.shared_state import loops
from aftlib.shared_state.aggregates import AGGREGATES, Aggregate, Partials

SUMS = AGGREGATES["mean"]
"""What is kept of a slice's key: the sum of its values and their number."""

_FIRST_ROWS = 2**12
_MOST_CELLS = 2**20
_FIRST_LOOK = 1_000
_CELLS = 4
"""Cells a tuple, or a key in use, that are worth their while: four cost less than a look-up."""
_NO_CELLS = 0, 0, np.empty((0, 2), np.int64)
_NO_COUNTS = np.empty(0, np.int64)
_KEPT = {
    "sum": (loops.ADD, [loops.VALUE]),
    "count": (loops.MAX, [loops.COUNT]),  # of the values nothing is asked: they must not overflow
    "min": (loops.MIN, [loops.VALUE]),
    "max": (loops.MAX, [loops.VALUE]),
    "mean": (loops.ADD, [loops.VALUE, loops.COUNT]),
}
"""How an aggregate's values merge, and which columns of the table are its components."""


class SliceSums:
    """Aggregates by (slice, key): memory grows with the number of keys, not of tuples.

    A slice is `pane` ticks long. Each tuple costs one look-up in a hash table, at most half full,
    32 bytes a row. A slice that goes on, with keys in a range that is small against its tuples, has
    an array with a cell for each key of the range instead, 16 bytes a cell. A sum that leaves the
    64 bits is an OverflowError.
    """

    def __init__(self, pane: int, aggregate: Aggregate = SUMS) -> None:
        self.pane = pane
        self._how, self._columns = _KEPT[aggregate.name]
        self._table = np.zeros((_FIRST_ROWS, 4), np.int64)
        self._used = 0
        self._dense = _NO_CELLS  # slice, first key, cells (values and counts)
        self._run = -1, 0, 0  # slice of the last tuples, their number, and that of the next look

    def add(self, block: np.ndarray) -> None:
        """Add tuples: slice number, key and value, shape (3, n)."""
        if block.shape[1]:
            self._spread_out(*block[:2])
        self._enter(*block, _NO_COUNTS)

    def merge(self, other: Partials) -> None:
        """Merge sums and counts by slice start and key; windows must be starts of slices."""
        sums, counts = np.ascontiguousarray(other.values.T)
        self._enter(other.windows // self.pane, other.keys, sums, counts)

    def _enter(self, *columns: np.ndarray) -> None:
        """Enter rows, and enlarge the table whenever it has become too full to go on."""
        row, status = 0, loops.FULL
        while status == loops.FULL:
            status, row, self._used = loops.merge(
                *columns, self._how, row, self._table, self._used, self._dense
            )
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

    def _spread_out(self, parts: np.ndarray, keys: np.ndarray) -> None:
        """Give a slice that goes on its own cells, once its tuples outweigh what that costs.

        That is at most `_CELLS` cells a tuple and a pass over the table when it begins, and one
        look-up a cell in use when another slice gets them.
        """
        part, (before, number, look) = int(parts[-1]), self._run
        if part != parts[0] or (part == self._dense[0] and len(self._dense[2])):
            return
        number, look = (number, look) if part == before else (0, _FIRST_LOOK)
        number += len(parts)
        if number >= look:
            low, high = int(keys.min()), int(keys.max())
            size = 1 << (high - low).bit_length()
            low = low // size * size if high < low // size * size + size else low
            if size <= min(number * _CELLS, _MOST_CELLS):
                held = self._cells()
                self._dense = part, low, np.zeros((size, 2), np.int64)
                self._enter(*np.ascontiguousarray(held.T))
                loops.spread(self._table, self._dense)
            look = 2 * number
        self._run = part, number, look

    def _cells(self) -> np.ndarray:
        """Slice, key, value and count of the cells in use, by key."""
        part, low, cells = self._dense
        used = np.flatnonzero(cells[:, 1])
        return np.column_stack([np.full(len(used), part), used + low, cells[used]])

    def take(self) -> Partials:
        """What there is so far by slice start and key, sorted; nothing is left afterwards."""
        rows = self._table[self._table[:, loops.COUNT] > 0]
        rows = np.concatenate([rows, self._cells()])
        self._table, self._used = np.zeros_like(self._table), 0
        part, low, cells = self._dense
        worth = np.count_nonzero(cells[:, 1]) * _CELLS >= len(cells)  # the slice may well go on
        self._dense = (part, low, np.zeros_like(cells)) if worth else _NO_CELLS
        found = Partials(
            rows[:, loops.SLICE] * self.pane, rows[:, loops.KEY], rows[:, self._columns]
        )
        return found if found.in_order else found[np.lexsort((found.keys, found.windows))]


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
