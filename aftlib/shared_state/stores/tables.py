"""The contract of a state table: what tasks share instead of shuffling (D3 section 4)."""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass
from operator import index
from typing import Any, Self

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials

VERSION = 5
NEVER = int(np.iinfo(np.int64).min)
"""The watermark of a partition of which nothing was read yet."""
END = int(np.iinfo(np.int64).max)
"""The watermark of a partition that has been read to its end."""
FLUSHES = ("merge", "barrier")
"""When a table is durable: as each merge returns, or at the next barrier (`BufferedTable`)."""
Token = tuple[str, int]
"""Name of an epoch commit: (server, epoch)."""
Output = tuple[int, int]
"""A window that was emitted, and the checksum of its output."""


class StaleBatch(RuntimeError):
    """A batch begins where its partition no longer stands: somebody else went on with it."""


@dataclass(frozen=True)
class Progress:
    """How far one partition has been read, or is part of a state; no field of it ever goes back.

    Late are tuples that came after their slice was complete, and were left out. When `since` is
    given, a merge is refused unless the partition stands there, at 0 if nothing is known of it. So
    neither a task that was given up does harm, nor a store that has forgotten something.
    """

    offset: int = 0  # bytes: where the next batch begins
    watermark: int = NEVER  # no tuple before it is expected any more; `END` at the partition's end
    late: int = 0
    tuples: int = 0  # all since the partition's beginning
    rejected: int = 0  # lines that are no tuples
    since: int | None = None  # where this batch begins; not stored

    @property
    def stored(self) -> tuple[int, int, int, int, int]:
        """What a store keeps of it."""
        return self.offset, self.watermark, self.late, self.tuples, self.rejected


