"""A sensor log as a replayable stream of micro-batches: one partition a worker (D1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from aftlib.approximately_once.operator import RESULT_SCHEMA, Shift, Worker
from aftlib.approximately_once.sink import WindowSink
from aftlib.core.sensorlog import LogReader, SensorLog
from aftlib.spark.streams import PlannedInput


@dataclass(frozen=True)
class SensorShifts(PlannedInput):
    """A sensor log in shifts: one a worker in each micro-batch of `every` steps.

    The worker works where its input is read, so that Spark carries windows and no samples.
    """

    log: str  # path of the sensor log
    sink: str  # path of the sink, whose outages say what workers no longer hold
    worker: Worker
    every: int
    workers: list[list[int]]  # key indices of each
    approximate: list[bool]  # whether a worker's substitute skips what was lost
    outages: list[tuple[int, int, int]]  # worker, failure, recovery, as scheduled
    end: int

    schema: ClassVar[str] = RESULT_SCHEMA

    def next_boundary(self, start: int) -> int:
        """The next multiple of `every`, or the end."""
        return min((start // self.every + 1) * self.every, self.end)

    def partitions(self, start: int, stop: int) -> list[Shift]:
        """One shift a worker.

        While windows that another worker lost are still due, a death is recovered exactly: nothing
        would be left to estimate from.
        """
        windows = self.worker.windows
        due = windows.ending_in(start, stop)
        first = due[0] * windows.slide if due else start
        held, shifts = WindowSink(self.sink).held(), []
        for worker, keys in enumerate(self.workers):
            others = max((step for other, step in held.items() if other != worker), default=0)
            resume = stop if self.approximate[worker] and others <= first else None
            for struck, failure, recovery in self.outages:
                if resume is not None and struck == worker and start <= failure < stop:
                    resume = recovery
            begin = max(first, held.get(worker, 0))
            shifts.append(Shift(worker, keys, begin, start, stop, resume))
        return shifts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What the worker makes of its shift; later attempts are substitutes."""
        context, log = TaskContext.get(), SensorLog.open(self.log)
        attempt = 0 if context is None else context.attemptNumber()
        # several workers of a process read the same files
        blocks = LogReader(log, shared=True).blocks
        return self.worker.work(cast("Shift", partition), attempt, blocks)
