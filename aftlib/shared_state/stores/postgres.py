"""The state table in PostgreSQL: the global database that all servers merge into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import psycopg
from psycopg import sql
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format, TransactionStatus

from aftlib.shared_state.aggregates import Aggregate, Partials, overflow
from aftlib.shared_state.stores.sql import LATEST, SqlTable
from aftlib.shared_state.stores.tables import VERSION, Progress, check_identity, stale

_MERGED = {
    "add": "state.{0} + excluded.{0}",
    "min": "least(state.{0}, excluded.{0})",
    "max": "greatest(state.{0}, excluded.{0})",
}
_COPY_HEADER, _COPY_TRAILER = 19, 2


class PostgresTable(SqlTable):
    """Rows (epoch, win, key, values) that anybody can query, in a schema of a database.

    With flush="merge" a merge is a transaction, which the server fsyncs to its write-ahead log
    unless it is configured otherwise. With flush="barrier" a batch is a savepoint of one long
    transaction, committed by `barrier`. Any number of processes may merge into the same schema
    with flush="merge". A connection that broke is made anew at the next call.

    Parameters
    ----------
    url : str
        Connection string, such as ``postgresql://user:password@host/database``.
    aggregate : Aggregate
        How values merge.
    flush : {"merge", "barrier"}
        What survives the process.
    schema : str
        Schema of this table, made when absent.

    Raises
    ------
    PermissionError
        When the server refuses the user, the password or the database.
    ConnectionError
        When no server answers.
    ValueError
        When the schema holds something else, or is of another version or aggregate.
    """

    def __init__(
        self, url: str, aggregate: Aggregate, flush: str = "merge", schema: str = "aft"
    ) -> None:
        super().__init__(aggregate, flush)
        self.schema = schema
        self._url = url
        self._upsert = self._upsert_statement()
        self._connection = self._connect()
        try:
            self._identify()
        except BaseException:
            self.close()
            raise

    def merge(
        self,
        partials: Partials,
        progress: Mapping[int, Progress],
        epoch: int = 0,
        token: tuple[str, int] | None = None,
    ) -> bool:
        """Merge a batch and its offsets."""
        rows = self.aggregate.group(partials)
        with self._transaction("merge") as connection:
            if token and not self._note_token(token):
                return False
            connection.execute("INSERT INTO epochs VALUES (%s) ON CONFLICT DO NOTHING", [epoch])
            for partition, now in sorted(progress.items()):
                self._note_progress(partition, now, epoch)
            if len(rows):
                columns = [rows.windows, rows.keys, *rows.values.T]
                connection.execute(self._upsert, [epoch, *(_Array(c) for c in columns)])
        return True

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""
        chosen = sql.SQL("epoch = {}").format(epoch)
        if window is not None:
            chosen += sql.SQL(" AND win = {}").format(window)
        query = sql.SQL(
            "COPY (SELECT win, key, {} FROM state WHERE {} ORDER BY win, key) "
            "TO STDOUT (FORMAT BINARY)"
        ).format(sql.SQL(", ").join(map(sql.Identifier, self._columns)), chosen)
        with self._failing("read"), self._live().cursor().copy(query) as copy:
            data = b"".join(copy)
        rows = _from_copy(data, 2 + len(self._columns))
        return Partials(rows[:, 0], rows[:, 1], rows[:, 2:])

    def barrier(self) -> None:
        """Commit what was merged since the last one."""
        with self._failing("flush"):
            self._connection.commit()

    def close(self) -> None:
        """Let go of the connection; what no `barrier` has flushed is gone."""
        self._connection.close()

    def _note_progress(self, partition: int, now: Progress, epoch: int) -> None:
        """Write where the partition stands; the row's lock keeps two batches apart."""
        for table, since in ((LATEST, now.since), (epoch, None)):
            done = self._connection.execute(
                "INSERT INTO progress AS p VALUES (%s, %s, %s, %s, %s, %s, %s) "
                "ON CONFLICT (epoch, partition) DO UPDATE SET at = greatest(p.at, excluded.at), "
                "watermark = greatest(p.watermark, excluded.watermark), "
                "late = greatest(p.late, excluded.late), "
                "tuples = greatest(p.tuples, excluded.tuples), "
                "rejected = greatest(p.rejected, excluded.rejected) "
                "WHERE %s::bigint IS NULL OR p.at = %s",
                [table, partition, *now.stored, since, since],
            )
            if done.rowcount == 0:
                raise stale(partition, since, self.progress()[partition].offset)

    @contextmanager
    def _transaction(self, act: str) -> Iterator[psycopg.Connection]:
        """All of it or nothing; durable when it ends, or at the next barrier."""
        with self._failing(act):
            connection = self._live()
            if self.flush == "barrier" and connection.info.transaction_status == _IDLE:
                connection.execute("SELECT 1")  # begins the long one; ours is then a savepoint
            with connection.transaction():
                yield connection

    @contextmanager
    def _failing(self, act: str) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.NumericValueOutOfRange as error:
            raise overflow() from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise PermissionError(
                f"url: PostgreSQL lets this user not {act} in schema {self.schema!r} of "
                f"{_shown(self._url)} ({error}); grant it, or choose another user or schema"
            ) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise ConnectionError(
                f"could not {act} in schema {self.schema!r} of {_shown(self._url)} ({error}); "
                "whether it was committed is not known: ask for the progress, or repeat it with "
                "its token, when the server is back"
            ) from error

    def _execute(self, query: str, values: Sequence[object] = ()) -> psycopg.Cursor:
        return self._connection.execute(_marked(query), values)

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        with self._failing("read"):
            return self._live().execute(_marked(query), values).fetchall()

    def _live(self) -> psycopg.Connection:
        """The connection, made anew if it has broken."""
        if self._connection.broken:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> psycopg.Connection:
        try:
            connection = psycopg.connect(self._url, autocommit=self.flush == "merge")
        except psycopg.OperationalError as error:
            raise _refused(self._url, error) from error
        setting = sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema))
        connection.execute(setting)
        if self.flush == "barrier":
            connection.commit()
        return connection

    def _upsert_statement(self) -> bytes:
        merged = ", ".join(
            f"{column} = {_MERGED[kind].format(column)}"
            for column, kind in zip(self._columns, self.aggregate.components, strict=True)
        )
        arrays = ", ".join(["%b"] * (2 + len(self._columns)))
        return (
            f"INSERT INTO state SELECT %s, * FROM unnest({arrays}) "
            f"ON CONFLICT (epoch, win, key) DO UPDATE SET {merged}"
        ).encode()

    def _identify(self) -> None:
        with self._failing("look"), self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [self.schema])
            if not self._made():
                self._create()
            found = self._connection.execute("SELECT version, aggregate FROM identity").fetchone()
        check_identity(self.schema, found or (None, None), self.aggregate, "schema")

    def _made(self) -> bool:
        found = self._rows("SELECT tablename FROM pg_tables WHERE schemaname = %s", [self.schema])
        if found and ("identity",) not in found:
            raise ValueError(
                f"schema must be a state table or a new schema, got {self.schema!r}, which holds "
                f"something else ({found[0][0]}); choose another schema"
            )
        return bool(found)

    def _create(self) -> None:
        values = "".join(f", {column} bigint NOT NULL" for column in self._columns)
        self._connection.execute(
            sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema))
        )
        for table in (
            "identity (version integer, aggregate text)",
            "epochs (epoch bigint PRIMARY KEY)",
            "handed (server text PRIMARY KEY, epoch bigint)",
            "progress (epoch bigint, partition bigint, at bigint, watermark bigint, late bigint, "
            "tuples bigint, rejected bigint, PRIMARY KEY (epoch, partition))",
            f"state (epoch bigint, win bigint, key bigint{values}, PRIMARY KEY (epoch, win, key))",
        ):
            self._connection.execute(f"CREATE TABLE {table}".encode())
        self._connection.execute(
            "INSERT INTO identity VALUES (%s, %s)", [VERSION, self.aggregate.name]
        )


