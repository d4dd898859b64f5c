"""The state table in the memory of one process."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.tables import Output, Progress, StateTable, Token, further


@dataclass
class _Epoch:
    """One table: sorted keys and their values by window, and its partitions' progress."""

    rows: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)


class MemoryTable(StateTable):
    """Sorted arrays by window: a merge costs O(n log m), and O(m) when it brings new keys.

    Nothing survives the process; whoever starts again reads on from the offsets of the store that
    the tables were handed over to. Not locked: one thread at a time.
    """

    durable = False

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._tables: dict[int, _Epoch] = {}
        self._progress: dict[int, Progress] = {}
        self._handed: dict[str, int] = {}
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
        table.progress = further(table.progress, progress)
        self._progress = further(self._progress, progress)
        self._tables[epoch] = table
        self._handed.update([token] if token else [])

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

    def handed(self) -> dict[str, int]:
        """Last epoch that each server handed over to this store."""
        return dict(self._handed)

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
