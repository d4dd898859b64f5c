"""What the state tables in SQL databases have in common: their tables, and what asks them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from aftlib.shared_state.aggregates import Aggregate
from aftlib.shared_state.stores.tables import Progress, StateTable

LATEST = -1
"""In the table `progress`, the epoch that stands for all."""

# from one window to the next, not from row to row
_WINDOWS = """
WITH RECURSIVE found (win) AS (
  SELECT min(win) FROM state WHERE epoch = ?
  UNION ALL
  SELECT (SELECT min(s.win) FROM state AS s WHERE s.epoch = ? AND s.win > found.win)
  FROM found WHERE found.win IS NOT NULL)
SELECT win FROM found WHERE win IS NOT NULL
"""


class SqlTable(StateTable):
    """Tables state (epoch, win, key, values), progress, epochs and handed; values stand as ``?``.

    Parameters
    ----------
    aggregate : Aggregate
        How values merge; each of its components is a column.
    flush : {"merge", "barrier"}
        What survives the process.
    """

    def __init__(self, aggregate: Aggregate, flush: str) -> None:
        super().__init__(aggregate, flush)
        self._columns = [f"value{i}" for i in range(len(aggregate.components))]

    def windows(self, epoch: int = 0) -> np.ndarray:
        """Windows that hold something, ascending."""
        found = self._rows(_WINDOWS, [epoch, epoch])
        return np.array([window for (window,) in found], dtype=np.int64)

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """How far each partition is, at all or as far as the epoch's table brings it."""
        found = self._rows(
            "SELECT partition, at, watermark, late, tuples, rejected FROM progress WHERE epoch = ?",
            [LATEST if epoch is None else epoch],
        )
        return {partition: Progress(*rest) for partition, *rest in found}

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""
        found = self._rows("SELECT epoch FROM epochs ORDER BY epoch")
        return tuple(epoch for (epoch,) in found)

    def handed(self) -> dict[str, int]:
        """Last epoch that each server handed over to this store."""
        return dict(self._rows("SELECT server, epoch FROM handed"))

    def drop(self, epoch: int) -> None:
        """Empty a table."""
        with self._transaction("drop"):
            for table in ("state", "progress", "epochs"):
                self._execute(f"DELETE FROM {table} WHERE epoch = ?", [epoch])

    def forget(self, window: int, epoch: int = 0) -> None:
        """Drop a window that has been put out."""
        with self._transaction("forget"):
            self._execute("DELETE FROM state WHERE epoch = ? AND win = ?", [epoch, window])

    def _note_token(self, token: tuple[str, int]) -> bool:
        """Note a hand-over; False when it, or a later one of the server, was noted before."""
        done = self._execute(
            "INSERT INTO handed VALUES (?, ?) ON CONFLICT (server) DO UPDATE "
            "SET epoch = excluded.epoch WHERE handed.epoch < excluded.epoch",
            token,
        )
        return done.rowcount == 1

    @abstractmethod
    def _transaction(self, act: str) -> AbstractContextManager[Any]:
        """All of it or nothing; durable when it ends, or at the next barrier."""

    @abstractmethod
    def _execute(self, query: str, values: Sequence[object] = ()) -> Any:
        """Cursor of a statement, within a transaction."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        """What a query finds."""
