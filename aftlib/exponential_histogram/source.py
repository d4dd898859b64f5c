"""Sources of events for Spark queries: seeded bits, streamed or per partition, and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
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
    """Bits of several keys, one row per event; `at` counts from 1 within a key.

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
        """End of the micro-batch: `every` events further."""
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


#: Timestamps and events, a chunk at a time, in order of time within a partition.
Chunks = Iterator[tuple[NDArray[np.int64], NDArray[Any]]]
Reader = Callable[[Iterator[pa.RecordBatch]], Chunks]


def rows(batches: Iterator[pa.RecordBatch]) -> Chunks:
    """Reader of a frame with the columns `at` and `event`, one row per event."""
    for batch in batches:
        at, event = (batch.column(name) for name in ("at", "event"))
        yield at.to_numpy(), event.to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class Drawn:
    """Reader of a seeded stream: task i of m generates the ranges i, i + m, ….

    So every task has events from the whole time, which tests merging.
    """

    stream: BitStream
    size: int
    tasks: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """One partition per task, holding its number."""
        return spark.range(0, self.tasks, 1, self.tasks)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Chunks:
        """Yield timestamps 1 … `size`, and bits."""
        ranges = -(-self.size // EVENTS_PER_RANGE)
        for task in (task for batch in batches for task in batch.column(0).to_pylist()):
            for index in range(task, ranges, self.tasks):
                first = index * EVENTS_PER_RANGE
                at = np.arange(first + 1, min(first + EVENTS_PER_RANGE, self.size) + 1)
                yield at, self.stream.range(index)[: at.size]
