"""The replayable sensor log: Parquet files from which any keys over any steps can be read again."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.paths import atomic_directory

ROWS_PER_RANGE = 4096
"""Steps per file and rows per random stream; a constant, because drawn samples depend on it."""
ROW_GROUP = 1024
"""Steps per row group, the smallest unit that a read of one key touches."""
MANIFEST = "manifest.json"
_TAIL = 4096  # bytes at a file's end, with the statistics of its last columns


@dataclass(frozen=True)
class SensorLog:
    """A log of n keys over the steps 0 … steps − 1, one row per step, one column per key.

    Reading |O| keys over l steps costs |O|·l values, rounded up to row groups, because Parquet
    stores each key's column apart.
    """

    path: Path  # directory of `part-00000.parquet` … and the manifest, which is written last
    names: tuple[str, ...]  # the n keys
    steps: int
    about: dict  # facts from the writer, such as parameters and quality counts

    @classmethod
    def open(cls, path: Path | str) -> SensorLog:
        """Open a log that was written whole; ValueError when there is none at `path`."""
        path = Path(path)
        try:
            manifest = json.loads((path / MANIFEST).read_text())
            log = cls(path, tuple(manifest["names"]), manifest["steps"], manifest["about"])
            parts = [part_path(path, index) for index in range(-(-log.steps // ROWS_PER_RANGE))]
            if missing := next((part.name for part in parts if not part.exists()), None):
                raise ValueError(f"without {missing}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"path holds no complete sensor log, got {str(path)!r} ({error}); "
                "write one with SensorLog.write or delete the directory and make it again"
            ) from error
        return log

    @property
    def identity(self) -> dict[str, object]:
        """Fingerprint that distinguishes this log from others of the same keys, whatever its path.

        It has `steps`, `about`, and a check sum of the end of the first file. The footer there has
        the least and largest samples of the last keys.
        """
        tail = b""
        if self.steps:
            with part_path(self.path, 0).open("rb") as file:
                file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
                tail = file.read()
        return {"steps": self.steps, "about": self.about, "check_sum": zlib.crc32(tail)}

    @classmethod
    def write(
        cls, path: Path | str, values: np.ndarray, names: Sequence[str], about: dict | None = None
    ) -> SensorLog:
        """Write samples, shape (steps, n), NaN where one is missing, as a log at `path`.

        ValueError when the sizes do not fit, FileExistsError when `path` is already there.
        """
        values = np.asarray(values, dtype=float)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(
                f"values must have shape (steps, {len(names)}), got {values.shape}; "
                "one row per step, one column per key"
            )
        with atomic_directory(Path(path)) as scratch:
            for index in range(-(-len(values) // ROWS_PER_RANGE)):
                write_part(scratch, index, values[rows_of(index, len(values))], names)
            write_manifest(scratch, names, len(values), about or {})
        return cls.open(path)

    def read(self, keys: Sequence[int] | None, begin: int, stop: int) -> np.ndarray:
        """Samples over the steps [begin, stop), NaN where one is missing: (stop − begin, keys).

        `keys` are indices in the order of the result's columns, or None for all. ValueError when
        one is unknown, or the steps lie outside of the log.
        """
        out = np.empty((max(0, stop - begin), len(self.names if keys is None else keys)))
        done = 0
        for block in self.blocks(keys, begin, stop):
            out[done : done + len(block)] = block
            done += len(block)
        return out

    def blocks(self, keys: Sequence[int] | None, begin: int, stop: int) -> Iterator[np.ndarray]:
        """As `read`, but in blocks of steps, so that memory stays small.

        In memory, each key's samples of a block are contiguous.
        """
        return LogReader(self).blocks(keys, begin, stop)


class LogReader:
    """Reader of a log that reads no row group twice if each read begins where the last one ended.

    It stores the steps that it read beyond the end of a read, at most one file, for the next read
    of the same keys: their names, the first of these steps, and the samples.
    """

    def __init__(self, log: SensorLog) -> None:
        self.log = log
        self._rest: tuple[list[str], int, np.ndarray] = [], 0, np.empty((0, 0))

    def blocks(self, keys: Sequence[int] | None, begin: int, stop: int) -> Iterator[np.ndarray]:
        """As `SensorLog.blocks`."""
        log, wanted = self.log, range(len(self.log.names)) if keys is None else keys
        if any(not 0 <= k < len(log.names) for k in wanted):
            raise ValueError(f"keys must lie inside 0 … {len(log.names) - 1}, got {list(wanted)!r}")
        if not 0 <= begin <= stop <= log.steps:
            raise ValueError(
                f"begin and stop must satisfy 0 ≤ begin ≤ stop ≤ {log.steps}, "
                f"got {begin!r} and {stop!r}"
            )
        names, at = [log.names[k] for k in wanted], begin
        while at < stop:
            rest_names, rest_begin, values = self._rest
            if (rest_names, rest_begin) != (names, at) or not len(values):
                values = self._read_on(names, at, stop)
            block = values[: stop - at]
            at += len(block)
            self._rest = names, at, values[len(block) :]
            yield block

    def _read_on(self, names: list[str], begin: int, stop: int) -> np.ndarray:
        """Samples from `begin` to `stop` or the file's end, and the rest of the last row group.

        ValueError when the file is damaged, or holds other steps than its name implies.
        """
        index, inside = divmod(begin, ROWS_PER_RANGE)  # the file, and the place of `begin` in it
        path, end = part_path(self.log.path, index), min(ROWS_PER_RANGE, inside + stop - begin)
        first, columns = inside // ROW_GROUP, list(dict.fromkeys(names))
        try:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                footer = file.metadata
                groups = range(first, min(-(-end // ROW_GROUP), footer.num_row_groups))
                begins = [footer.row_group(g).column(0).statistics.min for g in groups]
                due = [index * ROWS_PER_RANGE + g * ROW_GROUP for g in groups]
                rows = sum(footer.row_group(g).num_rows for g in groups)
                if begins != due or inside >= first * ROW_GROUP + rows:
                    raise ValueError(f"row groups that begin at {begins}, {rows} rows")
                table = file.read_row_groups(groups, columns, use_threads=False)
            parts = [table.column(name).chunks for name in names]
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise ValueError(
                f"path must hold a log of {self.log.steps} steps, got {str(path)!r} without step "
                f"{begin} ({error}); delete the directory and make it again"
            ) from error
        out = np.empty((len(names), len(table)))
        for row, chunks in zip(out, parts, strict=True):
            at = 0
            for chunk in chunks:
                row[at : at + len(chunk)] = np.from_dlpack(chunk)  # loads no pandas
                at += len(chunk)
        return out.T[inside - first * ROW_GROUP :]


def part_path(directory: Path, index: int) -> Path:
    """File of one row range."""
    return directory / f"part-{index:05d}.parquet"


def rows_of(index: int, steps: int) -> slice:
    """Steps of one row range."""
    return slice(index * ROWS_PER_RANGE, min((index + 1) * ROWS_PER_RANGE, steps))


def write_part(directory: Path, index: int, values: np.ndarray, names: Sequence[str]) -> None:
    """Write one row range; `values` has shape (rows, n)."""
    first = index * ROWS_PER_RANGE
    columns = [pa.array(np.arange(first, first + len(values)))]
    columns += [pa.array(np.ascontiguousarray(column)) for column in values.T]
    step = "step"
    while step in names:  # a sensor may be called so
        step = f"_{step}"
    table = pa.table(columns, names=[step, *names])
    # noise cannot be compressed: compressed files are not smaller, and take four times as long
    packing = {"compression": "none", "use_dictionary": False}
    pq.write_table(table, part_path(directory, index), row_group_size=ROW_GROUP, **packing)


def write_manifest(directory: Path, names: Sequence[str], steps: int, about: dict) -> None:
    """Write the manifest, which makes the log complete."""
    manifest = {"names": list(names), "steps": int(steps), "about": about}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
