"""The state table in RocksDB, embedded into one process."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import DbClosedError, Options, Rdict, WriteBatch, WriteOptions

from aftlib.core.paths import flush
from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.tables import (
    VERSION,
    Output,
    Progress,
    StateTable,
    Token,
    check_identity,
    furthest,
)

_IDENTITY, _LATEST, _PART, _EPOCH, _COMMITTED, _ROWS = b"i", b"l", b"p", b"e", b"h", b"s"
_OUTPUT = b"o"
_FIRST_FILES = re.compile(r"LO(CK|G.*)|IDENTITY|MANIFEST-\d+|\d+\.dbtmp|rocksdict-config\.json")
"""Files of a new database before its first record; a power failure may leave only these."""
BLOCK = 7
"""Keys that agree in all but this many low bits share a record, which holds them as an array."""
_SIGN = 1 << 63
_END = b"\xff" * 20
"""Suffix of a prefix; the result sorts after every name that begins with the prefix."""


class RocksTable(StateTable):
    """State table in RocksDB: blocks of keys as packed arrays.

    A merge is one write batch, which holds the rows and the offsets. It is fsynced to the log.
    RocksDB stores it whole or not at all, because it is in one column family. Only one process at a
    time may open a table, and only one thread use it; OSError for a second process.
    """

    def __init__(self, path: Path | str, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self.path = Path(path)
        self._synced: Any = WriteOptions()  # the type stub declares attributes as methods
        self._synced.sync = True
        self._db = self._open()

    def _merge(
        self, rows: Partials, progress: dict[int, Progress], epoch: int, token: Token | None
    ) -> None:
        batch, table = WriteBatch(raw_mode=True), _ordered(epoch)
        self._put_rows(batch, rows, epoch)
        batch.put(_EPOCH + table, b"")
        for prefix, stands in ((_LATEST, self.progress()), (_PART + table, self.progress(epoch))):
            reached = furthest(stands, progress)
            for partition in progress:
                stored = struct.pack(">5q", *reached[partition].stored)
                batch.put(prefix + _ordered(partition), stored)
        if token:
            batch.put(_COMMITTED + token[0].encode(), _ordered(token[1]))
        self._apply("merge", batch)

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""
        prefix = _ROWS + _ordered(epoch) + (b"" if window is None else _ordered(window))
        items = list(self._under(prefix))
        return self._unpacked([_number(name, 9) for name, _ in items], [blob for _, blob in items])

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """Progress of each partition: over all tables (None), or as merged into one table."""
        prefix = _LATEST if epoch is None else _PART + _ordered(epoch)
        return {
            _number(name, -8): Progress(*struct.unpack(">5q", stored))
            for name, stored in self._under(prefix)
        }

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""
        return tuple(_number(name, 1) for name, _ in self._under(_EPOCH))

    def committed(self) -> dict[str, int]:
        """Last epoch that each server committed to this store."""
        return {name[1:].decode(): _number(last, 0) for name, last in self._under(_COMMITTED)}

    def drop(self, epoch: int) -> None:
        """Empty a table."""
        self._delete("drop", *(kind + _ordered(epoch) for kind in (_ROWS, _PART, _EPOCH)))

    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows, and record their emitted results."""
        rows = _ROWS + _ordered(0)
        self._delete("forget", *(rows + _ordered(window) for window in windows), output=output)

    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, each with the checksum of its output."""
        return {_number(name, 1): _number(stored, 0) for name, stored in self._under(_OUTPUT)}

    def close(self) -> None:
        """Close the database."""
        with suppress(DbClosedError):
            self._db.close()

    def _open(self) -> Rdict:
        """Open the database; refuse one that is no state table of this aggregate."""
        place = repr(str(self.path))
        files = [path.name for path in self.path.iterdir()] if self.path.is_dir() else []
        strange = self.path.is_file() or not all(map(_FIRST_FILES.fullmatch, files))
        if strange and not (self.path / "CURRENT").exists():
            raise ValueError(
                f"path must be a state table or a new folder, got {place}, which holds something "
                "else; choose another path"
            )
        if not files:
            self.path.mkdir(parents=True, exist_ok=True)
            flush(self.path.parent)  # RocksDB syncs the files of its folder, not the folder's name
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        try:
            database = Rdict(str(self.path), options)
        except Exception as error:  # rocksdict has one class of error for everything
            if "lock" in str(error).lower():
                raise OSError(
                    f"path {place} is in use by another process ({error}); RocksDB serves one at a "
                    "time: end that one, or use SQLite or PostgreSQL"
                ) from error
            raise ValueError(
                f"path must be an intact state table or a new folder, got {place} ({error}); "
                "choose another path, or restore the folder from a copy"
            ) from error

        try:
            identity = database.get(_IDENTITY)
            if identity is None:
                cursor = database.iter()
                cursor.seek(b"")
                if cursor.valid():
                    raise ValueError(
                        f"path must be a state table, got a database with other data {place}; "
                        "choose another path"
                    )
                identity = json.dumps([VERSION, self.aggregate.name]).encode()
                database.put(_IDENTITY, identity)
            check_identity(self.path, tuple(json.loads(identity)), self.aggregate, "path")
        except ValueError:
            database.close()
            raise
        return database

    def _put_rows(self, batch: WriteBatch, rows: Partials, epoch: int) -> None:
        """Merge sorted rows into the blocks of their keys."""
        if not len(rows):
            return
        first = _bounds(rows)
        blocks = np.column_stack([rows.windows[first], rows.keys[first] >> BLOCK])
        ordered = (blocks.view(np.uint64) ^ np.uint64(_SIGN)).astype(">u8").tobytes()
        prefix = _ROWS + _ordered(epoch)
        names: Any = [prefix + ordered[i : i + 16] for i in range(0, len(ordered), 16)]

        stored: Any = self._db.get(names)
        before = self._unpacked(rows.windows[first], [blob or b"" for blob in stored])
        after = self.aggregate.group(Partials.concat(rows, before)) if len(before) else rows

        packed = np.column_stack([after.keys, after.values])
        bounds = np.append(_bounds(after), len(after))
        data, size = packed.tobytes(), packed.itemsize * packed.shape[1]
        for name, a, b in zip(names, bounds * size, bounds[1:] * size, strict=False):
            batch.put(name, data[a:b])

    def _under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._db.iter()
        cursor.seek(prefix)
        while cursor.valid() and cursor.key().startswith(prefix):
            yield cursor.key(), cursor.value()
            cursor.next()

    def _delete(self, act: str, *prefixes: bytes, output: Output | None = None) -> None:
        batch = WriteBatch(raw_mode=True)
        for prefix in prefixes:
            batch.delete_range(prefix, prefix + _END)
        if output:
            batch.put(_OUTPUT + _ordered(output[0]), _ordered(output[1]))
        self._apply(act, batch)

    def _apply(self, act: str, batch: WriteBatch) -> None:
        """Write all of a batch, fsynced, or nothing."""
        try:
            self._db.write(batch, self._synced)
        except Exception as error:  # rocksdict has one class of error for everything
            raise OSError(
                f"could not {act} in {str(self.path)!r} ({error}); nothing of this was stored and "
                "nothing before it is lost: free some space and start again"
            ) from error


def _bounds(rows: Partials) -> np.ndarray:
    """Indices of the rows with which a new (window, block) begins."""
    block = rows.keys >> BLOCK
    return np.flatnonzero(np.r_[True, (np.diff(rows.windows) != 0) | (np.diff(block) != 0)])


def _ordered(number: int) -> bytes:
    """Eight bytes that sort like the number."""
    return (number + _SIGN).to_bytes(8, "big")


def _number(name: bytes, at: int) -> int:
    """Return the number in the eight bytes of a name from `at` on."""
    word = name[at:] if at < 0 else name[at : at + 8]
    return int.from_bytes(word, "big") - _SIGN
