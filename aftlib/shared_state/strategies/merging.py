"""Late merge: every task sums its own input by slice and key, and the sums are merged (D3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from aftlib.core.compiling import COMPILED
from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import AGGREGATES, Partials
from aftlib.shared_state.stream.parsing import PartitionReader, Reading, Rejected, Rules
from aftlib.shared_state.stream.stretch import Stretch

STRATEGIES = ("upfront", "late local", "late global")
"""Where tuples of a key meet: before one aggregation, after each task's, or in a shared table."""
SUMS = AGGREGATES["mean"]
"""What is kept of a slice's key: the sum of its values and their number."""
PARTS = ("read", "parse", "sum")
"""What a task spends its time on."""

_FIRST_ROWS = 2**12
_MOST_GROUPED = 16


class SliceSums:
    """Sums by (slice, key): a hash table that grows with the number of sums, not of tuples.

    Each tuple costs one look-up; the table is at most half full, 32 bytes a row. Without numba
    every block is sorted and grouped instead, with the same results.

    Parameters
    ----------
    pane : int
        Ticks of a slice.
    """

    def __init__(self, pane: int) -> None:
        self.pane = pane
        self._grouped: list[Partials] = []
        self._table = _rows(_FIRST_ROWS)
        self._used = 0

    def add(self, block: np.ndarray) -> None:
        """Add tuples: slice number, key and value, shape (3, n).

        Raises
        ------
        OverflowError
            When a sum leaves the 64 bits.
        """
        if not COMPILED:
            self._append(SUMS.partials(*block))
            return
        from aftlib.shared_state.stream import kernels

        def step(row: int) -> tuple[int, int, int]:
            return kernels.add(block, row, block.shape[1], self._table, self._used)

        self._step_by_step(step, lambda row: (int(block[0, row]), int(block[1, row])))

    def merge(self, other: Partials) -> None:
        """Merge sums by slice start and key; windows must be starts of slices.

        Raises
        ------
        OverflowError
            When a sum leaves the 64 bits.
        """
        parts, keys, values = other.windows // self.pane, other.keys, other.values
        if not COMPILED:
            self._append(Partials(parts, keys, values))
            return
        from aftlib.shared_state.stream import kernels

        def step(row: int) -> tuple[int, int, int]:
            return kernels.merge(parts, keys, values, row, self._table, self._used)

        self._step_by_step(step, lambda row: (int(parts[row]), int(keys[row])))

    def _append(self, sums: Partials) -> None:
        """Note sums, and put them together before they grow with the number of tuples."""
        self._grouped.append(sums)
        if len(self._grouped) > _MOST_GROUPED:
            self._grouped = [SUMS.group(Partials.concat(*self._grouped))]

    def _step_by_step(
        self,
        step: Callable[[int], tuple[int, int, int]],
        name: Callable[[int], tuple[int, int]],
    ) -> None:
        """Enlarge the table whenever a kernel found it too full to go on."""
        from aftlib.shared_state.stream import kernels

        status, row, self._used = step(0)
        while status == kernels.FULL:
            self._grow()
            status, row, self._used = step(row)
        if status == kernels.OVERFLOW:
            part, key = name(row)
            raise OverflowError(
                f"sum of key {key} in the slice from {part * self.pane} leaves the 64 bits: "
                "scale the values down, or use smaller windows"
            )

    def take(self) -> Partials:
        """The sums so far by slice start and key, sorted; the table is empty afterwards."""
        if not COMPILED:
            none = Partials.empty(len(SUMS.components))
            grouped, self._grouped = SUMS.group(Partials.concat(none, *self._grouped)), []
            return Partials(grouped.windows * self.pane, grouped.keys, grouped.values)
        from aftlib.shared_state.stream import kernels

        rows = self._table[self._table[:, kernels.COUNT] > 0]
        self._table, self._used = _rows(len(self._table)), 0
        rows = rows[np.lexsort((rows[:, kernels.KEY], rows[:, kernels.SLICE]))]
        return Partials(rows[:, 0] * self.pane, rows[:, 1], rows[:, 2:])

    def _grow(self) -> None:
        from aftlib.shared_state.stream import kernels

        larger = _rows(2 * len(self._table))
        kernels.moved(self._table, larger)
        self._table = larger


