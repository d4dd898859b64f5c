"""State tables, which tasks share instead of shuffling (D3 section 4).

`StateTable` is the contract, `MemoryTable` its simplest implementation. `BufferedTable` collects
merges in memory, in front of a durable store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials

VERSION = 5
NEVER = int(np.iinfo(np.int64).min)
"""The watermark of a partition of which nothing has been read."""
END = int(np.iinfo(np.int64).max)
"""The watermark of a partition that has been read to its end."""
FLUSHES = ("merge", "barrier")
"""When a table is durable: as each merge returns, or at the next barrier (`BufferedTable`)."""
Token = tuple[str, int]
"""Name of an epoch commit: (server, epoch)."""
Output = tuple[int, int]
"""A window that was emitted, and the checksum of its output."""


class StaleBatch(RuntimeError):
    """A batch does not begin at its partition's offset, because another task continued there."""


@dataclass(frozen=True)
class Progress:
    """Progress of one partition, as read or as merged into a state; no field ever decreases.

    `late` counts tuples that came after their slice was complete, and were left out. If `since` is
    given, a merge is refused unless the store has this offset for the partition, 0 for a new one.
    This protects against abandoned tasks and against stores that lost data.
    """

    offset: int = 0  # bytes: where the next batch begins
    watermark: int = NEVER  # no earlier tuple is expected; `END` at the partition's end
    late: int = 0
    tuples: int = 0  # all since the partition's beginning
    rejected: int = 0  # malformed lines
    since: int | None = None  # where this batch begins; not stored

    @property
    def stored(self) -> tuple[int, int, int, int, int]:
        """The fields that a store holds."""
        return self.offset, self.watermark, self.late, self.tuples, self.rejected


