"""The state table in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials, overflow
from aftlib.shared_state.stores.sql import LATEST, SqlTable
from aftlib.shared_state.stores.tables import VERSION, Progress, check_identity, stale

APPLICATION = 0x41465433
_MERGED = {
    "add": "{0} + excluded.{0}",
    "min": "min({0}, excluded.{0})",
    "max": "max({0}, excluded.{0})",
}


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
    """

    def __init__(
        self, path: Path | str, aggregate: Aggregate, flush: str = "merge", timeout_s: float = 30
    ) -> None:
        super().__init__(aggregate, flush)
        self.path = Path(path)
        self._upsert = self._upsert_statement()
        try:
            self._connection = sqlite3.connect(
                self.path, timeout=timeout_s, isolation_level=None, check_same_thread=False
            )
            with self._closing_on_error():
                self._identify()
        except sqlite3.Error as error:
            raise ValueError(
                f"path must be an intact state table or a new file, got {str(path)!r} ({error}); "
                "choose another path, or restore the file from a copy"
            ) from error

    def merge(
        self,
        partials: Partials,
        progress: Mapping[int, Progress],
        epoch: int = 0,
        token: tuple[str, int] | None = None,
    ) -> bool:
        """Merge a batch and its offsets."""
        with self._transaction("merge") as connection:
            if token and not self._note_token(token):
                return False
            connection.execute("INSERT OR IGNORE INTO epochs VALUES (?)", (epoch,))
            for partition, now in progress.items():
                self._note_progress(partition, now, epoch)
            rows = self.aggregate.group(partials)
            columns = (rows.windows, rows.keys, *rows.values.T)
            values = zip(repeat(epoch), *(column.tolist() for column in columns))
            connection.executemany(self._upsert, values)
        return True

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

    def _note_progress(self, partition: int, now: Progress, epoch: int) -> None:
        stands = self._rows(
            "SELECT at FROM progress WHERE epoch = ? AND partition = ?", [LATEST, partition]
        )
        if now.since is not None and stands and stands[0][0] != now.since:
            raise stale(partition, now.since, stands[0][0])
        rest = (partition, *now.stored)
        self._connection.executemany(
            "INSERT INTO progress VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (epoch, partition) DO UPDATE "
            "SET at = max(at, excluded.at), watermark = max(watermark, excluded.watermark), "
            "late = max(late, excluded.late), tuples = max(tuples, excluded.tuples), "
            "rejected = max(rejected, excluded.rejected)",
            [(LATEST, *rest), (epoch, *rest)],
        )

    @contextmanager
    def _transaction(self, act: str) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; durable when it ends, or at the next barrier."""
        connection = self._connection
        with self._failing(act):
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            connection.execute("SAVEPOINT batch")
            try:
                yield connection
                connection.execute("RELEASE batch" if self.flush == "barrier" else "COMMIT")
            except BaseException:
                self._undo()
                raise

    def _undo(self) -> None:
        if self.flush == "merge":
            self._connection.rollback()
        elif self._connection.in_transaction:  # a full disk ends the long transaction as well
            self._connection.execute("ROLLBACK TO batch")
            self._connection.execute("RELEASE batch")

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._connection.close()
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

    def _upsert_statement(self) -> str:
        merged = ", ".join(
            f"{column} = {_MERGED[kind].format(column)}"
            for column, kind in zip(self._columns, self.aggregate.components, strict=True)
        )
        marks = ", ".join("?" * (3 + len(self._columns)))
        return (
            f"INSERT INTO state VALUES ({marks}) ON CONFLICT (epoch, win, key) "
            f"DO UPDATE SET {merged}"
        )

    def _identify(self) -> None:
        self._refuse_others()
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("BEGIN IMMEDIATE")  # two processes may come to a new file at once
        if not self._rows("SELECT name FROM sqlite_master"):
            self._create()
        self._connection.execute("COMMIT")
        found = self._rows("SELECT version, aggregate FROM identity")[0]
        check_identity(self.path, found, self.aggregate, "path")

    def _refuse_others(self) -> None:
        used = self._rows("SELECT name FROM sqlite_master")
        if used and self._rows("PRAGMA application_id") != [(APPLICATION,)]:
            raise ValueError(
                f"path must be a state table, got another's file {str(self.path)!r}; "
                "choose another path"
            )

    def _create(self) -> None:
        values = ", ".join(
            f"{c} INTEGER NOT NULL CHECK (typeof({c}) = 'integer')" for c in self._columns
        )
        for statement in (
            f"PRAGMA application_id = {APPLICATION}",
            "CREATE TABLE identity (version INTEGER, aggregate TEXT)",
            "CREATE TABLE epochs (epoch INTEGER PRIMARY KEY)",
            "CREATE TABLE handed (server TEXT PRIMARY KEY, epoch INTEGER)",
            "CREATE TABLE progress (epoch INTEGER, partition INTEGER, at INTEGER, "
            "watermark INTEGER, late INTEGER, tuples INTEGER, rejected INTEGER, "
            "PRIMARY KEY (epoch, partition)) WITHOUT ROWID",
            f"CREATE TABLE state (epoch INTEGER, win INTEGER, key INTEGER, {values}, "
            "PRIMARY KEY (epoch, win, key)) WITHOUT ROWID",
        ):
            self._connection.execute(statement)
        self._connection.execute(
            "INSERT INTO identity VALUES (?, ?)", (VERSION, self.aggregate.name)
        )
