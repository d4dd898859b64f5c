"""A replayable stream of bits for Structured Streaming: offsets are event numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from aftlib.exponential_histogram.bits import EVENTS_PER_RANGE, BitStream
from aftlib.spark.streams import PlannedInput


@dataclass
class EventSlice(InputPartition):
    """Events [start, stop) of every key."""

    start: int
    stop: int


@dataclass(frozen=True)
class BitEvents(PlannedInput):
    """Bits of several keys, one row an event; `at` counts from 1 within a key.

    `share`, `burst` and `seed` are as for `BitStream`; key number i has the seed `seed` + i.
    """

    share: float
    burst: float | None
    seed: int
    keys: int
    stop: int  # events of each key
    every: int  # events of each key in a micro-batch
    tasks: int  # slices of a micro-batch that are read in parallel

    schema = "key long, at long, event boolean"
    unit = "event"

    @property
    def streams(self) -> list[BitStream]:
        """The bits of each key."""
        return [BitStream(self.share, self.burst, self.seed + key) for key in range(self.keys)]

    def next_boundary(self, start: int) -> int:
        """`every` events further."""
        return min(start + self.every, self.stop)

    def partitions(self, start: int, stop: int) -> list[EventSlice]:
        """Equal slices of the micro-batch."""
        edges = np.linspace(start, stop, self.tasks + 1).astype(int).tolist()
        return [EventSlice(a, b) for a, b in zip(edges, edges[1:], strict=False) if a < b]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One Arrow batch for each key and range of events."""
        piece = cast("EventSlice", partition)
        for key, stream in enumerate(self.streams):
            for first in range(piece.start, piece.stop, EVENTS_PER_RANGE):
                size = min(EVENTS_PER_RANGE, piece.stop - first)
                at = np.arange(first + 1, first + size + 1)
                columns = {"key": np.full(size, key), "at": at, "event": stream.draw(size, first)}
                yield pa.RecordBatch.from_pydict(columns)