class StateTable(ABC):
    """Values by window and key, and the offsets up to which they count, in tables called epochs.

    Invariant: `merge` is one transaction. At every moment a store holds the aggregate of exactly
    the tuples up to its offsets, also after a crash.

    A server's own store has one table per epoch. The checkpoint barrier switches to the next table,
    which starts empty. So each table holds the delta between two barriers (D3 section 5.1). A store
    that servers merge into uses table 0 only.

    A store holds the aggregate it was created with. It refuses a file that is damaged, of another
    version, of another aggregate, or of another program, with a ValueError.
    """

    durable = True
    """Whether anything survives the process."""
    one_machine = True
    """Whether only processes of one machine can open it."""
    flush = "merge"
    """When a merge is durable (`FLUSHES`). Each store documents what survives a power failure."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate

    def merge(
        self,
        partials: Partials,
        progress: Mapping[int, Progress],
        epoch: int = 0,
        token: Token | None = None,
    ) -> bool:
        """Merge a batch and the offsets of its partitions after it, in one transaction.

        Rows are in any order; a window and key may occur more than once. They go into the table
        `epoch`, 0 or above. A token (server, epoch) names an epoch commit. A server commits its
        epochs in order. If its epoch is not above its last one, nothing is merged and the result
        is False, else True.

        Raises
        ------
        OverflowError
            When a sum leaves the 64 bits; nothing was merged.
        StaleBatch
            When a partition's offset is not `since`, where its batch begins; nothing was merged.
        OSError
            When the store cannot be reached or its disk is full. The transaction may have been
            committed before the connection broke: read `progress`, or repeat with the token.
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
                        f"{now.since}; nothing was merged: go on at the offset that the store has "
                        "for the partition"
                    )
            self._merge(rows, furthest(progress), epoch, token)
        return True

    @abstractmethod
    def _merge(
        self, rows: Partials, progress: dict[int, Progress], epoch: int, token: Token | None
    ) -> None:
        """Merge rows (each window and key once), progress and token, within a transaction."""

    def _transaction(self, act: str) -> AbstractContextManager[Any]:
        """Run the block whole or not at all, with no transaction of another process in between."""
        return nullcontext()

    @abstractmethod
    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""

    def windows(self) -> np.ndarray:
        """Windows with rows in table 0, shape (m,), ascending."""
        return np.unique(self.read().windows)

    @abstractmethod
    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """Progress of each partition: over all tables (None), or as merged into one table."""

    @abstractmethod
    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""

    @abstractmethod
    def committed(self) -> dict[str, int]:
        """Last epoch that each server committed to this store."""

    def _unpacked(self, windows: Sequence[int] | np.ndarray, blobs: Sequence[bytes]) -> Partials:
        """Rows from packed arrays of keys and values, given the window of each array."""
        width = 1 + len(self.aggregate.components)
        sizes = np.array([len(blob) // (8 * width) for blob in blobs], np.int64)
        rows = np.frombuffer(bytearray().join(blobs), "<i8").reshape(-1, width)
        return Partials(np.repeat(np.array(windows, np.int64), sizes), rows[:, 0], rows[:, 1:])

    def barrier(self) -> None:
        """Make everything merged so far survive the crash of the process."""
        return  # it does already

    @abstractmethod
    def drop(self, epoch: int) -> None:
        """Empty a table; the progress of the partitions stays."""

    @abstractmethod
    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows of table 0; record their emitted results in the same transaction."""

    @abstractmethod
    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, each with the checksum of its output."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections, if still open; only `barrier` guarantees a flush."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def furthest(*accounts: Mapping[int, Progress]) -> dict[int, Progress]:
    """Largest progress of each partition among some records, without the field `since`."""
    maxima: dict[int, Progress] = {}
    for partition, now in (each for account in accounts for each in account.items()):
        before = maxima.get(partition, now).stored
        maxima[partition] = Progress(*map(max, zip(before, now.stored, strict=True)))
    return maxima


def check_identity(place: object, identity: Any, aggregate: Aggregate, kind: str) -> None:
    """Raise ValueError for a store of another version or aggregate."""
    version, name = identity
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


@dataclass
class _Epoch:
    """One table: sorted keys and their values by window, and its partitions' progress."""

    rows: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)


class MemoryTable(StateTable):
    """Sorted arrays by window: merging n rows into m costs O(n log m), and O(m) with new keys.

    Nothing survives the process; a new process continues at the offsets of the store to which the
    tables were committed. Not locked: one thread at a time.
    """

    durable = False

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._tables: dict[int, _Epoch] = {}
        self._progress: dict[int, Progress] = {}
        self._committed: dict[str, int] = {}
        self._outputs: dict[int, int] = {}

    def _merge(
        self, rows: Partials, progress: dict[int, Progress], epoch: int, token: Token | None
    ) -> None:
        table = self._tables.get(epoch, _Epoch())
        windows, first = np.unique(rows.windows, return_index=True)
        bounds = [*first, len(rows)]

        changes: dict[int, tuple] = {}  # computed first: an overflow must change nothing
        for window, a, b in zip(windows.tolist(), bounds[:-1], bounds[1:], strict=True):
            new_keys, new = rows.keys[a:b], rows.values[a:b].copy()
            if window not in table.rows:
                changes[window] = new_keys.copy(), new, slice(None), new
                continue
            keys, values = table.rows[window]
            at = np.searchsorted(keys, new_keys)
            present = keys[np.minimum(at, len(keys) - 1)] == new_keys
            new[present] = self.aggregate.merge(values[at[present]], new[present])
            if not present.all():
                keys = np.insert(keys, at[~present], new_keys[~present])
                values = np.insert(values, at[~present], new[~present], axis=0)
                at = np.searchsorted(keys, new_keys)
            changes[window] = keys, values, at, new

        for window, (keys, values, at, new) in changes.items():
            values[at] = new
            table.rows[window] = keys, values
        table.progress = furthest(table.progress, progress)
        self._progress = furthest(self._progress, progress)
        self._tables[epoch] = table
        self._committed.update([token] if token else [])

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""
        rows = self._tables.get(epoch, _Epoch()).rows
        chosen = sorted(rows) if window is None else [w for w in (window,) if w in rows]
        parts = [Partials(np.full(len(rows[w][0]), w), *rows[w]) for w in chosen]
        return Partials.concat(Partials.empty(len(self.aggregate.components)), *parts)

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """Progress of each partition: over all tables (None), or as merged into one table."""
        if epoch is None:
            return dict(self._progress)
        return dict(self._tables.get(epoch, _Epoch()).progress)

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""
        return tuple(sorted(self._tables))

    def committed(self) -> dict[str, int]:
        """Last epoch that each server committed to this store."""
        return dict(self._committed)

    def drop(self, epoch: int) -> None:
        """Empty a table."""
        self._tables.pop(epoch, None)

    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows, and record their emitted results."""
        for window in windows:
            self._tables.get(0, _Epoch()).rows.pop(window, None)
        self._outputs.update([output] if output else [])

    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, each with the checksum of its output."""
        return dict(self._outputs)

    def close(self) -> None:
        """Do nothing, because no file is open."""


class BufferedTable(StateTable):
    """A table that merges in memory, and writes the sums into a store at the barrier.

    Sums merged since the last barrier need not survive the process. So the store gets each row once
    per barrier, not once per batch. Tables are written in the order of their numbers, because a
    server's partitions go through them in this order. So a store that has only the first of two
    tables still holds the tuples up to its offsets. Sums that could not be written stay in memory.
    No other process or thread may use the store.

    OverflowError from `merge` if the sums since the last barrier do not fit into 64 bits, and from
    `barrier` and `read` if their totals with the stored sums do not.
    """

    flush = "barrier"

    def __init__(self, store: StateTable) -> None:
        super().__init__(store.aggregate)
        self.store, self._since = store, MemoryTable(store.aggregate)
        self._latest = store.progress()

    def _merge(
        self, rows: Partials, progress: dict[int, Progress], epoch: int, token: Token | None
    ) -> None:
        if token:  # goes to the store at once
            self.barrier()
            self.store.merge(rows, progress, epoch, token)
        else:
            self._since.merge(rows, progress, epoch)
        self._latest = furthest(self._latest, progress)

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of the store merged with the waiting rows."""
        both = self.store.read(window, epoch), self._since.read(window, epoch)
        return self.aggregate.group(Partials.concat(*both))

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """Progress of each partition, waiting sums included."""
        if epoch is None:
            return dict(self._latest)
        return furthest(self.store.progress(epoch), self._since.progress(epoch))

    def epochs(self) -> tuple[int, ...]:
        """Tables with rows, in the store or in memory."""
        return tuple(sorted({*self.store.epochs(), *self._since.epochs()}))

    def committed(self) -> dict[str, int]:
        """Last epoch of each server in the store."""
        return self.store.committed()

    def barrier(self) -> None:
        """Write the waiting sums into the store."""
        self._write(self._since.epochs())

    def drop(self, epoch: int) -> None:
        """Empty a table, in the store and in memory."""
        # write first: the progress must stay, and no offset may overtake earlier rows
        self._write(e for e in self._since.epochs() if e <= epoch)
        self.store.drop(epoch)

    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows, in the store and in memory."""
        self.store.forget(*windows, output=output)
        self._since.forget(*windows)

    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, as the store recorded them."""
        return self.store.outputs()

    def close(self) -> None:
        """Close the store; sums that wait in memory are lost."""
        self.store.close()

    def _write(self, epochs: Iterable[int]) -> None:
        for epoch in epochs:
            self.store.merge(self._since.read(epoch=epoch), self._since.progress(epoch), epoch)
            self._since.drop(epoch)
