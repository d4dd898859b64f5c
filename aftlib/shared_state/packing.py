"""Rows as bytes, with a word and what JSON can say: what processes send each other and keep.

A message is three lengths (`HEAD`), a word with what belongs to it as JSON, and rows as 64-bit
integers: all windows, all keys, all values. Nothing that comes can be more than that.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import astuple
from operator import index
from typing import Any

import numpy as np

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.stores.tables import Progress

HEAD = struct.Struct("=IQI")
"""Bytes of JSON, rows, and values a row; what follows begins at a multiple of 8 bytes."""


def packed(word: str, what: object = None, rows: Partials | None = None) -> bytes:
    """A message of a word, what JSON can say, and rows."""
    said = json.dumps([word, what], default=index).encode()  # numpy's integers, too
    said += b" " * (-len(said) % 8)
    head = HEAD.pack(len(said), *(rows.values.shape if rows is not None else (0, 0)))
    columns = () if rows is None else (rows.windows, rows.keys, rows.values)
    return b"".join([head, said, *(np.ascontiguousarray(c).data for c in columns)])


def unpacked(message: bytes) -> tuple[str, Any, Partials]:
    """Word, what JSON said, and the rows of a message; ValueError when it is none."""
    try:
        length, rows, components = HEAD.unpack_from(message)
        word, what = json.loads(message[HEAD.size : HEAD.size + length])
        numbers = np.frombuffer(message, np.int64, offset=HEAD.size + length)
        windows, keys, values = np.split(numbers, [rows, 2 * rows])
        return word, what, Partials(windows, keys, values.reshape(rows, components))
    except (struct.error, ValueError, TypeError) as error:
        raise ValueError(
            f"message must be lengths, JSON and rows, got {len(message)} bytes ({error}): "
            "do all processes run the same aftlib?"
        ) from error


def told(progress: Mapping[int, Progress]) -> dict[int, tuple]:
    """How far partitions are, for a message."""
    return {partition: astuple(now) for partition, now in progress.items()}


def understood(what: Mapping[str, list]) -> dict[int, Progress]:
    """What `told` has told."""
    return {int(partition): Progress(*now) for partition, now in what.items()}
