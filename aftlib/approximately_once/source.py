"""A sensor log as a replayable stream of micro-batches: one partition a worker (D1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from aftlib.approximately_once.sink import WindowSink
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

BLOCK_SCHEMA = "worker int, start long, stop long, step long, values array<double>"
BLOCK = pa.schema(
    [
        ("worker", pa.int32()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("step", pa.int64()),
        ("values", pa.list_(pa.float64())),
    ]
)


@dataclass
class Shift(InputPartition):
    """What one worker has to read in one micro-batch.

    Attributes
    ----------
    worker : int
    keys : list of int
        Its key indices.
    begin : int
        First step that its half-filled windows need; later when an outage took them.
    start, stop : int
        The micro-batch: windows ending in (start, stop] are due.
    resume : int or None
        Step from which a substitute goes on; None for a worker whose substitute reads all again.
    """

    worker: int
    keys: list[int]
    begin: int
    start: int
    stop: int
    resume: int | None


class SensorLogStream(DataSource):
    """Streaming source `sensorlog`: one partition a worker, one micro-batch every `every` steps.

    Its one option `plan` is JSON with the fields of `StreamPlan`.
    """

    @classmethod
    def name(cls) -> str:
        """Name under which Spark knows the source."""
        return "sensorlog"

    def schema(self) -> str:
        """One row a block of steps; `values` is row-major (steps, keys)."""
        return BLOCK_SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802, ARG002
        """Reader of the plan in the options."""
        return SensorLogReader(StreamPlan(**json.loads(self.options["plan"])))


@dataclass(frozen=True)
class StreamPlan:
    """Everything the source needs, in JSON's types.

    Attributes
    ----------
    log, sink : str
        Paths of the sensor log and of the sink, whose outages say what workers no longer hold.
    width, slide, every : int
        Windows and micro-batches, steps.
    workers : list of list of int
        Key indices of each worker.
    approximate : list of bool
        Whether a worker's substitute skips what was lost (else it reads all again).
    outages : list of [worker, failure, recovery]
        Scheduled failures.
    stop : int
        Step at which the stream ends.
    """

    log: str
    sink: str
    width: int
    slide: int
    every: int
    workers: list[list[int]]
    approximate: list[bool]
    outages: list[list[int]]
    stop: int


class SensorLogReader(DataSourceStreamReader):
    """Offsets are steps; Spark asks for the next one after each micro-batch."""

    def __init__(self, plan: StreamPlan) -> None:
        self.plan = plan

    def initialOffset(self) -> dict:  # noqa: N802
        """Step 0."""
        return {"step": 0}

    def latestOffset(self, start: dict, limit: Any) -> dict:  # noqa: N802, ARG002
        """The micro-batch boundary after `start`, whatever Spark's limit: the plan decides."""
        boundary = (start["step"] // self.plan.every + 1) * self.plan.every
        return {"step": min(boundary, self.plan.stop)}

    def partitions(self, start: dict, end: dict) -> list[Shift]:
        """One shift a worker."""
        if start["step"] >= end["step"]:
            return []
        windows = Windows(self.plan.width, self.plan.slide)
        due = windows.ending_in(start["step"], end["step"])
        first = due[0] * windows.slide if due else start["step"]
        memory = self._held_since()
        return [
            self._shift(worker, max(first, memory.get(worker, 0)), start["step"], end["step"])
            for worker in range(len(self.plan.workers))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A header block without values, then the worker's input in blocks of steps."""
        shift = cast("Shift", partition)
        context = TaskContext.get()
        begin = min(shift.begin, shift.stop)
        if context is not None and context.attemptNumber() and shift.resume is not None:
            begin = max(begin, min(shift.resume, shift.stop))
        yield _block(shift, begin, np.empty(0))
        for values in SensorLog.open(self.plan.log).blocks(shift.keys, begin, shift.stop):
            yield _block(shift, begin, values)
            begin += len(values)

    def _held_since(self) -> dict[int, int]:
        """Step since which each worker that was down has held its input."""
        held: dict[int, int] = {}
        for outage in WindowSink(self.plan.sink).outages():
            held[outage.worker] = max(outage.recovery, held.get(outage.worker, 0))
        return held

    def _shift(self, worker: int, begin: int, start: int, stop: int) -> Shift:
        resume = stop if self.plan.approximate[worker] else None
        for struck, failure, recovery in self.plan.outages:
            if resume is not None and struck == worker and start <= failure < stop:
                resume = recovery
        return Shift(worker, self.plan.workers[worker], begin, start, stop, resume)


def _block(shift: Shift, step: int, values: np.ndarray) -> pa.RecordBatch:
    row = [[shift.worker], [shift.start], [shift.stop], [step]]
    offsets = pa.array([0, values.size], pa.int32())
    flat = pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))
    arrays = [pa.array(v, f.type) for v, f in zip(row, BLOCK, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, flat], schema=BLOCK)