class _Array:
    """A column on its way into the database."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers


class _ArrayDumper(Dumper):
    """A column in PostgreSQL's binary form of a bigint[], made without a loop."""

    format = Format.BINARY
    oid = 1016

    def dump(self, obj: Any) -> Buffer:
        cells = np.empty(len(obj.numbers), dtype=[("size", ">i4"), ("number", ">i8")])
        cells["size"], cells["number"] = 8, obj.numbers
        # dimensions, no nulls, type bigint; length, first index
        head = np.array([1, 0, 20, len(cells), 1], dtype=">i4")
        return head.tobytes() + cells.tobytes()


psycopg.adapters.register_dumper(_Array, _ArrayDumper)
_IDLE = TransactionStatus.IDLE


def _marked(query: str) -> bytes:
    """A query with values where PostgreSQL's client wants them."""
    return query.replace("?", "%s").encode()


def _from_copy(data: bytes, columns: int) -> np.ndarray:
    """Rows of bigints, shape (n, columns), of a binary COPY."""
    fields = [
        (f"{kind}{i}", form) for i in range(columns) for kind, form in (("s", ">i4"), ("v", ">i8"))
    ]
    row = np.dtype([("fields", ">i2"), *fields])
    body = data[_COPY_HEADER : len(data) - _COPY_TRAILER]
    found = np.frombuffer(body, dtype=row)
    return np.stack([found[f"v{i}"].astype(np.int64) for i in range(columns)], axis=1)


def _refused(url: str, error: psycopg.OperationalError) -> OSError:
    said = " ".join(str(error).split())
    if any(word in said for word in ("authentication", "does not exist", "password", "permission")):
        return PermissionError(
            f"url: PostgreSQL refuses {_shown(url)} ({said}); check user, password and database"
        )
    return ConnectionError(
        f"url: no PostgreSQL answers at {_shown(url)} ({said}); start it, or check the address"
    )


def _shown(url: str) -> str:
    """Where the url points, without its password."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return " ".join(
        f"{name}={parts[name]}" for name in ("user", "host", "port", "dbname") if parts.get(name)
    )