@dataclass
class Task:
    """What one task has read and summed since it last handed its sums over.

    Attributes
    ----------
    rules : Rules
    readings : dict of partition to Reading
        How far each partition has been read.
    seconds : dict
        Spent on "read", "parse" and "sum".
    """

    rules: Rules
    readings: dict[int, Reading] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def __post_init__(self) -> None:
        self._sums = SliceSums(self.rules.windows.pane)
        self._since = self._first = dict(self.readings)
        self._rejects: dict[int, list[Rejected]] = {}
        self._taken = 0

    @property
    def tuples(self) -> int:
        """Tuples read so far."""
        before = sum(reading.tuples for reading in self._first.values())
        return sum(reading.tuples for reading in self.readings.values()) - before

    def blocks(self, partition: int, path: Path) -> Iterator[np.ndarray]:
        """Tuples of a partition from where it has been read to, as `PartitionReader.blocks`."""
        reader = PartitionReader(path, self.rules, self.readings.get(partition, Reading()))
        try:
            for block in reader.blocks():
                self._note(partition, reader)
                yield block
        finally:
            self._note(partition, reader)
            self.seconds["read"] += reader.read_s
            self.seconds["parse"] += reader.parse_s

    def read(self, partition: int, path: Path) -> Iterator[int]:
        """Sum a partition block by block; yields the tuples read since the last `take`."""
        for block in self.blocks(partition, path):
            before = time.perf_counter()
            self._sums.add(block)
            self.seconds["sum"] += time.perf_counter() - before
            yield self.tuples - self._taken

    def take(self) -> tuple[Partials, list[Stretch]]:
        """Sums since the last time, and what was read for them; both are then forgotten."""
        stretches = [
            Stretch.between(p, self._since.get(p, Reading()), now, self._rejects.get(p, ()))
            for p, now in self.readings.items()
            if now != self._since.get(p)
        ]
        self._since, self._rejects, self._taken = dict(self.readings), {}, self.tuples
        return self._sums.take(), stretches

    def _note(self, partition: int, reader: PartitionReader) -> None:
        self.readings[partition] = reader.reading
        if reader.rejects:
            self._rejects.setdefault(partition, []).extend(reader.take_rejects())


def summed(paths: Mapping[int, Path], rules: Rules) -> tuple[Partials, list[Stretch]]:
    """Sums of some partitions by slice and key, and what their reading came to.

    Raises
    ------
    ValueError, OverflowError
        As `PartitionReader.blocks` and `SliceSums.add`.
    """
    task = Task(rules)
    for partition, path in paths.items():
        for _ in task.read(partition, path):
            pass
    return task.take()


def merged(partials: Iterable[Partials]) -> Partials:
    """Tasks' sums merged, each slice and key once, sorted; the late local merge.

    Raises
    ------
    OverflowError
        When a sum leaves the 64 bits.
    """
    sums = SliceSums(1)
    for each in partials:
        sums.merge(each)
    return sums.take()


def window_sums(slices: Partials, windows: Windows) -> Partials:
    """Sums of windows [start, start + width) from those of their slices (D3 eqs. (1), (2)).

    Parameters
    ----------
    slices : Partials
        By slice start and key.
    windows : Windows
        Those that begin at 0, slide, 2·slide, … and hold a tuple are given.

    Raises
    ------
    OverflowError
        When a sum leaves the 64 bits.
    """
    if windows.pane == windows.width:
        return slices
    parts = []
    for back in range(0, windows.width, windows.pane):
        starts = slices.windows - back
        inside = (starts >= 0) & (starts % windows.slide == 0)
        parts.append(Partials(starts[inside], slices.keys[inside], slices.values[inside]))
    return merged(parts)


def _rows(number: int) -> np.ndarray:
    return np.zeros((number, 4), np.int64)
