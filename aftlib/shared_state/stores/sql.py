"""State tables in SQL databases: the statements they share, and the table in one SQLite file."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from aftlib.core.sqlite import open_database, transaction
from aftlib.shared_state.aggregates import Aggregate, Partials, overflow
from aftlib.shared_state.liveness import patiently
from aftlib.shared_state.stores.tables import (
    VERSION,
    Output,
    Progress,
    StateTable,
    Token,
    check_identity,
)

LATEST = -1
"""Epoch in the table `progress` that stands for all tables together."""

# steps from window to window instead of reading all rows
_WINDOWS = """
WITH RECURSIVE filled (win) AS (
  SELECT min(win) FROM state WHERE epoch = 0
  UNION ALL
  SELECT (SELECT min(s.win) FROM state AS s WHERE s.epoch = 0 AND s.win > filled.win)
  FROM filled WHERE filled.win IS NOT NULL)
SELECT win FROM filled WHERE win IS NOT NULL
"""
_STORED = ("at", "watermark", "late", "tuples", "rejected")
"""Columns of a partition's progress."""
_REPLACE = "ON CONFLICT (server) DO UPDATE SET epoch = excluded.epoch"


class SqlTable(StateTable):
    """State table in an SQL database.

    Its tables are state (epoch, win, key, values), progress, epochs, commits and outputs. Each
    component of the aggregate is a column. Statements have ``?`` for their values.
    """

    least, greatest = "min", "max"
    """The database's names for the lesser and the greater of two numbers."""
    value = "{} bigint NOT NULL"
    """Declaration of a column of values."""
    suffix = ""
    """Text after the declaration of a table that has a primary key."""
    tables: tuple[str, ...] = "state", "progress", "epochs"
    """Tables with rows of single epochs."""

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._columns = [f"value{i}" for i in range(len(aggregate.components))]

    def _merge(
        self, rows: Partials, progress: dict[int, Progress], epoch: int, token: Token | None
    ) -> None:
        if token:
            self._execute(f"INSERT INTO commits VALUES (?, ?) {_REPLACE}", token)
        self._execute("INSERT INTO epochs VALUES (?) ON CONFLICT DO NOTHING", [epoch])
        furthest = ", ".join(f"{n} = {self.greatest}(p.{n}, excluded.{n})" for n in _STORED)
        statement = (
            "INSERT INTO progress AS p VALUES (?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT (epoch, partition) DO UPDATE SET {furthest}"
        )
        for partition, now in progress.items():
            for table in (LATEST, epoch):
                self._execute(statement, [table, partition, *now.stored])
        if len(rows):
            self._add(rows, epoch)

    def windows(self) -> np.ndarray:
        """Windows that hold something, ascending."""
        return np.array([window for (window,) in self._rows(_WINDOWS)], dtype=np.int64)

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """Progress of each partition in the table `epoch`; over all tables if `epoch` is None."""
        rows = self._rows(
            f"SELECT partition, {', '.join(_STORED)} FROM progress WHERE epoch = ?",
            [LATEST if epoch is None else epoch],
        )
        return {partition: Progress(*rest) for partition, *rest in rows}

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""
        rows = self._rows("SELECT epoch FROM epochs ORDER BY epoch")
        return tuple(epoch for (epoch,) in rows)

    def committed(self) -> dict[str, int]:
        """Last epoch that each server committed to this store."""
        return dict(self._rows("SELECT server, epoch FROM commits"))

    def drop(self, epoch: int) -> None:
        """Empty a table."""
        with self._transaction("drop"):
            for table in self.tables:
                self._execute(f"DELETE FROM {table} WHERE epoch = ?", [epoch])

    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows, and record their emitted results."""
        with self._transaction("forget"):
            for window in windows:
                self._execute("DELETE FROM state WHERE epoch = 0 AND win = ?", [window])
            if output:
                self._execute("INSERT INTO outputs VALUES (?, ?)", output)

    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, each with the checksum of its output."""
        return dict(self._rows("SELECT win, checksum FROM outputs"))

    def _upsert(self, source: str) -> str:
        """Statement that merges the rows of a source into the table `state`."""
        changes = {
            "add": "{0} = state.{0} + excluded.{0}",
            "min": f"{{0}} = {self.least}(state.{{0}}, excluded.{{0}})",
            "max": f"{{0}} = {self.greatest}(state.{{0}}, excluded.{{0}})",
        }
        kinds = zip(self._columns, self.aggregate.components, strict=True)
        merged = ", ".join(changes[kind].format(column) for column, kind in kinds)
        return f"INSERT INTO state {source} ON CONFLICT (epoch, win, key) DO UPDATE SET {merged}"

    def _create(self) -> None:
        """Create the tables, and record version and aggregate."""
        values = ", ".join(self.value.format(column) for column in self._columns)
        stored = ", ".join(f"{name} bigint" for name in _STORED)
        for table in (
            "epochs (epoch bigint PRIMARY KEY)",
            "commits (server text PRIMARY KEY, epoch bigint)",
            "outputs (win bigint PRIMARY KEY, checksum bigint)",
            f"progress (epoch bigint, partition bigint, {stored}, PRIMARY KEY (epoch, partition))",
            f"state (epoch bigint, win bigint, key bigint, {values}, "
            "PRIMARY KEY (epoch, win, key))",
        ):
            self._execute(f"CREATE TABLE {table}{self.suffix}")
        self._execute("CREATE TABLE identity (version integer, aggregate text)")
        self._execute("INSERT INTO identity VALUES (?, ?)", [VERSION, self.aggregate.name])

    @abstractmethod
    def _add(self, rows: Partials, epoch: int) -> None:
        """Merge rows into the table `state`, within a transaction."""

    @abstractmethod
    def _execute(self, query: str, values: Sequence[object] = ()) -> Any:
        """Execute a statement within a transaction; return its cursor."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        """Return the rows of a query."""


APPLICATION = 0x41465433
TURN_S = 1.0
"""Seconds that one try waits for other processes; the log reports longer waits."""
PACKED = 2**20
"""Most rows of a window in one blob."""


class SqliteTable(SqlTable):
    """State table in one SQLite file; table 0 has rows (epoch, win, key, values) to query.

    A server commits the table of a later epoch as a whole. So the sorted rows of each window are
    packed into blobs. Writing blobs costs a twentieth of writing rows.

    Every merge is fsynced to the write-ahead log. Processes may share a file: one writes at a time.
    The others wait for up to `timeout_s` seconds, then raise a TimeoutError.
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
            identity = connection.execute("SELECT version, aggregate FROM identity").fetchone()
            check_identity(self.path, identity, aggregate, "path")

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
        records = self._rows(f"SELECT {columns} FROM state WHERE {where} ORDER BY win, key", chosen)
        rows = np.array(records, dtype=np.int64).reshape(-1, 2 + len(self._columns))
        return Partials(rows[:, 0], rows[:, 1], rows[:, 2:])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _add(self, rows: Partials, epoch: int) -> None:
        if epoch:  # its table is packed: merge into the windows that the rows touch
            windows, first = np.unique(rows.windows, return_index=True)
            ends = [*first[1:].tolist(), len(rows)]
            for window, begin, end in zip(windows.tolist(), first.tolist(), ends, strict=True):
                before = self.read(window, epoch)
                new = self.aggregate.group(Partials.concat(before, rows[begin:end]))
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
                "damaged or replaced, or its -wal file is of another moment; restore file "
                "and -wal from a copy of one moment, or start again in another place"
            ) from error

    def _execute(self, query: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._connection.execute(query, values)

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        with self._failing():
            return self._execute(query, values).fetchall()
