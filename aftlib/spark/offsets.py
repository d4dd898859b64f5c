"""What Spark's checkpoint of a stream says, read before Spark goes on by it.

Spark syncs none of its files on a local disk, so that a power failure may leave them behind what
the stream put out, ahead of a copy of it, empty or cut. Only the last ones count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Noted:
    """Micro-batches that Spark has noted; −1 where there is none."""

    begun: int
    committed: int
    offset: Any = None  # at which the last committed one ended; None before the first


def noted(directory: Path | str, way_out: str) -> Noted:
    """What the folder `checkpoint` in a stream's directory says.

    ValueError when its last files are empty or cut, or there is a commit of a batch that has not
    begun; `way_out` says what becomes of the stream then.
    """
    place = Path(directory) / "checkpoint"
    begun, committed = (last_number(place / name) for name in ("offsets", "commits"))
    if committed > begun:
        why = f"micro-batch {committed} is committed, and {begun} is the last that began"
        raise _torn(place, why, way_out)
    if begun >= 0 or (place / "metadata").exists():
        _whole(place / "metadata", 0, way_out)
    for number in {begun, begun - 1, committed} - {-1, -2}:  # those that Spark goes on by
        offsets = _whole(place / "offsets" / str(number), 1, way_out)
        if len(offsets) < 2:
            raise _torn(place, f"offsets/{number} is cut", way_out)
    if committed < 0:
        return Noted(begun, committed)
    _whole(place / "commits" / str(committed), 1, way_out)
    offset = _whole(place / "offsets" / str(committed), 1, way_out)[1]
    return Noted(begun, committed, offset)


def last_number(folder: Path) -> int:
    """Highest number that a file of one of Spark's logs has, compacted or not; −1 without any."""
    names = (path.name.removesuffix(".compact") for path in folder.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _whole(file: Path, version: int, way_out: str) -> list[Any]:
    """The lines of JSON in a file, after those that tell its version."""
    place = next(parent for parent in file.parents if parent.name == "checkpoint")
    try:
        lines = [json.loads(line) for line in file.read_text().splitlines()[version:]]
    except (ValueError, OSError) as error:
        raise _torn(place, f"{file.relative_to(place)} is missing or cut", way_out) from error
    if not lines:
        raise _torn(place, f"{file.relative_to(place)} is empty", way_out)
    return lines


def _torn(place: Path, what: str, way_out: str) -> ValueError:
    return ValueError(
        f"Spark's checkpoint must be whole, got {str(place)!r} where {what}, as a power failure "
        f"may leave it: {way_out}"
    )
