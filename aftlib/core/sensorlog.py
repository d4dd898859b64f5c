"""The replayable sensor log: Parquet files from which any keys over any steps can be read again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.paths import atomic_directory

ROWS_PER_RANGE = 4096
"""Steps a file, and rows of one random stream; part of what a seed means, so never a parameter."""
ROW_GROUP = 1024
"""Steps a row group: the least that a read of one key touches."""
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class SensorLog:
    """A log of n keys over the steps 0 … steps − 1, one row a step, one column a key.

    Reading |O| keys over l steps costs |O|·l values, rounded up to row groups, because Parquet
    stores each key's column apart.

    Attributes
    ----------
    path : Path
        Directory of `part-00000.parquet` … and the manifest, which is written last.
    names : tuple of str
        The n keys.
    steps : int
        Number of steps.
    about : dict
        Whatever the writer noted: parameters, quality counts.
    """

    path: Path
    names: tuple[str, ...]
    steps: int
    about: dict

    @classmethod
    def open(cls, path: Path | str) -> SensorLog:
        """Open a log that was written whole.

        Raises
        ------
        ValueError
            When there is no complete log at `path`.
        """
        path = Path(path)
        try:
            manifest = json.loads((path / MANIFEST).read_text())
            log = cls(path, tuple(manifest["names"]), manifest["steps"], manifest["about"])
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"path holds no complete sensor log, got {str(path)!r} ({error}); "
                "write one with SensorLog.write or delete the directory and make it again"
            ) from error
        for index in range(-(-log.steps // ROWS_PER_RANGE)):
            if not part_path(path, index).exists():
                raise ValueError(
                    f"path holds no complete sensor log, got {str(path)!r} without "
                    f"{part_path(path, index).name}; delete the directory and make it again"
                )
        return log

    @classmethod
    def write(
        cls, path: Path | str, values: np.ndarray, names: Sequence[str], about: dict | None = None
    ) -> SensorLog:
        """Write samples, shape (steps, n), NaN where one is missing, as a log at `path`.

        Raises
        ------
        ValueError
            When the sizes do not fit.
        FileExistsError
            When `path` is already there.
        """
        values = np.asarray(values, dtype=float)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(
                f"values must have shape (steps, {len(names)}), got {values.shape}; "
                "one row a step, one column a key"
            )
        with atomic_directory(Path(path)) as scratch:
            for index in range(-(-len(values) // ROWS_PER_RANGE)):
                write_part(scratch, index, values[rows_of(index, len(values))], names)
            write_manifest(scratch, names, len(values), about or {})
        return cls.open(path)

    def read(self, keys: Sequence[int] | None, begin: int, stop: int) -> np.ndarray:
        """Samples of some keys over the steps [begin, stop), NaN where one is missing.

        Parameters
        ----------
        keys : sequence of int or None
            Key indices, in the order of the columns wanted; None for all.
        begin, stop : int
            Steps inside the log.

        Returns
        -------
        ndarray, shape (stop − begin, len(keys))

        Raises
        ------
        ValueError
            When the steps lie outside the log or a key index is unknown.
        """
        parts = [*self.blocks(keys, begin, stop)]
        return np.concatenate(parts) if parts else np.empty((0, len(self._names_of(keys))))

    def blocks(self, keys: Sequence[int] | None, begin: int, stop: int) -> Iterator[np.ndarray]:
        """As `read`, a block of steps at a time, so that memory stays small."""
        names = self._names_of(keys)
        if not 0 <= begin <= stop <= self.steps:
            raise ValueError(
                f"begin and stop must satisfy 0 ≤ begin ≤ stop ≤ {self.steps}, "
                f"got {begin!r} and {stop!r}"
            )
        last = -(-stop // ROWS_PER_RANGE) if stop > begin else 0
        for index in range(begin // ROWS_PER_RANGE, last):
            first = index * ROWS_PER_RANGE
            rows = slice(max(begin - first, 0), min(stop - first, ROWS_PER_RANGE))
            yield _read_columns(part_path(self.path, index), rows, names)

    def _names_of(self, keys: Sequence[int] | None) -> list[str]:
        wanted = range(len(self.names)) if keys is None else keys
        if any(not 0 <= k < len(self.names) for k in wanted):
            raise ValueError(
                f"keys must lie inside 0 … {len(self.names) - 1}, got {list(wanted)!r}"
            )
        return [self.names[k] for k in wanted]


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
    pq.write_table(table, part_path(directory, index), row_group_size=ROW_GROUP, compression="zstd")


def write_manifest(directory: Path, names: Sequence[str], steps: int, about: dict) -> None:
    """Write the manifest, which makes the log complete."""
    manifest = {"names": list(names), "steps": int(steps), "about": about}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))


def _read_columns(path: Path, rows: slice, names: Sequence[str]) -> np.ndarray:
    first, last = rows.start // ROW_GROUP, -(-rows.stop // ROW_GROUP)
    with pq.ParquetFile(path) as file:
        table = file.read_row_groups(range(first, last), columns=list(dict.fromkeys(names)))
    wanted = slice(rows.start - first * ROW_GROUP, rows.stop - first * ROW_GROUP)
    out = np.empty((rows.stop - rows.start, len(names)))
    for j, name in enumerate(names):
        out[:, j] = table.column(name).to_numpy()[wanted]
    return out
