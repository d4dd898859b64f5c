"""The checkpoint store in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from aftlib.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
    WindowResult,
)

APPLICATION = 0x41465431
VERSION = 1
_SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE stream (fingerprint TEXT NOT NULL);
CREATE TABLE begun (batch INTEGER, start INTEGER, run TEXT, PRIMARY KEY (batch, run));
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), checkpoint BLOB NOT NULL);
CREATE TABLE batches (
  batch INTEGER PRIMARY KEY, start INTEGER, stop INTEGER, recovered INTEGER, sensors INTEGER,
  res_ms REAL, rep_ms REAL, est_ms REAL);
CREATE TABLE windows (
  start INTEGER, stop INTEGER, key TEXT, value REAL, half_width REAL, samples INTEGER,
  PRIMARY KEY (start, key));
"""


class SqliteCheckpoints(CheckpointStore):
    """Checkpoints, batches and finished windows of one stream.

    A commit is flushed to the disk (`synchronous = FULL` with a write-ahead log), so it survives a
    power failure as far as the disk keeps what it confirmed. Reading takes no lock.

    Parameters
    ----------
    path : path
        SQLite file, made when absent.
    fingerprint : str
        What identifies the stream: a file of another one is refused.

    Raises
    ------
    ValueError
        When the file is no such store, of another version, or of another stream.
    """

    def __init__(self, path: Path | str, fingerprint: str) -> None:
        self.path = Path(path)
        try:
            self._connection = self._connect()
            found = _identity(self._connection)
            if found == (0, 0, None) and not _tables(self._connection):
                _create(self._connection, fingerprint)
                found = (APPLICATION, VERSION, fingerprint)
        except sqlite3.Error as error:
            raise ValueError(
                f"path must be a checkpoint store or a new file, got {str(path)!r} ({error}); "
                "choose another path, or restore the file from a copy"
            ) from error
        if found[0] != APPLICATION:
            raise ValueError(f"path must be a checkpoint store, got another's file {str(path)!r}")
        if found[1] != VERSION:
            raise ValueError(
                f"path must be of version {VERSION}, got version {found[1]} in {str(path)!r}; "
                "finish the stream with the release that began it"
            )
        if found[2] != fingerprint:
            raise ValueError(
                f"path belongs to another stream ({found[2]}), not to this one ({fingerprint}): "
                f"{str(path)!r}; the log, model, window and plan must be those it began with"
            )

    def begin(self, batch: int, start: int, run: str) -> bool:
        """Note that process `run` begins a batch; True when another process began it before."""
        with self._connection as connection:
            connection.execute("INSERT OR IGNORE INTO begun VALUES (?, ?, ?)", (batch, start, run))
        return self.begun_by_another(start, run)

    def begun_by_another(self, start: int, run: str) -> bool:
        """Whether another process than `run` began a batch at this step."""
        found = self._rows("SELECT 1 FROM begun WHERE start = ? AND run != ? LIMIT 1", start, run)
        return bool(found)

    def restore(self) -> Checkpoint | None:
        """The last checkpoint, None before the first."""
        rows = self._rows("SELECT checkpoint FROM state")
        return Checkpoint.from_bytes(rows[0][0]) if rows else None

    def committed(self, batch: int) -> bool:
        """Whether the batch is part of the state."""
        return bool(self._rows("SELECT 1 FROM batches WHERE batch = ?", batch))

    def commit(
        self, checkpoint: Checkpoint, results: Sequence[WindowResult], record: IntervalRecord
    ) -> None:
        """Make the batch, its checkpoint and its windows durable."""
        try:
            with self._connection as connection:
                self._write_state(connection, checkpoint, results)
                self._write_batch(connection, record)
        except sqlite3.OperationalError as error:
            raise OSError(
                f"could not commit batch {record.batch} to {str(self.path)!r} ({error}); nothing "
                "of it was kept and nothing before it is lost: free some space and start again"
            ) from error

    def results(self) -> list[WindowResult]:
        """Windows finished so far, by start and key."""
        rows = self._rows("SELECT * FROM windows ORDER BY start, key")
        return [WindowResult(*_nan(row)) for row in rows]

    def records(self) -> list[IntervalRecord]:
        """Batches committed so far, in order."""
        rows = self._rows("SELECT * FROM batches ORDER BY batch")
        return [
            IntervalRecord(b, start, stop, bool(recovered), *rest)
            for b, start, stop, recovered, *rest in rows
        ]

    def _write_state(
        self,
        connection: sqlite3.Connection,
        checkpoint: Checkpoint,
        results: Sequence[WindowResult],
    ) -> None:
        connection.execute("REPLACE INTO state VALUES (1, ?)", (checkpoint.to_bytes(),))
        rows = [astuple(result) for result in results]
        connection.executemany("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?)", rows)

    def _write_batch(self, connection: sqlite3.Connection, record: IntervalRecord) -> None:
        connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(record))

    def _rows(self, query: str, *values: object) -> list[tuple]:
        return self._connection.execute(query, values).fetchall()

    def _connect(self) -> sqlite3.Connection:
        # Spark calls back on threads of its own, one at a time
        connection = sqlite3.connect(self.path, timeout=30, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection


def _create(connection: sqlite3.Connection, fingerprint: str) -> None:
    connection.executescript(f"BEGIN; {_SCHEMA}")
    connection.execute("INSERT INTO stream VALUES (?)", (fingerprint,))
    connection.commit()


def _identity(connection: sqlite3.Connection) -> tuple[int, int, str | None]:
    """Application, version and stream that a file says it is."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        return application, version, None
    row = connection.execute("SELECT fingerprint FROM stream").fetchone()
    return application, version, row[0] if row else None


def _tables(connection: sqlite3.Connection) -> list[tuple]:
    return connection.execute("SELECT name FROM sqlite_master").fetchall()


def _nan(row: tuple) -> tuple:
    """SQLite keeps NaN as NULL."""
    return (*row[:3], float("nan") if row[3] is None else row[3], *row[4:])
