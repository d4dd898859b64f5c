"""What a task takes in: partitions read on from where they stand, summed, and committed.

A marker file records what was read of a partition between two commits, malformed lines included.
Its name has the offset where that segment begins. The replacement of a crashed task begins at the
last commit and reads everything after it again, so `take_away` first removes the records from there
on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aftlib.core.paths import write_whole
from aftlib.shared_state import loops
from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.parsing import BLOCK, PartitionReader, Rejected, Rules
from aftlib.shared_state.stores.tables import END, Progress
from aftlib.shared_state.sums import SUMS, SliceSums

if TYPE_CHECKING:
    import pandas as pd

COUNTS = ("tuples", "late", "rejected")


@dataclass
class Intake:
    """What one task has read and summed since it last gave its sums away.

    `begin` says where each partition is read on. `notes` is a folder of notes about what was read,
    with the malformed lines; with `note_all`, stretches without such lines are noted too.
    """

    rules: Rules
    begin: Mapping[int, Progress] = field(default_factory=dict)
    aggregate: Aggregate = SUMS
    notes: Path | None = None
    note_all: bool = True

    def __post_init__(self) -> None:
        self._sums, self._sum_s = SliceSums(self.rules.windows.pane, self.aggregate), 0.0
        self._readers: dict[int, PartitionReader] = {}
        self._committed = dict(self.begin)

    @property
    def progress(self) -> dict[int, Progress]:
        """How far each partition has been read."""
        return {**self.begin, **{p: reader.progress for p, reader in self._readers.items()}}

    @property
    def seconds(self) -> dict[str, float]:
        """Spent on "read", "parse" and "sum"."""
        readers = self._readers.values()
        read_s, parse_s = sum(r.read_s for r in readers), sum(r.parse_s for r in readers)
        return {"read": read_s, "parse": parse_s, "sum": self._sum_s}

    @property
    def tuples(self) -> int:
        """Tuples read so far."""
        return _tuples(self.progress) - _tuples(self.begin)

    @property
    def waiting(self) -> int:
        """Tuples read since the last `take`."""
        return _tuples(self.progress) - _tuples(self._committed)

    def blocks(self, partition: int, path: Path, rows: int = BLOCK) -> Iterator[np.ndarray]:
        """Tuples of a partition from where it stands, as `PartitionReader.blocks`."""
        begin = self.begin.get(partition, Progress())
        reader = self._readers[partition] = PartitionReader(path, self.rules, begin)
        if self.notes is not None:
            take_away(self.notes, partition, begin.offset)
        try:
            yield from reader.blocks(rows)
        except (ValueError, OverflowError):  # what stops the run is noted as well
            self._note()
            raise

    def read(self, partition: int, path: Path, rows: int = BLOCK) -> Iterator[int]:
        """Sum a partition block by block; yields the tuples read since the last `take`."""
        for block in self.blocks(partition, path, rows):
            before = time.perf_counter()
            self._sums.add(block)
            self._sum_s += time.perf_counter() - before
            yield self.waiting

    def end(self, partition: int) -> None:
        """Nothing of a partition will come any more."""
        reader = self._readers[partition]
        reader.progress = replace(reader.progress, watermark=END)

    def take(self) -> tuple[Partials, dict[int, Progress]]:
        """Sums since the last time, and where they begin and end in each partition; both noted."""
        self._note()
        before, self._committed = self._committed, self.progress
        found = {
            p: replace(now, since=before.get(p, Progress()).offset)
            for p, now in self._committed.items()
            if now != before.get(p)
        }
        return self._sums.take(), found

    def _note(self) -> None:
        """Write down what was read since the last `take`."""
        for partition, reader in self._readers.items():
            before, rejects = self._committed.get(partition), reader.take_rejects()
            if self.notes and (rejects or (self.note_all and reader.progress != before)):
                note(self.notes, partition, before or Progress(), reader.progress, rejects)


def summed(paths: Mapping[int, Path], rules: Rules) -> tuple[Partials, dict[int, Progress]]:
    """Sums of some partitions by slice and key, and what their reading came to."""
    intake = Intake(rules)
    for partition, path in paths.items():
        for _ in intake.read(partition, path):
            pass
    return intake.take()


def load_loops() -> None:
    """Load the compiled loops, which takes up to a second that the first tuples else wait for."""
    lines = np.frombuffer(bytearray(b"0,0,0\n"), np.uint8)
    at, columns = np.zeros(loops.REGISTERS, np.int64), np.empty((3, 1), np.int64)
    loops.split(lines, lines.size, 1, loops.NO_DELAY, at, columns, np.empty((1, 2), np.int64))
    sums, keys = SliceSums(1), np.arange(10_000)
    for apart in (2**40, 1):  # as many as let the table grow, and such as get cells
        sums.add(np.stack([0 * keys, apart * keys, keys]))


def note(
    directory: Path, partition: int, before: Progress, after: Progress, rejects: Iterable[Rejected]
) -> None:
    """Write down, whole or not at all, what was read between two moments of a partition."""
    found = {"partition": partition, "since": before.offset, "offset": after.offset}
    found |= {name: getattr(after, name) - getattr(before, name) for name in COUNTS}
    lines = [asdict(line) for line in rejects]
    target = directory / f"part-{partition:05d}-from-{before.offset}.json"
    write_whole(target, json.dumps(found | {"rejects": lines}))


def take_away(directory: Path, partition: int, since: int) -> None:
    """Remove a partition's notes that begin at an offset or later: it is read again from there."""
    for path in directory.glob(f"part-{partition:05d}-from-*.json"):
        if int(path.stem.rpartition("-")[2]) >= since:
            path.unlink(missing_ok=True)


def noted(directory: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What a folder's notes come to: partitions and malformed lines, in their order.

    Columns partition, offset, tuples, late, rejected; and partition, offset, reason, line.
    """
    import pandas as pd  # which the processes of a job need not load

    found = [json.loads(path.read_text()) for path in directory.glob("part-*-from-*.json")]
    stretches = pd.DataFrame(found, columns=["partition", "offset", *COUNTS])
    how = {"offset": "max"} | dict.fromkeys(COUNTS, "sum")
    lines = [{"partition": each["partition"], **line} for each in found for line in each["rejects"]]
    rejects = pd.DataFrame(lines, columns=["partition", "offset", "reason", "line"])
    return (
        stretches.groupby("partition", as_index=False).agg(how),
        rejects.sort_values(["partition", "offset"], ignore_index=True),
    )


def _tuples(progress: Mapping[int, Progress]) -> int:
    return sum(now.tuples for now in progress.values())
