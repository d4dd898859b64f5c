"""State tables in the memory of one process: alone, or in front of a durable store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.tables import Output, Progress, StateTable, Token, furthest


@dataclass
class _Epoch:
    """One table: sorted keys and their values by window, and its partitions' progress."""

    rows: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)


class MemoryTable(StateTable):
    """Sorted arrays by window: a merge costs O(n log m), and O(m) when it brings new keys.

    Nothing survives the process; whoever starts again reads on from the offsets of the store that
    the tables were committed to. Not locked: one thread at a time.
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

        changes: dict[int, tuple] = {}  # an overflow leaves before anything changes
        for window, a, b in zip(windows.tolist(), bounds[:-1], bounds[1:], strict=True):
            new_keys, new = rows.keys[a:b], rows.values[a:b].copy()
            if window not in table.rows:
                changes[window] = new_keys.copy(), new, slice(None), new
                continue
            keys, values = table.rows[window]
            at = np.searchsorted(keys, new_keys)
            known = keys[np.minimum(at, len(keys) - 1)] == new_keys
            new[known] = self.aggregate.merge(values[at[known]], new[known])
            if not known.all():
                keys = np.insert(keys, at[~known], new_keys[~known])
                values = np.insert(values, at[~known], new[~known], axis=0)
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
        """How far each partition is, at all or as far as the epoch's table brings it."""
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
        """Drop windows, and record what was emitted of them."""
        for window in windows:
            self._tables.get(0, _Epoch()).rows.pop(window, None)
        self._outputs.update([output] if output else [])

    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, each with the checksum of its output."""
        return dict(self._outputs)

    def close(self) -> None:
        """Nothing to let go of."""


class BufferedTable(StateTable):
    """Merges at the speed of memory, in front of a store that gets their sums at the barrier.

    What was merged since the last barrier need not survive the process, so the store does not see
    each batch: it gets every row once. Tables go there in the order of their numbers, which is the
    order in which a server's partitions go through them; so even where a store has the first of two
    without the other, it holds what its offsets say. What it could not write goes on waiting.
    Nobody else uses the store: one process, and in it one thread.

    An OverflowError comes from `merge` when the sums of one barrier leave the 64 bits, from
    `barrier` and `read` when those do that they make together with what the store holds.
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
        """Rows of the store and those that wait."""
        both = self.store.read(window, epoch), self._since.read(window, epoch)
        return self.aggregate.group(Partials.concat(*both))

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """How far each partition is, with what waits."""
        if epoch is None:
            return dict(self._latest)
        return furthest(self.store.progress(epoch), self._since.progress(epoch))

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, there or here."""
        return tuple(sorted({*self.store.epochs(), *self._since.epochs()}))

    def committed(self) -> dict[str, int]:
        """Last epoch of each server in the store."""
        return self.store.committed()

    def barrier(self) -> None:
        """Write what waits into the store."""
        self._write(self._since.epochs())

    def drop(self, epoch: int) -> None:
        """Empty a table, there and here."""
        # how far the partitions are is to stay, and no offset may overtake earlier rows
        self._write(e for e in self._since.epochs() if e <= epoch)
        self.store.drop(epoch)

    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows, there and here."""
        self.store.forget(*windows, output=output)
        self._since.forget(*windows)

    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, as the store recorded them."""
        return self.store.outputs()

    def close(self) -> None:
        """Let go of the store; what waits in memory is gone."""
        self.store.close()

    def _write(self, epochs: Iterable[int]) -> None:
        for epoch in epochs:
            self.store.merge(self._since.read(epoch=epoch), self._since.progress(epoch), epoch)
            self._since.drop(epoch)
