"""The sink: an SQLite table of window results in which writing twice is writing once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pandas as pd

from aftlib.approximately_once.master import Outage

_SCHEMA = """
CREATE TABLE IF NOT EXISTS windows (
  start INTEGER NOT NULL, stop INTEGER NOT NULL, key TEXT NOT NULL, value REAL,
  half_width REAL, estimated INTEGER NOT NULL, samples INTEGER NOT NULL,
  PRIMARY KEY (start, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outages (
  worker INTEGER NOT NULL, failure INTEGER NOT NULL, recovery INTEGER NOT NULL,
  dead_pid INTEGER, substitute_pid INTEGER, PRIMARY KEY (worker, failure)) WITHOUT ROWID;
"""
_UPSERT = """
INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (start, key) DO UPDATE SET
  value = excluded.value, half_width = excluded.half_width,
  estimated = excluded.estimated, samples = excluded.samples
"""


class WindowSink:
    """Results by (window start, key), and the outages that explain the estimates among them.

    Invariant: `write` is one transaction and idempotent, so a micro-batch that runs twice leaves
    what it would have left once.

    Parameters
    ----------
    path : path
        SQLite file; made when absent.

    Raises
    ------
    ValueError
        When the file cannot be written or is no such sink.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            with closing(self._connect()) as connection:
                connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise ValueError(
                f"path must be a writable SQLite file or a new one, got {str(path)!r} ({error}); "
                "choose another place for the sink"
            ) from error

    def write(self, rows: Iterable[tuple], outages: Iterable[Outage] = ()) -> None:
        """Upsert rows (start, stop, key, value, half_width, estimated, samples) and outages."""
        known = [(o.worker, o.failure, o.recovery, o.dead_pid, o.substitute_pid) for o in outages]
        with closing(self._connect()) as connection, connection:
            connection.executemany(_UPSERT, rows)
            connection.executemany("INSERT OR REPLACE INTO outages VALUES (?, ?, ?, ?, ?)", known)

    def windows(self) -> pd.DataFrame:
        """All results by start and key: start, stop, key, value, half_width, estimated, samples."""
        with closing(self._connect()) as connection:
            frame = pd.read_sql("SELECT * FROM windows ORDER BY start, key", connection)
        return frame.astype({"estimated": bool, "value": float, "half_width": float})

    def outages(self) -> list[Outage]:
        """Outages by failure and worker."""
        with closing(self._connect()) as connection:
            rows = connection.execute("SELECT * FROM outages ORDER BY failure, worker")
            return [Outage(*row) for row in rows.fetchall()]

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)
