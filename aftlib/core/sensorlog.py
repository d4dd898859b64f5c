"""The replayable sensor log: Parquet files from which any keys over any steps can be read again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.storage import atomic_directory

ROWS_PER_RANGE = 4096
"""Steps per file and rows per random stream; a constant, because drawn samples depend on it."""
ROW_GROUP = 1024
"""Steps per row group, the smallest unit that a read of one key touches."""
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class SensorLog:
    """A log of n keys over the steps 0 … steps − 1, one row per step, one column per key.

    Reading m keys over l steps costs m·l values, rounded up to row groups, because Parquet
    stores each key's column apart.
    """

    path: Path  # directory of `part-00000.parquet` … and the manifest, which is written last
    names: tuple[str, ...]  # the n keys
    steps: int
    about: dict[str, Any]  # facts from the writer, such as parameters and quality counts

    @classmethod
    def open(cls, path: Path | str) -> SensorLog:
        """Open a log that was written whole; ValueError when there is none at `path`."""
        try:
            manifest = json.loads((Path(path) / MANIFEST).read_bytes())
            names = tuple(manifest["names"])
            return cls(Path(path), names, manifest["steps"], manifest["about"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"path holds no complete sensor log, got {str(path)!r} ({error}); "
                "write one with SensorLog.write or delete the directory and make it again"
            ) from error

    @property
    def identity(self) -> dict[str, object]:
        """Fingerprint that distinguishes this log from others of the same keys, whatever its path.

        It has `steps`, `about`, and a check sum of the first step's samples.
        """
        first = self.read(None, 0, min(1, self.steps))
        return {"steps": self.steps, "about": self.about, "check_sum": zlib.crc32(first.tobytes())}

    @classmethod
    def write(
        cls,
        path: Path | str,
        values: np.ndarray,
        names: Sequence[str],
        about: dict[str, Any] | None = None,
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
        none = np.empty((0, len(self.names if keys is None else keys)))
        return np.concatenate([none, *self.blocks(keys, begin, stop)])

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
        log = self.log
        wanted = range(len(log.names)) if keys is None else keys
        if any(not 0 <= k < len(log.names) for k in wanted):
            raise ValueError(f"keys must lie inside 0 … {len(log.names) - 1}, got {list(wanted)!r}")
        if not 0 <= begin <= stop <= log.steps:
            raise ValueError(
                f"begin and stop must satisfy 0 ≤ begin ≤ stop ≤ {log.steps}, "
                f"got {begin!r} and {stop!r}"
            )
        names = [log.names[k] for k in wanted]
        while begin < stop:
            rest_names, rest_begin, values = self._rest
            if (rest_names, rest_begin) != (names, begin) or not len(values):
                values = self._read_on(names, begin, stop)
            block = values[: stop - begin]
            begin += len(block)
            self._rest = names, begin, values[len(block) :]
            yield block

    def _read_on(self, names: list[str], begin: int, stop: int) -> np.ndarray:
        """Samples from `begin` to `stop` or the file's end, and the rest of the last row group."""
        index, inside = divmod(begin, ROWS_PER_RANGE)  # the file, and the place of `begin` in it
        first = inside // ROW_GROUP
        end = min(ROWS_PER_RANGE, inside + stop - begin)
        groups = range(first, -(-end // ROW_GROUP))
        columns = list(dict.fromkeys(names))
        with pq.ParquetFile(part_path(self.log.path, index), pre_buffer=False) as file:
            table = file.read_row_groups(groups, columns, use_threads=False)
        out = np.empty((len(names), len(table)))
        for row, name in zip(out, names, strict=True):  # `to_numpy` would load pandas
            np.concatenate([np.from_dlpack(chunk) for chunk in table[name].chunks], out=row)
        values = out.T[inside - first * ROW_GROUP :]
        if not len(values):
            raise ValueError(
                f"path must hold a log of {self.log.steps} steps, got {str(self.log.path)!r} "
                f"without step {begin}; delete the directory and make it again"
            )
        return values


def part_path(directory: Path, index: int) -> Path:
    """File of one row range."""
    return directory / f"part-{index:05d}.parquet"


def rows_of(index: int, steps: int) -> slice:
    """Steps of one row range."""
    return slice(index * ROWS_PER_RANGE, min((index + 1) * ROWS_PER_RANGE, steps))


def write_part(directory: Path, index: int, values: np.ndarray, names: Sequence[str]) -> None:
    """Write one row range; `values` has shape (rows, n)."""
    columns = [pa.array(np.ascontiguousarray(column)) for column in values.T]
    table = pa.table(columns, names=list(names))
    # noise cannot be compressed: compressed files are not smaller, and take four times as long
    packing = {"compression": "none", "use_dictionary": False}
    pq.write_table(table, part_path(directory, index), row_group_size=ROW_GROUP, **packing)


def write_manifest(
    directory: Path, names: Sequence[str], steps: int, about: dict[str, Any]
) -> None:
    """Write the manifest, which makes the log complete."""
    manifest = {"names": list(names), "steps": int(steps), "about": about}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
