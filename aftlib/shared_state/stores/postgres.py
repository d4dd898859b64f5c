"""The state table in PostgreSQL: the global database that all servers merge into."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import psycopg
from psycopg import sql
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

from aftlib.core.checks import require_number
from aftlib.shared_state.aggregates import Aggregate, Partials, overflow
from aftlib.shared_state.liveness import LONGEST_S, watched
from aftlib.shared_state.stores import UNREADABLE, redact
from aftlib.shared_state.stores.sql import SqlTable
from aftlib.shared_state.stores.tables import check_identity

_COPY_HEADER, _COPY_TRAILER = 19, 2
_REFUSALS = "authentication", "does not exist", "password", "permission", "pg_hba.conf"


class PostgresTable(SqlTable):
    """State table in a schema of a PostgreSQL database: rows (epoch, win, key, values) to query.

    A merge is a transaction, which the server fsyncs to its write-ahead log unless it is configured
    otherwise. Any number of processes may merge into the same schema, one after another. A broken
    connection is opened again at the next call. `url` is a connection string, such as
    ``postgresql://user:password@host/database``. A missing schema is created.

    PermissionError if the server refuses the user, the password or the database; ConnectionError if
    no server answers. A call that takes longer than `timeout_s` seconds, because others hold the
    tables or the server is stopped, is broken off with a ConnectionError. The log
    `aftlib.shared_state` reports such a call after a second.
    """

    one_machine = False
    least, greatest = "least", "greatest"

    def __init__(
        self, url: str, aggregate: Aggregate, schema: str = "aft", timeout_s: float = 600.0
    ) -> None:
        super().__init__(aggregate)
        require_number("timeout_s", timeout_s, above=0, most=LONGEST_S)
        self.schema, self.timeout_s = schema, timeout_s
        self._url, self._place = url, redact(url)
        self._in_call = False
        self._connection: Any = None
        self._connect()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

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

        fields: list[tuple[str, str]] = [("fields", ">i2")]
        for i in range(2 + len(self._columns)):
            fields += [(f"size{i}", ">i4"), (f"{i}", ">i8")]
        cells = np.frombuffer(data[_COPY_HEADER : len(data) - _COPY_TRAILER], np.dtype(fields))
        windows, keys, *values = (cells[name].astype(np.int64) for name, _ in fields[2::2])
        return Partials(windows, keys, np.stack(values, axis=1))

    def remove(self) -> None:
        """Drop the schema, with all that is in it."""
        with self._failing("drop"):
            schema = sql.Identifier(self.schema)
            self._live().execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _add(self, rows: Partials, epoch: int) -> None:
        columns = [rows.windows, rows.keys, *rows.values.T]
        arrays = ", ".join(["%b"] * len(columns))
        upsert = self._upsert(f"SELECT %s, * FROM unnest({arrays})")
        self._connection.execute(upsert.encode(), [epoch, *(_Array(c) for c in columns)])

    @contextmanager
    def _transaction(self, act: str) -> Iterator[None]:
        with self._failing(act), self._live().transaction():  # one after another
            self._execute("SELECT pg_advisory_xact_lock(hashtext(?))", [self.schema])
            yield

    @contextmanager
    def _failing(self, act: str) -> Iterator[None]:
        try:
            with self._watched(act):
                yield
        except psycopg.errors.NumericValueOutOfRange as error:
            raise overflow() from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise PermissionError(
                f"url: PostgreSQL does not let this user {act} in schema {self.schema!r} of "
                f"{self._place} ({error}); grant it, or choose another user or schema"
            ) from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise ValueError(
                f"schema {self.schema!r} of {self._place} must hold the tables that it had, got "
                f"an error ({error.diag.message_primary}): the schema was replaced or a table "
                "dropped; bring back the newest schema, or start again in another directory and "
                "schema"
            ) from error
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
            # InternalError: read-only for now, or a transaction that took longer than it may
            raise ConnectionError(
                f"could not {act} in schema {self.schema!r} of {self._place} ({error}); "
                "it is unknown whether this was committed: when the server is back, ask for the "
                "progress, or repeat the call with its token"
            ) from error

    def _execute(self, query: str, values: Sequence[object] = ()) -> psycopg.Cursor:
        return self._connection.execute(_marked(query), values)

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        with self._failing("read"):
            return self._live().execute(_marked(query), values).fetchall()

    @contextmanager
    def _watched(self, act: str) -> Iterator[None]:
        """Break off a call after `timeout_s` seconds; the outer of nested calls counts."""
        if self._in_call:
            yield
            return
        self._in_call, late = True, False

        def break_off() -> None:
            nonlocal late
            late = True
            shut_down(self._connection)

        try:
            call = f"{act} in schema {self.schema!r} of {self._place}"
            with watched(call, self.timeout_s, break_off):
                yield
        except psycopg.Error as error:
            if not late:
                raise
            raise psycopg.OperationalError(f"timeout of {self.timeout_s:g} s") from error
        finally:
            self._in_call = False

    def _live(self) -> psycopg.Connection:
        """The connection, opened again if it has broken."""
        if self._connection is None or self._connection.broken:
            if self._connection:
                with suppress(psycopg.Error):
                    self._connection.close()
            self._connect()
        return self._connection

    def _connect(self) -> None:
        milliseconds = max(1, round(900 * self.timeout_s))  # the server gives up before the client
        setting = sql.SQL(
            "SET search_path TO {}; SET lock_timeout TO {}; SET statement_timeout TO {}"
        ).format(sql.Identifier(self.schema), milliseconds, milliseconds)
        try:
            with self._watched("connect"):
                self._connection = psycopg.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=max(2, int(self.timeout_s)),  # libpq's least
                    tcp_user_timeout=milliseconds,
                )
                self._connection.execute(setting)  # inside the try: the server may stop
        except psycopg.ProgrammingError:
            raise ValueError(UNREADABLE) from None  # the driver's message shows the password
        except psycopg.OperationalError as error:
            message = " ".join(str(error).split())
            reason = message.rpartition(" failed: ")[2].lower()  # without the address
            if any(word in reason for word in _REFUSALS):
                raise PermissionError(
                    f"url: PostgreSQL refuses {self._place} ({message}); check user, password and "
                    "database"
                ) from error
            raise ConnectionError(
                f"url: no PostgreSQL answers at {self._place} ({message}); start it, or check the "
                "address"
            ) from error

    def _open(self) -> None:
        """Create the tables in a new schema; ValueError for a schema that holds something else."""
        with self._transaction("look"):
            query = "SELECT tablename FROM pg_tables WHERE schemaname = ?"
            tables = self._rows(query, [self.schema])
            if tables and ("identity",) not in tables:
                raise ValueError(
                    f"schema must be a state table or a new schema, got {self.schema!r}, which "
                    f"holds something else ({tables[0][0]}); choose another schema"
                )
            if not tables:
                schema = sql.Identifier(self.schema)
                self._connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
                self._create()
            identity = self._rows("SELECT version, aggregate FROM identity") or [(None, None)]
        check_identity(self.schema, identity[0], self.aggregate, "schema")


class _Array:
    """An int64 column to send to the database."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers


class _ArrayDumper(Dumper):
    """A column in PostgreSQL's binary form of a bigint[], built without a loop."""

    format = Format.BINARY
    oid = 1016

    def dump(self, obj: Any) -> Buffer:
        cells = np.empty(len(obj.numbers), dtype=[("size", ">i4"), ("number", ">i8")])
        cells["size"], cells["number"] = 8, obj.numbers
        # dimensions, no nulls, type bigint; length, first index
        head = np.array([1, 0, 20, len(cells), 1], dtype=">i4")
        return head.tobytes() + cells.tobytes()


psycopg.adapters.register_dumper(_Array, _ArrayDumper)


def _marked(query: str) -> bytes:
    """Return a query with psycopg's mark ``%s`` for each value."""
    return query.replace("?", "%s").encode()


def shut_down(connection: psycopg.Connection | None) -> None:
    """End a connection while another call waits on it."""
    if connection and not connection.closed:
        with suppress(OSError), socket.fromfd(connection.fileno(), 0, 0) as same:
            same.shutdown(socket.SHUT_RDWR)
