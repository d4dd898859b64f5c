"""One exponential histogram a partition, merged: counting 10⁸ events in parallel (D5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from aftlib.exponential_histogram.bits import EVENTS_PER_RANGE, BitStream
from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.operator import HistogramQuery

#: Timestamps and events, a chunk at a time, in order of time within a partition.
Chunks = Iterator[tuple[NDArray[np.int64], NDArray[Any]]]
Reader = Callable[[Iterator[pa.RecordBatch]], Chunks]


def rows(batches: Iterator[pa.RecordBatch]) -> Chunks:
    """Reader of a frame with the columns `at` and `event`, one row an event."""
    for batch in batches:
        at, event = (batch.column(name) for name in ("at", "event"))
        yield at.to_numpy(), event.to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class Drawn:
    """Reader of a seeded stream: task i of m draws the ranges i, i + m, … where it counts them.

    So every task has events from all over the time, and merging has something to merge.
    """

    stream: BitStream
    size: int
    tasks: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """One partition a task, holding its number."""
        return spark.range(0, self.tasks, 1, self.tasks)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Chunks:
        """Timestamps 1 … `size`, and bits."""
        ranges = -(-self.size // EVENTS_PER_RANGE)
        for task in (task for batch in batches for task in batch.column(0).to_pylist()):
            for index in range(task, ranges, self.tasks):
                first = index * EVENTS_PER_RANGE
                at = np.arange(first + 1, min(first + EVENTS_PER_RANGE, self.size) + 1)
                yield at, self.stream.range(index)[: at.size]


@dataclass(frozen=True)
class Merged:
    """What an aggregate found: the histogram of all events, their number, and the partitions'."""

    histogram: ExponentialHistogram
    events: int
    partitions: int


def aggregate(frame: DataFrame, query: HistogramQuery, reader: Reader = rows) -> Merged:
    """Merge one histogram of each partition of a frame; its error is at most ε + ε + ε².

    The frame's rows mean events to the reader, by default one each, with the columns at and event;
    within a partition they are in order of time. Raises ValueError if the query is no time window,
    for only these merge, or (in a task) the timestamps go back.
    """
    if not query.timed:
        raise ValueError(
            "query must have timed=True to be merged, got False: count windows of parts of a "
            "stream say nothing about the window of the whole"
        )

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        histogram, events = query.histogram(), 0
        for at, event in reader(batches):
            histogram.update(event, at)
            events += at.size
        data = histogram.to_bytes()
        yield pa.RecordBatch.from_pydict({"events": [events], "histogram": [data]})

    from aftlib.exponential_histogram import kernels  # noqa: F401 - compiled before the tasks start

    parts = _mapped(frame, part, "events long, histogram binary")
    histograms = [ExponentialHistogram.from_bytes(data) for data in parts["histogram"]]
    merged = query.histogram().merge(*histograms) if histograms else query.histogram()
    return Merged(merged, sum(parts["events"]), len(histograms))


def _mapped(frame: DataFrame, part: Any, schema: str) -> dict[str, list[Any]]:
    """Columns that the tasks return, to which rows go in batches a hundred times Spark's own."""
    conf, name = frame.sparkSession.conf, "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = str(conf.get(name))
    try:
        conf.set(name, str(10**6))
        return frame.mapInArrow(part, schema).toArrow().to_pydict()
    finally:
        conf.set(name, before)


def count(frame: DataFrame, reader: Reader = rows) -> tuple[int, int]:
    """Number of events, and of those that are not 0: what `aggregate` is compared with."""

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        events, ones = 0, 0
        for at, event in reader(batches):
            events, ones = events + at.size, ones + int(np.count_nonzero(event))
        yield pa.RecordBatch.from_pydict({"events": [events], "ones": [ones]})

    parts = _mapped(frame, part, "events long, ones long")
    return sum(parts["events"]), sum(parts["ones"])
