"""SQLite files that survive a power failure, and that other processes may read meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WAITS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}


def connect(path: Path | str, timeout_s: float = 60.0, synced: bool = True) -> sqlite3.Connection:
    """Open or create a file with a write-ahead log; its readers take no lock.

    A commit is on the disk when it returns. Without `synced` it survives a crash of the process,
    and a power failure only after the next synced commit to this file. Each statement outside
    `transaction` is a transaction of its own. Any thread may use the connection, but only one at a
    time. `timeout_s` is the longest wait for other processes, at every statement.

    ValueError when it is no such file, or other processes hold it.
    """
    try:
        connection = sqlite3.connect(
            path, timeout=timeout_s, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"path must name a SQLite file that no other process holds, or a new one, got "
            f"{str(path)!r} ({error}); end that process, or choose another path"
        ) from error
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, act: str) -> Iterator[sqlite3.Connection]:
    """Commit all statements of the block or none.

    `act` names the action in the error: "commit batch 3 to". OSError when the disk is full or
    failing, TimeoutError when others held the file for too long.
    """
    try:
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
        kind = TimeoutError if error.sqlite_errorcode & 0xFF in _WAITS else OSError
        raise kind(
            f"could not {act} {path!r} ({error}); it was rolled back, and earlier commits are "
            "intact: free some space or end the process that holds the file, and start again"
        ) from error
