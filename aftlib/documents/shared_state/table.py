"""The global table, which all servers or tasks merge into (D3 fig. 3), in SQLite or PostgreSQL.

Partial aggregates, the offsets up to which they count, and (server, epoch) are one transaction. So
at every moment, also after a crash, the table holds the aggregate of exactly the tuples up to its
offsets. Windows are emitted once: a complete window's results are written and the slices that no
later window needs are forgotten in one transaction. A server has an `OwnFile` besides, which holds
the epochs that it has flushed.
"""

from __future__ import annotations

import io
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc

from aftlib.core.checks import require_choice
from aftlib.core.storage import open_database, transaction
from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import END, NEVER, Progress
from aftlib.documents.shared_state.sums import ADD, AGGREGATES, MAX, MIN, Partials

#: Rows of an SQLite statement.
ROWS = 50
_TOO_LARGE = (
    "a sum leaves the 64 bits; nothing was merged: scale the values down, or use smaller windows"
)
#: By partition: the offset at which an epoch begins, and the progress with which it ends.
Segments = dict[int, tuple[int, Progress]]


@dataclass(frozen=True)
class Dialect:
    """The words of a database's SQL."""

    parameter: str
    """Stands for a value in a statement."""
    value: str
    """Type of the column of values."""
    by_key: str
    """Ends the declaration of a table that is stored in the order of its key."""
    least: str
    """Function that returns the lesser of two numbers."""
    greatest: str

    def declarations(self) -> list[str]:
        """Return the tables: the place of the next window to emit, commits, progress, sums."""
        sums = f"key bigint, value {self.value}, count bigint, PRIMARY KEY"
        return [
            "output (place bigint)",
            "commits (server text PRIMARY KEY, epoch bigint)",
            "progress (part bigint PRIMARY KEY, place bigint, watermark bigint, tuples bigint, "
            "late bigint)",
            f"results (win bigint, {sums} (win, key)){self.by_key}",
            f"state (slice bigint, {sums} (slice, key)){self.by_key}",
        ]

    def merging(self, how: int) -> str:
        """Return the clause that merges a row into the one with its slice and key."""
        pair = "(state.value, excluded.value)"
        value = {
            ADD: "state.value + excluded.value",
            MIN: f"{self.least}{pair}",
            MAX: f"{self.greatest}{pair}",
        }[how]
        return (
            f"ON CONFLICT (slice, key) DO UPDATE SET value = {value}, "
            "count = state.count + excluded.count"
        )


SQLITE = Dialect(
    parameter="?",
    value="integer NOT NULL CHECK (typeof(value) = 'integer')",  # a sum beyond 64 bits is not
    by_key=" WITHOUT ROWID",
    least="min",
    greatest="max",
)
POSTGRES = Dialect("%s", "bigint NOT NULL", "", "least", "greatest")


class StaleBatch(RuntimeError):
    """A batch does not begin at its partition's offset, because another process went on there."""


