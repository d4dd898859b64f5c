"""The state table in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import numpy as np

from aftlib.core.sqlite import open_database
from aftlib.shared_state.aggregates import Aggregate, Partials, overflow
from aftlib.shared_state.stores.sql import SqlTable
from aftlib.shared_state.stores.tables import check_identity

APPLICATION = 0x41465433


class SqliteTable(SqlTable):
    """Rows (epoch, win, key, values) that anybody can query, in one file.

    With flush="merge" every merge is a transaction of its own and fsynced to the write-ahead log.
    With flush="barrier" a batch is a savepoint of one long transaction, committed and fsynced by
    `barrier`: until then it is seen by this process only and dies with it. Processes may share a
    file (one writes at a time, and waits up to `timeout_s` for its turn) with flush="merge".

    Parameters
    ----------
    path : path
        SQLite file, made when absent.
    aggregate : Aggregate
        How values merge.
    flush : {"merge", "barrier"}
        What survives the process.
    timeout_s : float
        Seconds to wait while another process writes.

    Raises
    ------
    ValueError
        When the file holds something else, is damaged, or is of another version or aggregate.
    TimeoutError
        When others write to the file for all that time.
    """

    value = "{0} integer NOT NULL CHECK (typeof({0}) = 'integer')"
    suffix = " WITHOUT ROWID"

    def __init__(
        self, path: Path | str, aggregate: Aggregate, flush: str = "merge", timeout_s: float = 30
    ) -> None:
        super().__init__(aggregate, flush)
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

    def barrier(self) -> None:
        """Commit what was merged since the last one, and fsync it."""
        if self._connection.in_transaction:
            with self._failing("flush"):
                self._connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file; what no `barrier` has flushed is gone."""
        self._connection.close()

    def _add(self, rows: Partials, epoch: int) -> None:
        columns = (rows.windows, rows.keys, *rows.values.T)
        values = zip(repeat(epoch), *(column.tolist() for column in columns))
        marks = ", ".join("?" * (1 + len(columns)))
        self._connection.executemany(self._upsert(f"VALUES ({marks})"), values)

    @contextmanager
    def _transaction(self, act: str) -> Iterator[None]:
        connection = self._connection
        with self._failing(act):
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            connection.execute("SAVEPOINT batch")
            try:
                yield
                connection.execute("RELEASE batch" if self.flush == "barrier" else "COMMIT")
            except BaseException:
                if self.flush == "merge":
                    connection.rollback()
                elif connection.in_transaction:  # a full disk ends the long transaction as well
                    connection.execute("ROLLBACK TO batch")
                    connection.execute("RELEASE batch")
                raise

    @contextmanager
    def _failing(self, act: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:  # the column takes integers only
            raise overflow() from error
        except sqlite3.DatabaseError as error:
            before = "before it" if self.flush == "merge" else "before the last barrier"
            raise OSError(
                f"could not {act} in {str(self.path)!r} ({error}); nothing of it was kept and "
                f"nothing {before} is lost: free some space or end who holds it, and start again"
            ) from error

    def _execute(self, query: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._connection.execute(query, values)

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        return self._execute(query, values).fetchall()