class StateTable(ABC):
    """Values by window and key, and the offsets that they stand for, in tables called epochs.

    Invariant: `merge` is one transaction. What a store holds is at every moment the aggregate of
    exactly those tuples that its offsets say, also after a crash.

    A server's own store has one table an epoch: the checkpoint barrier switches to the next one,
    which starts empty, so each holds the delta between two barriers (D3 section 5.1). A store that
    servers merge into uses table 0 only.

    Stores keep to the aggregate that they were made with. What they find damaged, of another
    version, of another aggregate, or somebody else's, they refuse with a ValueError.
    """

    durable = True
    """Whether anything survives the process."""
    one_machine = True
    """Whether all who open it must be on one machine."""
    flush = "merge"
    """When (`FLUSHES`). Stores say in their own words what survives a power failure."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate

    def merge(
        self,
        partials: Partials,
        progress: Mapping[int, Progress],
        epoch: int = 0,
        token: Token | None = None,
    ) -> bool:
        """Merge a batch and the offsets that it brings its partitions to, in one transaction.

        Rows are in any order; a window and key may occur more than once. They go into the table
        `epoch`, 0 or above. A token (server, epoch) names an epoch commit: a server
        commits its epochs in order, and one that is not above the last is not merged again. It is
        False then, else True.

        Raises
        ------
        OverflowError
            When a sum leaves the 64 bits; nothing was merged.
        StaleBatch
            When a partition does not stand where its batch begins; nothing was merged.
        OSError
            When the store is out of reach or its disk full; ask `progress` or repeat with the
            token, for the transaction may have been committed before the connection broke.
        """
        rows = self.aggregate.group(partials)
        with self._transaction("merge"):
            if token and self.committed().get(token[0], -1) >= token[1]:
                return False
            stands = self.progress()
            for partition, now in progress.items():
                before = stands.get(partition, Progress()).offset
                if now.since is not None and before != now.since:
                    raise StaleBatch(
                        f"partition {partition} stands at {before}, the batch begins at "
                        f"{now.since}; nothing was merged: read on from where the store says that "
                        "the partition stands"
                    )
            self._merge(rows, furthest(progress), epoch, token)
        return True

    @abstractmethod
    def _merge(
        self, rows: Partials, progress: dict[int, Progress], epoch: int, token: Token | None
    ) -> None:
        """Merge rows, each window and key once, and what is new, within a transaction."""

    def _transaction(self, act: str) -> AbstractContextManager[Any]:
        """All of the block or nothing, and none of another process's in between."""
        return nullcontext()

    @abstractmethod
    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""

    def windows(self) -> np.ndarray:
        """Windows that hold something in table 0, shape (m,), ascending."""
        return np.unique(self.read().windows)

    @abstractmethod
    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """How far each partition is: at all (None), or as far as the epoch's table brings it."""

    @abstractmethod
    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""

    @abstractmethod
    def committed(self) -> dict[str, int]:
        """Last epoch that each server committed to this store."""

    def _unpacked(self, windows: Sequence[int] | np.ndarray, blobs: Sequence[bytes]) -> Partials:
        """Rows of arrays of keys and values as bytes, given the window of each array."""
        width = 1 + len(self.aggregate.components)
        sizes = np.array([len(blob) // (8 * width) for blob in blobs], np.int64)
        rows = np.frombuffer(bytearray().join(blobs), "<i8").reshape(-1, width)
        return Partials(np.repeat(np.array(windows, np.int64), sizes), rows[:, 0], rows[:, 1:])

    def barrier(self) -> None:
        """Make everything merged so far survive the crash of the process."""
        return  # it does

    @abstractmethod
    def drop(self, epoch: int) -> None:
        """Empty a table; how far the partitions are (`progress()`) stays."""

    @abstractmethod
    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows of table 0; record in the same transaction what was emitted of them."""

    @abstractmethod
    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, each with the checksum of its output."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections, once or again; only `barrier` promises to flush."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def furthest(*accounts: Mapping[int, Progress]) -> dict[int, Progress]:
    """How far each partition is by the furthest of some accounts, without `since`."""
    found: dict[int, Progress] = {}
    for partition, now in (each for account in accounts for each in account.items()):
        before = found.get(partition, now).stored
        found[partition] = Progress(*map(max, zip(before, now.stored, strict=True)))
    return found


def check_identity(place: object, found: Any, aggregate: Aggregate, kind: str) -> None:
    """Refuse, by a ValueError, a store whose (version, aggregate) is another one."""
    version, name = found
    if version != VERSION:
        raise ValueError(
            f"{kind} must hold a state table of version {VERSION}, got version {version!r} in "
            f"{str(place)!r}; finish the stream with the release that began it"
        )
    if name != aggregate.name:
        raise ValueError(
            f"{kind} holds the state of another aggregate ({name}), not of this one "
            f"({aggregate.name}): {str(place)!r}; choose another place"
        )


HEAD = struct.Struct("=IQI")
"""Bytes of JSON, rows, and values a row; what follows begins at a multiple of 8 bytes."""


def pack_message(word: str, what: object = None, rows: Partials | None = None) -> bytes:
    """A message of a word, what JSON can say, and rows."""
    said = json.dumps([word, what], default=index).encode()  # numpy's integers, too
    said += b" " * (-len(said) % 8)
    head = HEAD.pack(len(said), *(rows.values.shape if rows is not None else (0, 0)))
    columns = () if rows is None else (rows.windows, rows.keys, rows.values)
    return b"".join([head, said, *(np.ascontiguousarray(c).data for c in columns)])


def unpack_message(message: bytes) -> tuple[str, Any, Partials]:
    """Word, what JSON said, and the rows of a message; ValueError when it is none."""
    try:
        length, rows, components = HEAD.unpack_from(message)
        word, what = json.loads(message[HEAD.size : HEAD.size + length])
        numbers = np.frombuffer(message, np.int64, offset=HEAD.size + length)
        windows, keys, values = np.split(numbers, [rows, 2 * rows])
        return word, what, Partials(windows, keys, values.reshape(rows, components))
    except (struct.error, ValueError, TypeError) as error:
        raise ValueError(
            f"message must be lengths, JSON and rows, got {len(message)} bytes ({error}): "
            "do all processes run the same aftlib?"
        ) from error


def progress_to_json(progress: Mapping[int, Progress]) -> dict[int, tuple]:
    """How far partitions are, for a message."""
    return {partition: astuple(now) for partition, now in progress.items()}


def progress_from_json(what: Mapping[str, list]) -> dict[int, Progress]:
    """Progress of what `progress_to_json` returned, once it has been through JSON."""
    return {int(partition): Progress(*now) for partition, now in what.items()}
