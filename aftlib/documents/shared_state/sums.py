"""Partial aggregates by slice and key: how tasks reduce tuples, and how partial results merge.

Aggregates are associative and commutative functions of whole numbers (D3 eqs. (4)-(6)), exact or an
OverflowError. In the compiled loops a `part` is the number of a slice. Importing this module
imports numba.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from aftlib.core.compiling import LONGS, jit
from aftlib.core.intrinsics import prefetch
from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import PartitionReader

#: Columns of a table of sums; a row is 32 bytes, half a cache line.
SLICE, KEY, VALUE, COUNT = range(4)
#: How values merge.
ADD, MIN, MAX = range(3)
#: Why `merge_rows` stopped.
DONE, FULL, OVERFLOW = range(3)

#: A column as its least value and the distances from it.
PackedColumn = tuple[int, np.ndarray]

_MIX_KEY = np.uint64(0x9E3779B97F4A7C15)
_MIX_SLICE = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_AHEAD = 24  # how many tuples ahead cells are prefetched
_DENSE = "Tuple((int64, int64, int64[:, ::1]))"


@dataclass(frozen=True)
class Aggregate:
    """An aggregate: how the values of a key merge, and its result.

    Every row has a value and a count. "count" merges its values by MAX, so that none overflows.
    """

    name: str
    how: int

    def result(self, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the results of merged values and counts, shape (n,)."""
        if self.name == "mean":
            return np.asarray(values / counts)
        return counts if self.name == "count" else values


AGGREGATES = {
    name: Aggregate(name, how)
    for name, how in {"sum": ADD, "count": MAX, "min": MIN, "max": MAX, "mean": ADD}.items()
}


@dataclass(frozen=True)
class Partials:
    """Partial aggregates by window or slice start and key (D3 table 1); int64, shape (n,) each."""

    windows: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> Partials:
        """Return the partials with the columns of `rows`, shape (n, 4)."""
        return cls(*np.ascontiguousarray(rows.T))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: np.ndarray | slice) -> Partials:
        return Partials(*(getattr(self, each.name)[rows] for each in fields(self)))

    @property
    def rows(self) -> np.ndarray:
        """The columns side by side, shape (n, 4)."""
        return np.column_stack([self.windows, self.keys, self.values, self.counts])

    def pack(self) -> list[PackedColumn]:
        """Return the columns in few bytes, often 5 to 8 instead of 32 per row: less to send."""
        return [pack_column(getattr(self, each.name)) for each in fields(self)]

    @classmethod
    def unpack(cls, columns: Iterable[PackedColumn]) -> Partials:
        """Return the partials that `pack` has packed."""
        return cls(*(distance.astype(np.int64) + least for least, distance in columns))

    def sorted(self) -> Partials:
        """Return the rows in the order of windows and keys."""
        before = self[:-1]
        after = self[1:]  # compared, because a difference may overflow
        same_window = after.windows == before.windows
        ascends = (after.windows > before.windows) | (same_window & (after.keys > before.keys))
        return self if ascends.all() else self[np.lexsort((self.keys, self.windows))]


def pack_column(column: np.ndarray) -> PackedColumn:
    """Return the least value, and the distances from it in the smallest unsigned type.

    A distance of 2**63 or more wraps around here, and back when it is unpacked.
    """
    if len(column) == 0:
        return 0, column
    least = int(column.min())
    widest = int(column.max()) - least
    return least, (column - least).astype(np.min_scalar_type(widest))


@jit()
def slot_of(table: Any, mask: int, part: int, key: int) -> Any:
    """Row that holds a key of a slice, or the free row where this key belongs."""
    mixed = np.uint64(key) * _MIX_KEY + np.uint64(part) * _MIX_SLICE
    slot = np.int64(mixed >> _HALF) & mask
    while table[slot, COUNT] != 0 and (table[slot, KEY] != key or table[slot, SLICE] != part):
        slot = (slot + 1) & mask
    return slot


@jit("void(int64[:, ::1], int64[:, ::1])")
def move_rows(table: Any, larger: Any) -> None:
    """Enter every row of a table into a larger empty one."""
    mask = len(larger) - 1
    for row in range(len(table)):
        if table[row, COUNT] > 0:
            slot = slot_of(larger, mask, table[row, SLICE], table[row, KEY])
            larger[slot] = table[row]


@jit()
def merge_values(one: Any, other: Any, how: int) -> tuple[Any, bool]:
    """Return the merged value, and whether the sum does not fit into 64 bits."""
    if how == ADD:
        total = one + other
        return total, (one ^ total) & (other ^ total) < 0
    return (other if (other < one) == (how == MIN) else one), False


