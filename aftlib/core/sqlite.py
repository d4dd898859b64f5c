"""SQLite files that several processes change, and that survive a power failure."""

from __future__ import annotations

import random
import sqlite3
import time
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
    check: Callable[[sqlite3.Connection], object] | None = None,
    timeout_s: float = 30.0,
) -> sqlite3.Connection:
    """Open a database file of one application, or create it.

    A commit is on the disk when it returns (`synchronous = FULL` with a write-ahead log), and
    readers take no lock. Each statement outside `transaction` is a transaction of its own. Any
    thread may use the connection, but only one at a time.

    `what` names the file in errors, such as "a checkpoint store"; `application` is SQLite's
    `application_id` of such files. `create` makes the tables of a new file, in one process only and
    as one transaction, so it must not call `executescript`. `check` raises ValueError when the file
    belongs to another application. `timeout_s` is the longest wait for other processes, now and at
    every later statement.

    ValueError when the file is damaged or belongs to another application, and then it stays
    unchanged. TimeoutError when other processes held it for the whole time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        connection = None
        try:
            left = max(0.0, deadline - time.monotonic())
            connection = sqlite3.connect(
                path, timeout=left, isolation_level=None, check_same_thread=False
            )
            _prepare(connection, path, what, application, create)
            if check:
                check(connection)
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * timeout_s)}")
            return connection
        except BaseException as error:
            if connection:
                connection.close()
            if not isinstance(error, sqlite3.Error):
                raise
            if not is_busy(error):
                raise ValueError(
                    f"path must be {what} or a new file, got {str(path)!r} ({error}); "
                    "choose another path, or restore the file from a copy"
                ) from error
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"{str(path)!r} is {what} that other processes hold ({error}); "
                    "wait for them or end them, and start again"
                ) from error
        # SQLite gives up at once when two processes switch a file to the write-ahead log
        time.sleep(random.uniform(0.001, 0.02))  # noqa: S311


def _prepare(
    connection: sqlite3.Connection,
    path: Path | str,
    what: str,
    application: int,
    create: Callable[[sqlite3.Connection], object],
) -> None:
    def is_new() -> bool:
        # read the tables first: their creator sets the id in the same transaction
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        stored_id = connection.execute("PRAGMA application_id").fetchone()[0]
        if stored_id != application and (stored_id or tables):
            raise ValueError(
                f"path must be {what}, got a file with other data {str(path)!r}; choose another "
                "path"
            )
        return not tables

    new = is_new()
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if new:
        with transaction(connection, "create"):
            if is_new():  # no other process created it first
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
