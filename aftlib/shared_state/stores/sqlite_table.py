"""The state table in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import repeat
from pathlib import Path

import numpy as np

from aftlib.core.sqlite import open_database, transaction
from aftlib.shared_state.aggregates import Aggregate, Partials, overflow
from aftlib.shared_state.stores.sql import SqlTable
from aftlib.shared_state.stores.tables import check_identity
from aftlib.shared_state.stores.waiting import patiently

APPLICATION = 0x41465433
TURN_S = 1.0
"""Seconds that one try waits for others; after it the log reports them."""
PACKED = 2**20
"""Rows of a window that one blob holds at most."""


class SqliteTable(SqlTable):
    """Rows (epoch, win, key, values) of table 0 that anybody can query, in one file.

    The tables of later epochs, which a server hands over whole, stand packed instead: a window's
    rows in blobs, sorted, which are written at a twentieth of the rows' cost.

    Every merge is fsynced to the write-ahead log. Processes may share a file: one writes at a time,
    and waits up to `timeout_s` seconds for its turn, then a TimeoutError says so.
    """

    value = "{0} integer NOT NULL CHECK (typeof({0}) = 'integer')"
    suffix = " WITHOUT ROWID"
    tables = *SqlTable.tables, "packed"

    def __init__(self, path: Path | str, aggregate: Aggregate, timeout_s: float = 30) -> None:
        super().__init__(aggregate)
        self.path = Path(path)

        def create(connection: sqlite3.Connection) -> None:
            self._connection = connection
            self._create()
            self._execute(
                "CREATE TABLE packed (epoch bigint, win bigint, part bigint, data blob, "
                "PRIMARY KEY (epoch, win, part))"
            )

        def check(connection: sqlite3.Connection) -> None:
            found = connection.execute("SELECT version, aggregate FROM identity").fetchone()
            check_identity(self.path, found, aggregate, "path")

        self._timeout_s, turn_s = timeout_s, min(TURN_S, timeout_s)
        self._connection = patiently(
            lambda: open_database(
                path, "a state table", APPLICATION, create=create, check=check, timeout_s=turn_s
            ),
            timeout_s,
            TimeoutError,
            0,
        )

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""
        where, chosen = "epoch = ?", [epoch]
        if window is not None:
            where, chosen = where + " AND win = ?", [epoch, window]
        if epoch:
            query = f"SELECT win, data FROM packed WHERE {where} ORDER BY win, part"
            blobs = self._rows(query, chosen)
            return self._unpacked([win for win, _ in blobs], [blob for _, blob in blobs])
        columns = ", ".join(["win", "key", *self._columns])
        found = self._rows(f"SELECT {columns} FROM state WHERE {where} ORDER BY win, key", chosen)
        rows = np.array(found, dtype=np.int64).reshape(-1, 2 + len(self._columns))
        return Partials(rows[:, 0], rows[:, 1], rows[:, 2:])

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _add(self, rows: Partials, epoch: int) -> None:
        if epoch:  # its table is packed: merge into the windows that the rows touch
            windows, first = np.unique(rows.windows, return_index=True)
            ends = [*first[1:].tolist(), len(rows)]
            for window, begin, end in zip(windows.tolist(), first.tolist(), ends, strict=True):
                held = self.read(window, epoch)
                new = self.aggregate.group(Partials.concat(held, rows[begin:end]))
                packed = np.column_stack([new.keys, new.values]).astype("<i8")
                starts = range(0, len(packed), PACKED)
                blobs = [(epoch, window, at, packed[at : at + PACKED].tobytes()) for at in starts]
                statement = "INSERT OR REPLACE INTO packed VALUES (?, ?, ?, ?)"
                self._connection.executemany(statement, blobs)
            return
        columns = (rows.windows, rows.keys, *rows.values.T)
        values = zip(repeat(epoch), *(column.tolist() for column in columns))
        marks = ", ".join("?" * (1 + len(columns)))
        try:
            self._connection.executemany(self._upsert(f"VALUES ({marks})"), values)
        except sqlite3.IntegrityError as error:  # the column takes integers only
            raise overflow() from error

    @contextmanager
    def _transaction(self, act: str) -> Iterator[None]:
        with self._failing(), ExitStack() as block:
            patiently(
                lambda: block.enter_context(transaction(self._connection, f"{act} in")),
                self._timeout_s,
                TimeoutError,
                0,
            )
            yield

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"path must be an intact state table, got {str(self.path)!r} ({error}): it was "
                "damaged or replaced, or lies beside the -wal file of another moment; restore file "
                "and -wal from a copy of one moment, or begin anew in another place"
            ) from error

    def _execute(self, query: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._connection.execute(query, values)

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        with self._failing():
            return self._execute(query, values).fetchall()