@jit()
def add_to_cells(parts: Any, keys: Any, values: Any, row: int, dense: Any) -> int:
    """Add tuples from `row` on to the cells of their keys; return the first row that does not fit.

    Its key has no cell, or its sum leaves the 64 bits: `merge_rows` handles it. Such rows are rare,
    and without them this loop is short.
    """
    here, low, cells = dense
    size = np.uint64(len(cells))
    first = np.uint64(low)
    while row < len(keys):
        if row + _AHEAD < len(keys):
            prefetch(cells, np.uint64(keys[row + _AHEAD]) - first)
        place = np.uint64(keys[row]) - first  # a key before the first wraps to a large one
        if parts[row] != here or place >= size:
            break
        before = cells[place, 0]
        value = values[row]
        total = before + value
        if (before ^ total) & (value ^ total) < 0:
            break
        cells[place, 0] = total
        cells[place, 1] += 1
        row += 1
    return row


@jit(f"UniTuple(int64, 3)(UniTuple({LONGS}, 4), int64, int64, int64[:, ::1], int64, {_DENSE})")
def merge_rows(
    columns: Any, row: int, how: int, table: Any, used: int, dense: Any
) -> tuple[int, int, int]:
    """Merge values by (slice, key) from `row` on, and add up their counts.

    `columns` are slices, keys, values and counts. Without counts each value is that of one tuple
    and counts 1. `dense` is a slice, its first key, and the cells (value, count) of its keys from
    that one on, shape (keys, 2). Keys without a cell go into the table, which has `used` rows in
    use; at most half of it is used, so that a free row is always near.

    Return why it stopped, the row to continue with, and the number of used rows of the table.
    """
    parts, keys, values, counts = columns
    here, low, cells = dense
    mask = len(table) - 1
    capacity = len(table) // 2
    status = DONE
    single = len(counts) == 0
    tuples = single and how == ADD and len(cells) > 0
    row = add_to_cells(parts, keys, values, row, dense) if tuples else row
    while row < len(keys):
        part = parts[row]
        key = keys[row]
        value = values[row]
        count = 1 if single else counts[row]
        place = np.uint64(key) - np.uint64(low)  # a key before the first wraps to a large one
        if part == here and place < np.uint64(len(cells)):
            cell = np.int64(place)
            if cells[cell, 1] > 0:
                value, wrapped = merge_values(cells[cell, 0], value, how)
                if wrapped:
                    status = OVERFLOW
                    break
            cells[cell, 0] = value
            cells[cell, 1] += count
            if tuples:
                row = add_to_cells(parts, keys, values, row + 1, dense)
                continue
        else:
            slot = slot_of(table, mask, part, key)
            before = table[slot, COUNT]
            if before > 0:
                value, wrapped = merge_values(table[slot, VALUE], value, how)
                if wrapped:
                    status = OVERFLOW
                    break
            elif used == capacity:
                status = FULL
                break
            else:
                table[slot, SLICE] = part
                table[slot, KEY] = key
                used += 1
            table[slot, VALUE] = value
            table[slot, COUNT] = before + count
        row += 1
    return status, row, used


_FIRST_ROWS = 2**12
_MOST_CELLS = 2**20
#: Tuples of a slice after which it may get cells.
_FIRST_LOOK = 1_000
#: Most cells per tuple, or per used key, at which cells still cost less than look-ups.
_CELLS = 4
#: Slice, first key and cells (values and counts) of a table without cells.
_NO_CELLS = (0, 0, np.empty((0, 2), np.int64))
_NO_COUNTS = np.empty(0, np.int64)


def range_of_cells(keys: np.ndarray) -> tuple[int, int]:
    """Return the first key and the number of cells, a power of two, that have all given keys.

    The range begins at a multiple of its size, if all keys are in that range, too.
    """
    low = int(keys.min())
    high = int(keys.max())
    size = 1 << (high - low).bit_length()
    aligned = low // size * size
    return (aligned if high < aligned + size else low), size


