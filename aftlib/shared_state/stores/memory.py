"""The state table in the memory of one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.tables import Progress, StateTable, check_since, furthest

_Change = tuple[np.ndarray, np.ndarray, np.ndarray | slice, np.ndarray]
"""Keys and values of a window as they will be, and which values become what."""


@dataclass
class _Epoch:
    """One table: sorted keys and their values by window, and its partitions' progress."""

    rows: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)


class MemoryTable(StateTable):
    """Sorted arrays by window: a merge costs O(n log m), and O(m) when it brings new keys.

    Nothing survives the process; whoever starts again reads on from the offsets of the store that
    the tables were handed over to. Not locked: one thread at a time.

    Parameters
    ----------
    aggregate : Aggregate
        How values merge.
    """

    durable = False

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._tables: dict[int, _Epoch] = {}
        self._progress: dict[int, Progress] = {}
        self._handed: dict[str, int] = {}

    def merge(
        self,
        partials: Partials,
        progress: Mapping[int, Progress],
        epoch: int = 0,
        token: tuple[str, int] | None = None,
    ) -> bool:
        """Merge a batch and its offsets."""
        if token and self._handed.get(token[0], -1) >= token[1]:
            return False
        check_since(progress, self._progress)
        table = self._tables.get(epoch, _Epoch())
        changes = self._changes(table, partials)  # an overflow leaves before anything changes
        for window, (keys, values, at, merged) in changes.items():
            values[at] = merged
            table.rows[window] = keys, values
        for partition, now in progress.items():
            for kept in (table.progress, self._progress):
                kept[partition] = furthest(kept.get(partition), now)
        self._tables[epoch] = table
        if token:
            self._handed[token[0]] = token[1]
        return True

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""
        rows = self._tables.get(epoch, _Epoch()).rows
        chosen = sorted(rows) if window is None else [w for w in (window,) if w in rows]
        parts = [Partials(np.full(len(rows[w][0]), w), *rows[w]) for w in chosen]
        return Partials.concat(Partials.empty(len(self.aggregate.components)), *parts)

    def windows(self, epoch: int = 0) -> np.ndarray:
        """Windows that hold something, ascending."""
        return np.array(sorted(self._tables.get(epoch, _Epoch()).rows), dtype=np.int64)

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """How far each partition is, at all or as far as the epoch's table brings it."""
        if epoch is None:
            return dict(self._progress)
        return dict(self._tables.get(epoch, _Epoch()).progress)

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""
        return tuple(sorted(self._tables))

    def handed(self) -> dict[str, int]:
        """Last epoch that each server handed over to this store."""
        return dict(self._handed)

    def barrier(self) -> None:
        """Nothing to do: nothing here survives the process."""

    def drop(self, epoch: int) -> None:
        """Empty a table."""
        self._tables.pop(epoch, None)

    def forget(self, window: int, epoch: int = 0) -> None:
        """Drop a window that has been put out."""
        self._tables.get(epoch, _Epoch()).rows.pop(window, None)

    def close(self) -> None:
        """Nothing to let go of."""

    def _changes(self, table: _Epoch, partials: Partials) -> dict[int, _Change]:
        """What becomes of every window that the batch touches."""
        batch = self.aggregate.group(partials)
        windows, first = np.unique(batch.windows, return_index=True)
        bounds = np.append(first, len(batch))
        return {
            int(window): self._change(table.rows.get(int(window)), batch[a:b])
            for window, a, b in zip(windows, bounds, bounds[1:], strict=False)
        }

    def _change(self, before: tuple[np.ndarray, np.ndarray] | None, batch: Partials) -> _Change:
        if before is None:
            return batch.keys.copy(), batch.values.copy(), slice(None), batch.values
        keys, values = before
        at = np.searchsorted(keys, batch.keys)
        known = keys[np.minimum(at, len(keys) - 1)] == batch.keys
        merged = batch.values.copy()
        merged[known] = self.aggregate.merge(values[at[known]], batch.values[known])
        if not known.all():
            places, new = at[~known], ~known
            keys = np.insert(keys, places, batch.keys[new])
            values = np.insert(values, places, batch.values[new], axis=0)
            at = np.searchsorted(keys, batch.keys)
        return keys, values, at, merged
