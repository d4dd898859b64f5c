"""The source of a job that is a log of text lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from aftlib.shared_state.servers.source import END, Block
from aftlib.shared_state.stores.tables import NEVER, Progress
from aftlib.shared_state.stream.parsing import PartitionReader, Reading, Rules
from aftlib.shared_state.stream.stretch import Stretch, kept, take_away
from aftlib.shared_state.stream.tuplelog import TupleLog


@dataclass(frozen=True)
class TextSource:
    """Partitions as lines ``timestamp,key,value``; offsets are bytes.

    Malformed lines are kept in files named by where their batch begins, before the batch is merged.
    Reading again after a death may cut batches elsewhere, so it first removes what begins later.

    Parameters
    ----------
    log : TupleLog
    rules : Rules
        Slices, the delay after which a tuple is late, and how many lines may be malformed.
    rejects : Path
        Folder of malformed lines.
    """

    log: TupleLog
    rules: Rules
    rejects: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "log", replace(self.log, path=Path(self.log.path).resolve()))
        object.__setattr__(self, "rejects", Path(self.rejects).resolve())

    @property
    def identity(self) -> dict[str, Any]:
        """What offsets and watermarks stand for: the log and the delay."""
        return self.log.identity | {"delay": self.rules.delay}

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return self.log.partitions

    def batches(
        self, partition: int, progress: Progress | None, rows: int
    ) -> Iterator[tuple[Block, Progress]]:
        """Batches of at least so many tuples, but for the last, from where `progress` stands.

        Raises
        ------
        ValueError, OverflowError
            As `PartitionReader.blocks`.
        """
        if progress and progress.watermark == END:
            return
        take_away(self.rejects, partition, progress.offset if progress else 0)
        begin = self._reading(partition, progress)
        reader = PartitionReader(self.log.part(partition), self.rules, begin)
        before, held = begin, [np.empty((3, 0), dtype=np.int64)]
        try:
            for block in reader.blocks():
                held.append(block.copy())
                if sum(part.shape[1] for part in held) >= rows:
                    yield self._batch(partition, held, before, reader)
                    before, held = reader.reading, [held[0]]
        except (ValueError, OverflowError):  # malformed lines are kept, also when they stop the run
            self._keep_rejects(partition, before, reader)
            raise
        last, after = self._batch(partition, held, before, reader)
        yield last, Progress(after.offset, END, after.late, since=after.since)

    def _reading(self, partition: int, progress: Progress | None) -> Reading:
        """What the reader knew when it stood there."""
        if progress is None:
            return Reading()
        high = Reading().high
        if self.rules.delay is not None and progress.watermark != NEVER:
            high = progress.watermark + self.rules.delay
        earlier = (s for s in kept(self.rejects) if s.partition == partition)
        rejected = sum(s.rejected for s in earlier if s.since < progress.offset)
        return Reading(progress.offset, high, 0, progress.late, rejected)

    def _batch(
        self, partition: int, held: list[np.ndarray], before: Reading, reader: PartitionReader
    ) -> tuple[Block, Progress]:
        after = reader.reading
        self._keep_rejects(partition, before, reader)
        slices, keys, values = np.concatenate(held, axis=1)
        block = (slices * self.rules.windows.pane, keys, values)
        return block, Progress(
            after.offset, self._watermark(after), after.late, since=before.offset
        )

    def _keep_rejects(self, partition: int, before: Reading, reader: PartitionReader) -> None:
        rejects = reader.take_rejects()
        if rejects:
            self.rejects.mkdir(parents=True, exist_ok=True)
            Stretch.between(partition, before, reader.reading, rejects).keep(self.rejects)

    def _watermark(self, reading: Reading) -> int:
        if self.rules.delay is None or reading.high == Reading().high:
            return NEVER
        return reading.high - self.rules.delay