class SliceSums:
    """Partial aggregates by (slice, key): memory grows with the number of keys, not of tuples.

    A slice is `pane` ticks long. Each tuple costs one look-up in a hash table, which is at most
    half full and has 32 bytes per row. If a slice's keys lie in a range that is small compared with
    its number of tuples, it has an array instead, with one cell of 16 bytes per key of the range.
    OverflowError for a sum that does not fit into 64 bits.
    """

    def __init__(self, pane: int, aggregate: Aggregate = AGGREGATES["sum"]) -> None:
        self.pane = pane
        self._how = aggregate.how
        self._table = np.zeros((_FIRST_ROWS, 4), np.int64)
        self._used = 0  # rows of the table
        self._dense = _NO_CELLS
        self._slice = -1  # of the last tuples
        self._tuples = 0  # of this slice so far
        self._look = 0  # number of its tuples at which it may get cells

    def add(self, block: np.ndarray) -> None:
        """Add tuples: slice number, key and value, shape (3, n), each row contiguous."""
        parts, keys, values = block
        if len(parts) and parts[0] == parts[-1]:
            self._choose_cells(int(parts[0]), keys)
        self._enter(parts, keys, values, _NO_COUNTS)

    def merge(self, other: Partials) -> None:
        """Merge partials by slice and key; `other.windows` must hold starts of slices."""
        parts = other.windows // self.pane
        if len(parts) and parts[0] == parts[-1]:
            self._choose_cells(int(parts[0]), other.keys)
        self._enter(parts, other.keys, other.values, other.counts)

    def _enter(self, *columns: np.ndarray) -> None:
        """Enter slices, keys, values and counts; enlarge the table whenever it is too full."""
        row = 0
        status = FULL
        while status == FULL:
            status, row, self._used = merge_rows(
                columns, row, self._how, self._table, self._used, self._dense
            )
            if status == FULL:
                larger = np.zeros((2 * len(self._table), 4), np.int64)
                move_rows(self._table, larger)
                self._table = larger
        if status == OVERFLOW:
            parts, keys, *_ = columns
            raise OverflowError(
                f"sum of key {keys[row]} in the slice from {int(parts[row]) * self.pane} leaves "
                "the 64 bits: scale the values down, or use smaller windows"
            )

    def _choose_cells(self, part: int, keys: np.ndarray) -> None:
        """Give the current slice cells once it has enough tuples to be worth their cost.

        The cost is at most `_CELLS` cells per tuple and a pass over the table. When the next slice
        gets the cells, each used cell costs one look-up.
        """
        owner, _, cells = self._dense
        if part == owner and len(cells):
            return
        if part != self._slice:
            self._slice = part
            self._tuples = 0
            self._look = _FIRST_LOOK
        self._tuples += len(keys)
        if self._tuples < self._look:
            return
        self._look = 2 * self._tuples
        low, size = range_of_cells(keys)
        if size <= min(self._tuples * _CELLS, _MOST_CELLS):
            rows = self._take_rows()
            self._dense = (part, low, np.zeros((size, 2), np.int64))
            self._enter(*np.ascontiguousarray(rows.T))

    def _take_rows(self) -> np.ndarray:
        """Return slice, key, value and count of the table and the cells in use; empty both."""
        part, low, cells = self._dense
        used = np.flatnonzero(cells[:, 1])
        of_cells = np.column_stack([np.full(len(used), part), used + low, cells[used]])
        rows = np.concatenate([self._table[self._table[:, COUNT] > 0], of_cells])
        self._table[:] = 0
        self._used = 0
        worth = len(used) * _CELLS >= len(cells)  # the slice may go on
        self._dense = (part, low, np.zeros_like(cells)) if worth else _NO_CELLS
        return rows

    def take(self) -> Partials:
        """Partials so far by slice start and key, sorted; empties the table."""
        rows = self._take_rows()
        rows[:, SLICE] *= self.pane
        return Partials.of(rows).sorted()


def merge_sums(partials: Iterable[Partials], aggregate: Aggregate = AGGREGATES["sum"]) -> Partials:
    """Merge tasks' partials, each slice and key once, sorted: the late local merge."""
    sums = SliceSums(1, aggregate)
    for each in partials:
        sums.merge(each)
    return sums.take()


def window_sums(slices: Partials, windows: Windows) -> Partials:
    """Sums of windows [start, start + width) from the sums of their slices (D3 eqs. (1), (2)).

    Windows begin at 0, slide, 2·slide, …; only windows with a tuple are returned.
    """
    if windows.pane == windows.width:
        return slices
    parts = []
    for back in range(0, windows.width, windows.pane):
        starts = slices.windows - back
        inside = (starts >= 0) & (starts % windows.slide == 0)
        chosen = slices[inside]
        parts.append(Partials(starts[inside], chosen.keys, chosen.values, chosen.counts))
    return merge_sums(parts)


def sum_tuples(readers: Iterable[PartitionReader]) -> Partials:
    """Return the sums by slice and key of the tuples of some partitions."""
    readers = list(readers)
    sums = SliceSums(readers[0].pane if readers else 1)
    for reader in readers:
        for block in reader.blocks():
            sums.add(block)
    return sums.take()
