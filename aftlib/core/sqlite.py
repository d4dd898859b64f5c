"""SQLite files that survive a power failure, and that other processes may read meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_WAITS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


def open_database(
    path: Path | str,
    what: str,
    application: int,
    *,
    create: Callable[[sqlite3.Connection], object],
    check: Callable[[sqlite3.Connection], object] = lambda _: None,
    timeout_s: float = 30.0,
) -> sqlite3.Connection:
    """Open a database file of one application, or create it.

    A commit is on the disk when it returns (`synchronous = FULL` with a write-ahead log), and
    readers take no lock. Each statement outside `transaction` is a transaction of its own. Any
    thread may use the connection, but only one at a time.

    `what` names the file in errors, such as "a checkpoint store"; `application` is SQLite's
    `application_id` of such files. `create` makes the tables of a new file as one transaction, so
    it must not call `executescript`; only one process at a time may open a new file. `check` may
    raise ValueError for a file of this application that is not the expected one. `timeout_s` is the
    longest wait for other processes, at every statement.

    ValueError when the file is damaged or belongs to another application, and then it stays
    unchanged. TimeoutError when other processes held it for the whole time.
    """
    try:
        connection = sqlite3.connect(
            path, timeout=timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, application, create)
            check(connection)
        except BaseException:
            connection.close()
            raise
        return connection
    except sqlite3.Error as error:
        if is_busy(error):
            raise TimeoutError(
                f"{str(path)!r} is {what} that other processes hold ({error}); "
                "wait for them or end them, and start again"
            ) from error
        raise ValueError(
            f"path must be {what} or a new file, got {str(path)!r} ({error}); "
            "choose another path, or restore the file from a copy"
        ) from error


def _prepare(
    connection: sqlite3.Connection, application: int, create: Callable[[sqlite3.Connection], object]
) -> None:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (stored_id,) = connection.execute("PRAGMA application_id").fetchone()
    if stored_id != application and (stored_id or tables):
        raise sqlite3.DatabaseError("it has other data")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if not tables:
        with transaction(connection, "create"):
            connection.execute(f"PRAGMA application_id = {application}")
            create(connection)


@contextmanager
def transaction(
    connection: sqlite3.Connection, act: str, *, synced: bool = True
) -> Iterator[sqlite3.Connection]:
    """Commit all statements of the block or none; a commit is on the disk when the block ends.

    Without `synced` a commit survives a crash of the process. It survives a power failure only
    after the next synced transaction.

    `act` names the action in the error: "commit batch 3 to". OSError when the disk is full or
    failing, TimeoutError when others held the file for too long.
    """
    try:
        if not synced:
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk has already rolled it back
                connection.execute("ROLLBACK")
            raise
    except sqlite3.OperationalError as error:
        path = connection.execute("PRAGMA database_list").fetchone()[2]
        kind = TimeoutError if is_busy(error) else OSError
        raise kind(
            f"could not {act} {path!r} ({error}); it was rolled back, and earlier commits are "
            "intact: free some space or end the process that holds the file, and start again"
        ) from error
    finally:
        if not synced:
            connection.execute("PRAGMA synchronous = FULL")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether the error means that other processes held the file, and not that it is damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _WAITS
