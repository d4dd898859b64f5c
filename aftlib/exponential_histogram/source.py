"""A replayable stream of bits for Structured Streaming: offsets are event numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from aftlib.exponential_histogram.bits import EVENTS_PER_RANGE, BitStream

EVENT_SCHEMA = "key long, at long, event boolean"
EVENT = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("event", pa.bool_())])


@dataclass(frozen=True)
class EventPlan:
    """Everything the source needs, in JSON's types.

    Attributes
    ----------
    share, burst, seed
        As `BitStream`; key number i has the seed `seed` + i.
    keys : int
        Streams.
    stop : int
        Events of each key.
    every : int
        Events of each key in a micro-batch.
    tasks : int
        Slices of a micro-batch that are read in parallel.
    """

    share: float
    burst: float | None
    seed: int
    keys: int
    stop: int
    every: int
    tasks: int


@dataclass
class EventSlice(InputPartition):
    """Events [start, stop) of every key."""

    start: int
    stop: int


class BitSource(DataSource):
    """Streaming source `bits`; its option `plan` is an `EventPlan` in JSON."""

    @classmethod
    def name(cls) -> str:
        """Name under which Spark knows the source."""
        return "bits"

    def schema(self) -> str:
        """One row an event; `at` counts from 1 within a key."""
        return EVENT_SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """Reader of the plan in the options."""
        return BitReader(EventPlan(**json.loads(self.options["plan"])))


class BitReader(DataSourceStreamReader):
    """Offsets count the events of each key; each micro-batch has `every` more."""

    def __init__(self, plan: EventPlan) -> None:
        self.plan = plan

    def initialOffset(self) -> dict:  # noqa: N802
        """Before the first event."""
        return {"event": 0}

    def latestOffset(self, start: dict, limit: Any) -> dict:  # noqa: N802
        """The next micro-batch's end, whatever Spark's limit."""
        return {"event": min(start["event"] + self.plan.every, self.plan.stop)}

    def partitions(self, start: dict, end: dict) -> list[EventSlice]:
        """Equal slices of the micro-batch."""
        if start["event"] >= end["event"]:
            return []
        edges = np.linspace(start["event"], end["event"], self.plan.tasks + 1).astype(int).tolist()
        return [EventSlice(a, b) for a, b in zip(edges, edges[1:], strict=False) if a < b]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One Arrow batch for each key and range of events."""
        piece = cast("EventSlice", partition)
        for key in range(self.plan.keys):
            stream = BitStream(self.plan.share, self.plan.burst, self.plan.seed + key)
            for first in range(piece.start, piece.stop, EVENTS_PER_RANGE):
                size = min(EVENTS_PER_RANGE, piece.stop - first)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(np.full(size, key)),
                        pa.array(np.arange(first + 1, first + size + 1)),
                        pa.array(stream.draw(size, first)),
                    ],
                    schema=EVENT,
                )


def bit_events(spark: SparkSession, plan: EventPlan) -> DataFrame:
    """Streaming frame of the plan's events: key, at, event."""
    spark.dataSource.register(BitSource)
    return spark.readStream.format("bits").option("plan", json.dumps(asdict(plan))).load()
