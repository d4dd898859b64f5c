"""What a task takes in: partitions read on from where they stand, summed, and handed over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.tables import END, Progress
from aftlib.shared_state.stream.parsing import BLOCK, PartitionReader, Rejected, Rules
from aftlib.shared_state.stream.stretch import Stretch, take_away
from aftlib.shared_state.stream.sums import SUMS, SliceSums

PARTS = ("read", "parse", "sum")
"""What a task spends its time on."""


@dataclass
class Intake:
    """What one task has read and summed since it last handed its sums over.

    Attributes
    ----------
    rules : Rules
    progress : dict of partition to Progress
        How far each partition has been read; given, where to begin.
    aggregate : Aggregate
    notes : Path or None
        Folder of notes about what was read, with the malformed lines.
    note_all : bool
        Whether stretches without malformed lines are noted too.
    seconds : dict
        Spent on "read", "parse" and "sum".
    """

    rules: Rules
    progress: dict[int, Progress] = field(default_factory=dict)
    aggregate: Aggregate = SUMS
    notes: Path | None = None
    note_all: bool = True
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def __post_init__(self) -> None:
        self._sums = SliceSums(self.rules.windows.pane, self.aggregate)
        self._handed = self._first = dict(self.progress)
        self._rejects: dict[int, list[Rejected]] = {}

    @property
    def tuples(self) -> int:
        """Tuples read so far."""
        return self._since(self._first)

    @property
    def waiting(self) -> int:
        """Tuples read since the last `take`."""
        return self._since(self._handed)

    def _since(self, before: Mapping[int, Progress]) -> int:
        now, then = self.progress.values(), before.values()
        return sum(p.tuples for p in now) - sum(p.tuples for p in then)

    def blocks(self, partition: int, path: Path, rows: int = BLOCK) -> Iterator[np.ndarray]:
        """Tuples of a partition from where it stands, as `PartitionReader.blocks`."""
        begin = self.progress.get(partition, Progress())
        reader = PartitionReader(path, self.rules, begin)
        if self.notes is not None:
            take_away(self.notes, partition, begin.offset)
        try:
            for block in reader.blocks(rows):
                self._look_at(partition, reader)
                yield block
        except (ValueError, OverflowError):  # what stops the run is noted as well
            self._look_at(partition, reader)
            self._note()
            raise
        finally:
            self._look_at(partition, reader)
            self.seconds["read"] += reader.read_s
            self.seconds["parse"] += reader.parse_s

    def read(self, partition: int, path: Path, rows: int = BLOCK) -> Iterator[int]:
        """Sum a partition block by block; yields the tuples read since the last `take`."""
        for block in self.blocks(partition, path, rows):
            before = time.perf_counter()
            self._sums.add(block)
            self.seconds["sum"] += time.perf_counter() - before
            yield self.waiting

    def tuples_of(self, partition: int) -> int:
        """Tuples of a partition read so far, by this task and those before it."""
        return self.progress.get(partition, Progress()).tuples

    def end(self, partition: int) -> None:
        """Nothing of a partition will come any more."""
        self.progress[partition] = replace(self.progress[partition], watermark=END)

    def take(self) -> tuple[Partials, dict[int, Progress]]:
        """Sums since the last time, and where they begin and end in each partition; both noted."""
        self._note()
        found = {}
        for partition, now in self.progress.items():
            before = self._handed.get(partition)
            if now != before:
                found[partition] = replace(now, since=before.offset if before else 0)
        self._handed, self._rejects = dict(self.progress), {}
        return self._sums.take(), found

    def _look_at(self, partition: int, reader: PartitionReader) -> None:
        self.progress[partition] = reader.progress
        if reader.rejects:
            self._rejects.setdefault(partition, []).extend(reader.take_rejects())

    def _note(self) -> None:
        """Write down what was read since the last `take`."""
        if self.notes is None:
            return
        for partition, now in self.progress.items():
            before, rejects = self._handed.get(partition), self._rejects.get(partition, [])
            if rejects or (self.note_all and now != before):
                stretch = Stretch.between(partition, before or Progress(), now, rejects)
                stretch.keep(self.notes)


def summed(paths: Mapping[int, Path], rules: Rules) -> tuple[Partials, dict[int, Progress]]:
    """Sums of some partitions by slice and key, and what their reading came to.

    Raises
    ------
    ValueError, OverflowError
        As `PartitionReader.blocks` and `SliceSums.add`.
    """
    intake = Intake(rules)
    for partition, path in paths.items():
        for _ in intake.read(partition, path):
            pass
    return intake.take()
