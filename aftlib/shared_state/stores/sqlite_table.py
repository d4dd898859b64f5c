"""The state table in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path

import numpy as np

from aftlib.core.sqlite import open_database, transaction
from aftlib.shared_state.aggregates import Aggregate, Partials, overflow
from aftlib.shared_state.stores.sql import SqlTable
from aftlib.shared_state.stores.tables import check_identity

APPLICATION = 0x41465433


class SqliteTable(SqlTable):
    """Rows (epoch, win, key, values) that anybody can query, in one file.

    Every merge is fsynced to the write-ahead log. Processes may share a file: one writes at a time,
    and waits up to `timeout_s` seconds for its turn, then a TimeoutError says so.
    """

    value = "{0} integer NOT NULL CHECK (typeof({0}) = 'integer')"
    suffix = " WITHOUT ROWID"

    def __init__(self, path: Path | str, aggregate: Aggregate, timeout_s: float = 30) -> None:
        super().__init__(aggregate)
        self.path = Path(path)

        def create(connection: sqlite3.Connection) -> None:
            self._connection = connection
            self._create()

        def check(connection: sqlite3.Connection) -> None:
            found = connection.execute("SELECT version, aggregate FROM identity").fetchone()
            check_identity(self.path, found, aggregate, "path")

        self._connection = open_database(
            path, "a state table", APPLICATION, create=create, check=check, timeout_s=timeout_s
        )

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""
        columns, where = ", ".join(["win", "key", *self._columns]), "epoch = ?"
        chosen: list[int] = [epoch]
        if window is not None:
            where, chosen = where + " AND win = ?", [epoch, window]
        found = self._rows(f"SELECT {columns} FROM state WHERE {where} ORDER BY win, key", chosen)
        rows = np.array(found, dtype=np.int64).reshape(-1, 2 + len(self._columns))
        return Partials(rows[:, 0], rows[:, 1], rows[:, 2:])

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _add(self, rows: Partials, epoch: int) -> None:
        columns = (rows.windows, rows.keys, *rows.values.T)
        values = zip(repeat(epoch), *(column.tolist() for column in columns))
        marks = ", ".join("?" * (1 + len(columns)))
        try:
            self._connection.executemany(self._upsert(f"VALUES ({marks})"), values)
        except sqlite3.IntegrityError as error:  # the column takes integers only
            raise overflow() from error

    def _transaction(self, act: str) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self._connection, f"{act} in")

    def _execute(self, query: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._connection.execute(query, values)

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        return self._execute(query, values).fetchall()
