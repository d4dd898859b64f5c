"""The state table in the memory of one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.tables import Progress, StateTable, check_since, furthest


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
        table, batch = self._tables.get(epoch, _Epoch()), self.aggregate.group(partials)
        windows, first = np.unique(batch.windows, return_index=True)
        bounds = [*first, len(batch)]

        changes: dict[int, tuple] = {}  # an overflow leaves before anything changes
        for window, a, b in zip(windows.tolist(), bounds[:-1], bounds[1:], strict=True):
            new_keys, new = batch.keys[a:b], batch.values[a:b].copy()
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
