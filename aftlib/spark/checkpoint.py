"""The directory of a streaming query: its lock, and Spark's progress.

Spark syncs none of its files on a local disk. So after a power failure its checkpoint may be older
than the query's own state; after this state is restored from a copy, it may be newer. A query
checks this before Spark continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aftlib.core.paths import take_lock


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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other drivers out while the block runs; a TimeoutError names the driver inside."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "driver.lock").open("a+") as file:
            take_lock(file)
            yield

    def committed_offset(self) -> Any:
        """Return the offset at which the last committed micro-batch ended; None before the first.

        ValueError when it is missing in Spark's checkpoint, or cut.
        """
        names = (path.name for path in (self.checkpoint / "commits").glob("[0-9]*"))
        batches = [int(name.removesuffix(".compact")) for name in names]
        if not batches:
            return None
        file = self.checkpoint / "offsets" / str(max(batches))
        try:
            version, metadata, offset = file.read_text().splitlines()
            return json.loads(offset)
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
