"""Notes of what was read of a partition between two hand-overs, malformed lines included.

Each note is a file, named by the offset where its stretch begins. A task that dies is replaced by
one that begins where the dead one last handed over. What the dead one had read beyond that is read
again, so its notes from there on are taken away first (`take_away`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from aftlib.core.paths import atomic_file
from aftlib.shared_state.stores.tables import Progress
from aftlib.shared_state.stream.parsing import Rejected

COUNTS = ("tuples", "late", "rejected")


@dataclass(frozen=True)
class Stretch:
    """Bytes since … offset of a partition.

    Attributes
    ----------
    partition, since, offset : int
    tuples, late, rejected : int
        Lines of the stretch: tuples, those of them that came too late, malformed ones.
    rejects : tuple of Rejected
        The malformed lines.
    """

    partition: int
    since: int
    offset: int
    tuples: int
    late: int
    rejected: int
    rejects: tuple[Rejected, ...] = ()

    @classmethod
    def between(
        cls, partition: int, before: Progress, after: Progress, rejects: Iterable[Rejected]
    ) -> Stretch:
        """Stretch between two moments of a partition's reading."""
        counts = {name: getattr(after, name) - getattr(before, name) for name in COUNTS}
        return cls(partition, before.offset, after.offset, **counts, rejects=tuple(rejects))

    def keep(self, directory: Path) -> None:
        """Write it, whole or not at all."""
        path = directory / f"part-{self.partition:05d}-from-{self.since}.json"
        with atomic_file(path) as scratch:
            scratch.write_text(json.dumps(asdict(self)))


def kept(directory: Path) -> list[Stretch]:
    """All stretches in a folder, by partition and offset."""
    found = []
    for path in directory.glob("part-*-from-*.json"):
        noted = json.loads(path.read_text())
        rejects = tuple(Rejected(**line) for line in noted.pop("rejects"))
        found.append(Stretch(**noted, rejects=rejects))
    return sorted(found, key=lambda stretch: (stretch.partition, stretch.since))


def take_away(directory: Path, partition: int, since: int) -> None:
    """Remove a partition's stretches that begin at an offset or later: they are read again."""
    for path in directory.glob(f"part-{partition:05d}-from-*.json"):
        if int(path.stem.rpartition("-")[2]) >= since:
            path.unlink(missing_ok=True)


def by_partition(stretches: Iterable[Stretch]) -> pd.DataFrame:
    """Counts of each partition: partition, offset, tuples, late, rejected."""
    columns = ["partition", "offset", *COUNTS]
    rows = [[getattr(stretch, name) for name in columns] for stretch in stretches]
    frame = pd.DataFrame(rows, columns=columns)
    how = {"offset": "max"} | dict.fromkeys(COUNTS, "sum")
    return frame.groupby("partition", as_index=False).agg(how)


def reject_table(stretches: Iterable[Stretch]) -> pd.DataFrame:
    """Every malformed line: partition, offset, reason, line."""
    rows = [(s.partition, r.offset, r.reason, r.line) for s in stretches for r in s.rejects]
    return pd.DataFrame(rows, columns=["partition", "offset", "reason", "line"])
