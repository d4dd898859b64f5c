"""The directory of a streaming query: its identity, its lock, and Spark's progress.

Spark syncs none of its files on a local disk. So after a power failure its checkpoint may be older
than the query's own state; after this state is restored from a copy, it may be newer. A query
checks this before Spark continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aftlib.core.paths import take_lock, write_whole


@dataclass(frozen=True)
class SparkCheckpoint:
    """The last started and last committed micro-batch of Spark's checkpoint; −1 for none."""

    started: int
    committed: int
    offset: Any = None  # at which the last committed micro-batch ended; None before the first


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
        if not claim.exists() and self.checkpoint.exists():
            raise ValueError(
                f"directory must hold the {what} of its stream in {claim}, which is missing: start "
                "again in another directory"
            )
        first = read_claim(claim, what) if claim.exists() else own
        differences = [
            f"{name} = {first.get(name)}, got {own.get(name)}"
            for name in first | own
            if first.get(name) != own.get(name)
        ]
        if differences:
            raise ValueError(
                f"{what} must be the one that the stream in {self.path} began with, "
                f"{'; '.join(differences)}: go on with that one, or start again in another "
                "directory"
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

        ValueError when the offset of the last committed micro-batch is missing or cut.
        """
        started = last_number(self.checkpoint / "offsets")
        committed = last_number(self.checkpoint / "commits")
        if committed < 0:
            return SparkCheckpoint(started, committed)
        file = self.checkpoint / "offsets" / str(committed)
        try:
            version, metadata, offset = file.read_text().splitlines()
            return SparkCheckpoint(started, committed, json.loads(offset))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"Spark's checkpoint must be whole, got {str(file)!r} cut or missing, as a power "
                f"failure may leave it: {self.fix}"
            ) from error

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


def read_claim(path: Path, what: str) -> dict:
    """Return the identity stored in a claim file; ValueError when its text is damaged."""
    try:
        return dict(json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{what} must be complete in {str(path)!r}, got damaged text ({error}): restore "
            "that file from a copy, or start again in another directory"
        ) from error


def last_number(folder: Path) -> int:
    """Highest number of a file, compacted or not, in the folder of a Spark log; −1 without any."""
    names = (path.name.removesuffix(".compact") for path in folder.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)