class GlobalTable(ABC):
    """Values by slice and key, the offsets up to which they count, and the emitted windows.

    A subclass names its `Dialect` and has a connection. Statements have ``?`` for values.
    """

    dialect: Dialect

    def __init__(self, connection: Any, aggregate: str) -> None:
        require_choice("aggregate", aggregate, AGGREGATES)
        self.aggregate = AGGREGATES[aggregate]
        self._connection = connection

    def prepare(self, partitions: int) -> Self:
        """Create what is missing, with a row of progress for each partition; return the table."""
        with self._transaction():
            for table in self.dialect.declarations():
                self._execute(f"CREATE TABLE IF NOT EXISTS {table}")
            self._execute("INSERT INTO output SELECT 0 WHERE NOT EXISTS (SELECT * FROM output)")
            for partition in range(partitions):
                self._execute(
                    "INSERT INTO progress VALUES (?, 0, ?, 0, 0) ON CONFLICT DO NOTHING",
                    [partition, NEVER],
                )
        return self

    def commit(self, server: str, epoch: int, partials: Partials, segments: Segments) -> bool:
        """Merge a server's epoch: partials by slice, and the segment read of each partition.

        Return False, without any change, if this or a later epoch of the server is already merged.
        StaleBatch if the table has another offset than the epoch's begin. OverflowError if a sum
        leaves the 64 bits.
        """
        with self._transaction():
            if self.last_epoch(server) >= epoch:
                return False
            for partition, (since, now) in segments.items():
                changed = self._execute(
                    "UPDATE progress SET place = ?, watermark = ?, tuples = ?, late = ? "
                    "WHERE part = ? AND place = ?",
                    [*astuple(now), partition, since],
                )
                if changed.rowcount != 1:
                    raise StaleBatch(
                        f"partition {partition} must stand at byte {since}, where epoch {epoch} of "
                        f"{server} begins, got {self.progress().get(partition)}: another process "
                        "went on there, or the table was replaced; start again with a new table"
                    )
            self._merge(partials)
            self._execute(
                "INSERT INTO commits VALUES (?, ?) "
                "ON CONFLICT (server) DO UPDATE SET epoch = excluded.epoch",
                [server, epoch],
            )
        return True

    def last_epoch(self, server: str) -> int:
        """Return the last epoch that a server has committed, 0 if none."""
        rows = self._execute("SELECT epoch FROM commits WHERE server = ?", [server]).fetchall()
        return rows[0][0] if rows else 0

    def progress(self) -> dict[int, Progress]:
        """Return the progress of each partition."""
        rows = self._execute("SELECT * FROM progress ORDER BY part").fetchall()
        return {partition: Progress(*rest) for partition, *rest in rows}

    def read(self) -> Partials:
        """Return the slices that no emitted window has removed, sorted by start and key."""
        return read_rows(self._execute("SELECT * FROM state ORDER BY slice, key"))

    def emit(self, windows: Windows) -> int:
        """Emit every complete window once, in its order; return the number of emitted windows.

        A window is complete when the watermark of each partition has passed its end.
        """
        emitted = 0
        function = {ADD: "sum", MIN: "min", MAX: "max"}[self.aggregate.how]
        with self._transaction():
            ((watermark,),) = self._execute("SELECT min(watermark) FROM progress").fetchall()
            ((begin,),) = self._execute("SELECT place FROM output").fetchall()
            while True:
                ((oldest,),) = self._execute("SELECT min(slice) FROM state").fetchall()
                if oldest is None:
                    break
                first = -(-(oldest + windows.pane - windows.width) // windows.slide)
                start = max(begin, first * windows.slide)
                if watermark != END and start + windows.width > watermark:
                    break
                self._execute(
                    f"INSERT INTO results SELECT ?, key, {function}(value), sum(count) FROM state "
                    "WHERE slice >= ? AND slice < ? GROUP BY key",
                    [start, start, start + windows.width],
                )
                emitted += 1
                begin = start + windows.slide
                self._execute("DELETE FROM state WHERE slice < ?", [begin])
            self._execute("UPDATE output SET place = ?", [begin])
        return emitted

    def results(self) -> pd.DataFrame:
        """Return window (its start), key and value of the emitted windows, sorted."""
        results = read_rows(self._execute("SELECT * FROM results ORDER BY win, key"))
        value = self.aggregate.result(results.values, results.counts)
        return pd.DataFrame({"window": results.windows, "key": results.keys, "value": value})

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _merge(self, partials: Partials) -> None:
        """Merge partials into the table `state`, within a transaction."""

    def _execute(self, query: str, values: Sequence[object] = ()) -> Any:
        """Execute a statement; return its cursor."""
        return self._connection.execute(query.replace("?", self.dialect.parameter), values)

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """Context of a transaction, which only one process has at a time."""


class SqliteTable(GlobalTable):
    """The global table in one SQLite file; each commit is on the disk when it returns."""

    dialect = SQLITE

    def __init__(self, path: Path | str, aggregate: str = "sum") -> None:
        super().__init__(open_database(path), aggregate)

    def _merge(self, partials: Partials) -> None:
        merging = self.dialect.merging(self.aggregate.how)
        try:
            insert_rows(self._connection, "state", "(?, ?, ?, ?)", partials, merging)
        except sqlite3.IntegrityError as error:
            raise OverflowError(_TOO_LARGE) from error

    def _transaction(self) -> AbstractContextManager[Any]:
        return transaction(self._connection, "change the global table")


class PostgresTable(GlobalTable):
    """The global table in a schema of a PostgreSQL database, for servers on several machines.

    `url` is a connection string, such as ``postgresql://user:password@host/database``. A missing
    schema is created. Transactions of all processes run one after another.
    """

    dialect = POSTGRES

    def __init__(self, url: str, schema: str, aggregate: str = "sum") -> None:
        import psycopg  # which only a cluster needs

        super().__init__(psycopg.connect(url, autocommit=True), aggregate)
        self._overflow = psycopg.errors.NumericValueOutOfRange
        name = psycopg.sql.Identifier(schema)
        self._connection.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        self._connection.execute(psycopg.sql.SQL("SET search_path TO {}").format(name))

    def _merge(self, partials: Partials) -> None:
        self._execute("CREATE TEMP TABLE arrived (LIKE state) ON COMMIT DROP")
        columns = pa.table(dict(zip("skvc", partials.rows.T, strict=True)))
        text = io.BytesIO()
        pc.write_csv(columns, text, pc.WriteOptions(include_header=False))
        with self._connection.cursor().copy("COPY arrived FROM STDIN (FORMAT csv)") as copy:
            copy.write(text.getvalue())
        merging = self.dialect.merging(self.aggregate.how)
        try:
            self._execute(f"INSERT INTO state SELECT * FROM arrived ORDER BY slice, key {merging}")
        except self._overflow as error:
            raise OverflowError(_TOO_LARGE) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            self._execute("SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
            yield


class OwnFile:
    """A server's SQLite file: flushed epochs that the global table may lack."""

    def __init__(self, path: Path) -> None:
        self._connection = open_database(path)
        # the first transaction waits until a failed server is gone
        self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        with transaction(self._connection, "create the tables of"):
            for table in (
                "segments (epoch, part, since, place, watermark, tuples, late)",
                "rows (epoch, slice, key, value, count)",
            ):
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")

    def flush(self, epoch: int, partials: Partials, segments: Segments) -> None:
        """Store a complete epoch durably, in one transaction."""
        with transaction(self._connection, f"flush epoch {epoch} to"):
            self._connection.executemany(
                f"INSERT INTO segments VALUES ({epoch}, ?, ?, ?, ?, ?, ?)",
                [(part, since, *astuple(now)) for part, (since, now) in segments.items()],
            )
            insert_rows(self._connection, "rows", f"({epoch}, ?, ?, ?, ?)", partials)

    def epochs(self) -> list[int]:
        """Return the flushed epochs that were not dropped, ascending."""
        query = "SELECT DISTINCT epoch FROM segments ORDER BY epoch"
        return [epoch for (epoch,) in self._connection.execute(query)]

    def read(self, epoch: int) -> tuple[Partials, Segments]:
        """Return the rows and segments of an epoch."""
        of_epoch = f"WHERE epoch = {epoch}"
        rows = self._connection.execute(f"SELECT slice, key, value, count FROM rows {of_epoch}")
        segments = self._connection.execute(f"SELECT * FROM segments {of_epoch}").fetchall()
        return read_rows(rows), {p: (since, Progress(*now)) for _, p, since, *now in segments}

    def drop(self, epoch: int) -> None:
        """Remove an epoch, which the global table holds."""
        with transaction(self._connection, f"drop epoch {epoch} from"):
            for table in ("segments", "rows"):
                self._connection.execute(f"DELETE FROM {table} WHERE epoch = {epoch}")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def insert_rows(
    connection: sqlite3.Connection, table: str, row: str, partials: Partials, end: str = ""
) -> None:
    """Insert partials by statements of many rows each, which takes half the time of single rows.

    `row` has a ``?`` for each of the four columns; `end` ends the statement.
    """
    rows = partials.rows
    for part in (rows[i : i + ROWS] for i in range(0, len(rows), ROWS)):
        values = ", ".join([row] * len(part))
        connection.execute(f"INSERT INTO {table} VALUES {values} {end}", part.ravel().tolist())


def read_rows(cursor: Iterable[tuple[int, ...]]) -> Partials:
    """Return rows of four integers as partials."""
    return Partials.of(np.fromiter(chain.from_iterable(cursor), np.int64).reshape(-1, 4))
