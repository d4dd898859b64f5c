"""The sink: an SQLite table of window results; writing the same results again changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import astuple, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from aftlib.core.sqlite import open_database, transaction

if TYPE_CHECKING:
    import pandas as pd


APPLICATION = 0x41465459
_SCHEMA = (
    "CREATE TABLE query (identity TEXT NOT NULL)",
    "CREATE TABLE coordinator (id INTEGER PRIMARY KEY CHECK (id = 1), state BLOB NOT NULL)",
    """CREATE TABLE windows (
    start INTEGER NOT NULL, stop INTEGER NOT NULL, key TEXT NOT NULL, value REAL,
    half_width REAL, estimated INTEGER NOT NULL, samples INTEGER NOT NULL,
    PRIMARY KEY (start, key)) WITHOUT ROWID""",
    """CREATE TABLE outages (
    worker INTEGER NOT NULL, failure INTEGER NOT NULL, recovery INTEGER NOT NULL,
    crashed_pid INTEGER, replacement_pid INTEGER, PRIMARY KEY (worker, failure)) WITHOUT ROWID""",
)
_AT_ONCE = 100  # rows per statement, because an old SQLite permits 999 values
_UPSERT = """
INSERT INTO windows VALUES {} ON CONFLICT (start, key) DO UPDATE SET
  value = excluded.value, half_width = excluded.half_width,
  estimated = excluded.estimated, samples = excluded.samples
  WHERE windows.estimated OR NOT excluded.estimated
"""


@dataclass(frozen=True)
class Outage:
    """A worker that was down: its input of the steps [failure, recovery) is gone."""

    worker: int  # index in the assignment
    failure: int
    recovery: int
    crashed_pid: int | None = None  # the processes before and after the outage
    replacement_pid: int | None = None


class WindowSink:
    """Results by (window start, key), and the outages that explain the estimates among them.

    Invariant: `write` is one transaction and idempotent, so a micro-batch that runs twice leaves
    the same rows as one that runs once. An estimate never replaces an exact value. `path` is an
    SQLite file, created when absent. ValueError if it cannot be written, is no sink, or belongs to
    another `query`. Without a query any sink is opened.
    """

    def __init__(self, path: Path | str, query: str | None = None) -> None:
        self.path, self.query = Path(path), query
        self._connection().close()

    def write(
        self, rows: Iterable[tuple], outages: Iterable[Outage] = (), coordinator: bytes = b""
    ) -> None:
        """Upsert rows (start, stop, key, value, half_width, estimated, samples) and outages.

        The coordinator's state, unless it is empty, goes into the same transaction.
        """
        known = [astuple(outage) for outage in outages]
        with (
            closing(self._connection()) as connection,
            transaction(connection, "write windows to"),
        ):
            left = iter(rows)
            while some := list(islice(left, _AT_ONCE)):
                statement = _UPSERT.format(", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * len(some)))
                connection.execute(statement, list(chain.from_iterable(some)))
            connection.executemany("INSERT OR REPLACE INTO outages VALUES (?, ?, ?, ?, ?)", known)
            if coordinator:
                connection.execute(
                    "INSERT OR REPLACE INTO coordinator VALUES (1, ?)", [coordinator]
                )

    def coordinator(self) -> bytes:
        """State of the coordinator after the last write; empty before the first."""
        rows = self._rows("SELECT state FROM coordinator")
        return rows[0][0] if rows else b""

    def windows(self) -> pd.DataFrame:
        """Return all results, ordered by start and key.

        Columns: start, stop, key, value, half_width, estimated, samples.
        """
        import pandas as pd  # here, because the source opens a sink in a process without pandas

        with closing(self._connection()) as connection:
            frame = pd.read_sql("SELECT * FROM windows ORDER BY start, key", connection)
        return frame.astype({"estimated": bool, "value": float, "half_width": float})

    def count(self, before: int) -> int:
        """Number of results of windows that begin before a step."""
        return self._rows("SELECT count(*) FROM windows WHERE start < ?", before)[0][0]

    def exact(self, starts: Iterable[int]) -> dict[tuple[int, str], tuple[float, int]]:
        """Value and samples by (start, key) of the exact results of some windows."""
        results = {}
        with closing(self._connection()) as connection:
            for start in starts:
                rows = connection.execute(
                    "SELECT key, value, samples FROM windows WHERE start = ? AND NOT estimated",
                    [start],
                )
                for key, value, samples in rows:
                    results[start, key] = (float("nan") if value is None else value, samples)
        return results

    def outages(self) -> list[Outage]:
        """Outages in the order of failure and worker."""
        return [Outage(*o) for o in self._rows("SELECT * FROM outages ORDER BY failure, worker")]

    def held(self) -> dict[int, int]:
        """For each worker that was down, the step from which it has its input again."""
        return dict(self._rows("SELECT worker, max(recovery) FROM outages GROUP BY worker"))

    def _rows(self, query: str, *values: object) -> list[tuple]:
        with closing(self._connection()) as connection:
            return connection.execute(query, values).fetchall()

    def _connection(self) -> sqlite3.Connection:
        def create(connection: sqlite3.Connection) -> None:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO query VALUES (?)", [self.query or ""])

        def check(connection: sqlite3.Connection) -> None:
            identity = connection.execute("SELECT identity FROM query").fetchone()[0]
            if self.query is not None and identity != self.query:
                raise ValueError(
                    f"path holds the results of another query, {str(self.path)!r}: its log, "
                    "windows, model, assignment, requirement or guard differ; choose another "
                    "directory"
                )

        return open_database(
            self.path, "a sink of windows", APPLICATION, create=create, check=check
        )
