"""The directory of a streaming query: its identity, its lock, and Spark's progress.

Spark syncs none of its files on a local disk. So after a power failure Spark's checkpoint may be
empty, cut, or older than the query's own state; after this state is restored from a copy, it may be
newer. `QueryDirectory` checks this before Spark continues from it. `pack_arrays` packs the arrays
of a state into one value, for a transaction.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aftlib.core.paths import take_lock, write_whole


@dataclass(frozen=True)
class SparkCheckpoint:
    """The last started and last committed micro-batch of Spark's checkpoint; −1 for none."""

    started: int
    committed: int
    offset: Any = None  # at which the last committed micro-batch ended; None before the first


def read_claim(path: Path, what: str) -> dict:
    """Return the identity stored in a claim file; ValueError when its text is damaged."""
    try:
        return dict(json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{what} must be complete in {str(path)!r}, got damaged text ({error}): restore "
            "that file from a copy, or start again in another directory"
        ) from error


class QueryDirectory:
    """The directory of one streaming query: its state, its output and Spark's own checkpoint.

    `fix` is the instruction at the end of errors about Spark's checkpoint.
    """

    def __init__(self, path: Path | str, fix: str = "start again in another directory") -> None:
        self.path, self.fix = Path(path), fix

    @property
    def checkpoint(self) -> Path:
        """Folder of Spark's own checkpoint."""
        return self.path / "checkpoint"

    def claim(self, what: str, identity: Mapping[str, object]) -> None:
        """Record the identity of the query, or refuse the directory of another query.

        `what` names the identity in messages and is the name of the claim file. `identity` maps
        names to values of Python or numpy types. ValueError when the directory was claimed with
        other values, or holds a checkpoint without a claim.
        """
        claim = self.path / f"{what}.json"
        own = json.loads(json.dumps(identity, default=lambda value: value.tolist()))
        if claim.exists():
            first = read_claim(claim, what)
            if first != own:
                values = ((name, first.get(name), own.get(name)) for name in first | own)
                differences = [f"{name} = {a}, got {b}" for name, a, b in values if a != b]
                raise ValueError(
                    f"{what} must be the one that the stream in {self.path} began with, "
                    f"{'; '.join(differences)}: go on with that one, or start again in another "
                    "directory"
                )
        elif self.checkpoint.exists():
            raise ValueError(
                f"directory must hold the {what} of its stream in {claim}, which is missing: start "
                "again in another directory"
            )
        write_whole(claim, json.dumps(own))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other drivers out while the block runs; a TimeoutError names the driver inside."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "driver.lock").open("a+") as file:
            take_lock(file)
            yield

    def spark_checkpoint(self) -> SparkCheckpoint:
        """Return the progress in Spark's checkpoint.

        ValueError when its last files are empty or cut, or a batch is committed that never started.
        """
        numbers = (last_number(self.checkpoint / name) for name in ("offsets", "commits"))
        started, committed = numbers
        if committed > started:
            raise self._torn(
                f"micro-batch {committed} is committed, and {started} is the last that began"
            )
        if started >= 0 or (self.checkpoint / "metadata").exists():
            self._read_log("metadata", 0)
        for number in {started, started - 1, committed} - {-1, -2}:  # Spark continues from these
            if len(self._read_log(f"offsets/{number}", 1)) < 2:
                raise self._torn(f"offsets/{number} is cut")
        if committed < 0:
            return SparkCheckpoint(started, committed)
        self._read_log(f"commits/{committed}", 1)
        return SparkCheckpoint(started, committed, self._read_log(f"offsets/{committed}", 1)[1])

    def require_state(self, needed: int, stored: int, missing: str, place: Path) -> None:
        """Refuse a checkpoint of Spark's that is ahead of the query's own state.

        A checkpoint that is behind does no harm, because committed batches do not run again.
        `missing` begins the error: it names the content that the state must have.
        """
        if needed > stored:
            raise ValueError(
                f"{missing}, got {stored} in {str(place)!r}: restore both from the same copy, or "
                f"{self.fix}"
            )

    def _read_log(self, name: str, version_lines: int) -> list[Any]:
        """Return the JSON lines of a file of Spark's, after the lines with its version."""
        try:
            text = (self.checkpoint / name).read_text()
            lines = [json.loads(line) for line in text.splitlines()[version_lines:]]
        except (ValueError, OSError) as error:
            raise self._torn(f"{name} is missing or cut") from error
        if not lines:
            raise self._torn(f"{name} is empty")
        return lines

    def _torn(self, reason: str) -> ValueError:
        return ValueError(
            f"Spark's checkpoint must be whole, got {str(self.checkpoint)!r} where {reason}, as a "
            f"power failure may leave it: {self.fix}"
        )


def last_number(folder: Path) -> int:
    """Highest number of a file, compacted or not, in the folder of a Spark log; −1 without any."""
    names = (path.name.removesuffix(".compact") for path in folder.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def pack_arrays(**arrays: Any) -> bytes:
    """Return arrays as bytes; the same arrays give the same bytes."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that `pack_arrays` packed; ValueError or numpy's error for other data."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
