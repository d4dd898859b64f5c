"""Storage that is written whole or not at all: files, folders, rows of SQLite, packed arrays."""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

CURRENT = "current"
"""Link to the version in use, in a folder of versions."""
_VERSION = re.compile(r"\.?version-(\d+)")
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
"""SQLite's error codes for a file that another process holds."""


@contextmanager
def atomic_file(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path to write to; it becomes the file `target` only if the block ends without error.

    The path has the target's name, for libraries that choose a format by the suffix. An existing
    `target` is replaced in one step: readers see the old file or the new one, never a part.
    FileNotFoundError when the block wrote nothing, PermissionError when the folder is not writable.
    """
    target = Path(target)
    with _scratch(target) as path:
        yield path
        flush(path)
        os.replace(path, target)
        flush(target.parent)


def write_whole(target: str | os.PathLike[str], contents: str | bytes) -> Path:
    """Write `contents` to the file `target`, all of it or none, and return the file's path."""
    with atomic_file(target) as scratch:
        scratch.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return Path(target)


@contextmanager
def atomic_directory(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder to fill; it becomes `target` only if the block ends without error.

    The folder may also be removed and made again inside the block, as Spark's writers do. When
    another process finishes the same target first, its folder stays and this one is removed: a
    target is named after its contents, so both have the same contents. FileExistsError when
    `target` exists before; other errors as `atomic_file`.
    """
    target = Path(target)
    if target.exists():
        raise FileExistsError(f"{str(target)!r} is already there: use it, or remove it first")
    with _scratch(target) as path:
        path.mkdir()
        yield path
        for part in sorted(path.rglob("*")):
            flush(part)
        flush(path)
        try:
            path.rename(target)
        except OSError:
            if not target.exists():
                raise
        flush(target.parent)


@contextmanager
def new_version(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder to fill; at the end of the block ``directory/current`` is a link to it.

    The link changes in one step, so who resolves ``current`` gets the old version or the new one,
    and a process that is killed leaves the old one in use. The next call removes what it left, and
    all versions but the one in use. So the version before the new one stays for those who read it.

    ValueError when the folder has other contents, TimeoutError when another process writes a
    version; other errors as `atomic_directory`.
    """
    directory = Path(directory).resolve()  # links are resolved, too, where versions are compared
    current = directory / CURRENT
    link = directory / "next"
    own = {"driver.lock", current.name, link.name}
    parts = [*directory.iterdir()] if directory.exists() else []
    if others := [
        part.name for part in parts if not (part.name in own or _VERSION.match(part.name))
    ]:
        raise ValueError(
            f"directory must be new, or have nothing but versions, got {str(directory)!r} with "
            f"{others[0]!r}: choose another one"
        )
    with locked(directory):
        versions = [part for part in directory.iterdir() if _VERSION.match(part.name)]
        for version in versions:
            if version != current.resolve():
                shutil.rmtree(version, ignore_errors=True)
        numbers = [int(_VERSION.match(part.name)[1]) for part in versions]  # type: ignore[index]
        target = directory / f"version-{max(numbers, default=0) + 1}"
        with atomic_directory(target) as scratch:
            yield scratch
        link.unlink(missing_ok=True)
        link.symlink_to(target.name)
        os.replace(link, current)
        flush(directory)


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Make the folder `path` if needed, and return it if something can be written into it.

    The check writes, because permission bits do not show a read-only or full disk.
    PermissionError, which names the folder and the fix, when that fails.
    """
    with _scratch(Path(path) / "probe"):
        return Path(path)


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """Yield a path named like `target` in a sibling folder, which is removed at the end."""
    folder = target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        holder = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=folder))
    except OSError as error:
        raise PermissionError(
            f"cannot write into the directory {str(folder)!r} ({error.strerror}): make it "
            "writable for this user, free some space, or set AFT_HOME to a checkout elsewhere"
        ) from error
    try:
        yield holder / target.name
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def flush(path: Path) -> None:
    """Bring a file's contents, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other drivers out of a folder while the block runs, or this process and its forks do.

    TimeoutError when another process holds the lock.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "driver.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TimeoutError(
                f"{file.name!r} is held by another driver, or by a process that it started: wait "
                "until it has ended, or end the process that `fuser` shows for this file"
            ) from None
        yield


def open_database(
    path: Path | str, timeout_s: float = 60.0, synced: bool = True
) -> sqlite3.Connection:
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
        kind = TimeoutError if error.sqlite_errorcode & 0xFF in _BUSY else OSError
        raise kind(
            f"could not {act} {path!r} ({error}); it was rolled back, and earlier commits are "
            "intact: free some space or end the process that holds the file, and start again"
        ) from error


def pack_arrays(**arrays: Any) -> bytes:
    """Return arrays as bytes; the same arrays give the same bytes."""
    file = io.BytesIO()
    if any(np.asanyarray(array).dtype.hasobject for array in arrays.values()):
        raise ValueError("arrays must have no objects: they are read with allow_pickle=False")
    np.savez(file, **arrays)  # the argument `allow_pickle` came with numpy 2.1
    return file.getvalue()


def unpack_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that `pack_arrays` packed; ValueError or numpy's error for other data."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
