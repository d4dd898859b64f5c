"""What tasks read: partitions from any offset on, cut into slices of event time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from aftlib.shared_state.stores.tables import NEVER, Progress

END = int(np.iinfo(np.int64).max)
"""The watermark of a partition that has been read to its end."""

Block = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Start of each tuple's slice, its key and its value, each of shape (n,)."""


class Source(Protocol):
    """A partitioned, ordered log that can be read again from any offset (D3 section 2.1).

    A tuple is late when its slice ends at or before the watermark of its own partition at the
    tuple before; that does not depend on where batches end or on who reads, so reading again
    leaves out the same tuples.
    """

    @property
    def partitions(self) -> int:
        """Number of partitions."""

    def batches(
        self, partition: int, progress: Progress | None, rows: int
    ) -> Iterator[tuple[Block, Progress]]:
        """Batches from where `progress` stands, each with the progress after it.

        The last one carries the watermark `END`, and may be empty.
        """


@dataclass(frozen=True)
class ArraySource:
    """Partitions as arrays (timestamp, key, value) of int64, one ``.npy`` file each.

    Offsets are numbers of tuples.

    Parameters
    ----------
    path : Path
        Folder of `0.npy`, `1.npy`, …
    pane : int
        Ticks of a slice.
    delay : int or None
        The watermark is so many ticks behind the partition's newest tuple; None: no tuple is late,
        and windows are complete at the partition's end only.
    """

    path: Path
    pane: int
    delay: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).resolve())

    @classmethod
    def write(
        cls, path: Path, partitions: list[np.ndarray], pane: int, delay: int | None = None
    ) -> ArraySource:
        """Write partitions of shape (n, 3).

        Raises
        ------
        ValueError
            When a timestamp is negative.
        """
        arrays = [np.asarray(tuples, dtype=np.int64) for tuples in partitions]
        for i, tuples in enumerate(arrays):
            if tuples[:, 0].min(initial=0) < 0:
                raise ValueError(
                    f"partitions must have timestamps from 0 on, as windows begin there, got "
                    f"{tuples[:, 0].min()} in partition {i}: count ticks from an earlier moment"
                )
        path.mkdir(parents=True)
        for i, tuples in enumerate(arrays):
            np.save(path / f"{i}.npy", tuples)
        return cls(path, pane, delay)

    @property
    def identity(self) -> dict[str, Any]:
        """What offsets and watermarks stand for: the path, the files' bytes, the delay."""
        sizes = [(self.path / f"{i}.npy").stat().st_size for i in range(self.partitions)]
        return {"path": str(self.path), "bytes": sizes, "delay": self.delay}

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(list(self.path.glob("*.npy")))

    def batches(
        self, partition: int, progress: Progress | None, rows: int
    ) -> Iterator[tuple[Block, Progress]]:
        """Batches of at most so many tuples from where `progress` stands."""
        now = progress or Progress(0)
        tuples = np.load(self.path / f"{partition}.npy", mmap_mode="r")
        while now.watermark != END:
            block, now = self._batch(np.array(tuples[now.offset : now.offset + rows]), now)
            if now.offset == len(tuples):
                now = Progress(now.offset, END, now.late, since=now.since)
            yield block, now

    def _batch(self, tuples: np.ndarray, before: Progress) -> tuple[Block, Progress]:
        times, keys, values = tuples.T
        slices = times // self.pane * self.pane
        late, watermark = np.zeros(len(times), dtype=bool), before.watermark
        if self.delay is not None and len(times):
            marks = np.maximum.accumulate(np.append(before.watermark, times - self.delay))
            late, watermark = slices + self.pane <= marks[:-1], int(marks[-1])
        offset = before.offset + len(times)
        after = Progress(offset, watermark, before.late + int(late.sum()), since=before.offset)
        return (slices[~late], keys[~late], values[~late]), after


def watermark(progress: dict[int, Progress], partitions: list[int]) -> int:
    """Event time before which all these partitions are complete; `NEVER` while one is unread."""
    return min((progress[p].watermark if p in progress else NEVER for p in partitions), default=END)
