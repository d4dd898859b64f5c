"""A sensor log as a replayable stream of micro-batches: one partition a worker (D1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from aftlib.approximately_once.mailbox import Mail, Mailbox
from aftlib.approximately_once.sink import WindowSink
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.planned import PlannedInput

_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "array<long>": pa.list_(pa.int64()),
    "array<double>": pa.list_(pa.float64()),
}


def arrow_schema(columns: str) -> pa.Schema:
    """Arrow's words for Spark's, such as "worker int, values array<double>"."""
    pairs = (column.split() for column in columns.split(", "))
    return pa.schema([(name, _ARROW[kind]) for name, kind in pairs])


@dataclass
class Shift(InputPartition):
    """What one worker has to read in one micro-batch: windows ending in (start, stop] are due."""

    worker: int
    keys: list[int]
    begin: int  # first step that its half-filled windows need; later when an outage took them
    start: int
    stop: int
    resume: int | None  # where a substitute goes on; None for one that reads all again


@dataclass(frozen=True)
class SensorShifts(PlannedInput):
    """A sensor log in shifts: one a worker in each micro-batch of `every` steps.

    Its rows are blocks of steps; `values` is row-major (steps, keys). `dead`, `failure` and
    `recovery` are null unless a substitute skips what a dead process has lost.
    """

    log: str  # path of the sensor log
    sink: str  # path of the sink, whose outages say what workers no longer hold
    mail: str  # folder of the mailbox, which proves that a substitute's predecessor is dead
    windows: Windows
    every: int
    workers: list[list[int]]  # key indices of each
    approximate: list[bool]  # whether a worker's substitute skips what was lost
    outages: list[tuple[int, int, int]]  # worker, failure, recovery, as scheduled
    end: int

    schema: ClassVar[str] = (
        "worker int, start long, stop long, step long, dead long, failure long, recovery long, "
        "values array<double>"
    )

    def next_boundary(self, start: int) -> int:
        """The next multiple of `every`, or the end."""
        return min((start // self.every + 1) * self.every, self.end)

    def partitions(self, start: int, stop: int) -> list[Shift]:
        """One shift a worker.

        While windows that another worker lost are still due, a death is recovered exactly: nothing
        would be left to estimate from.
        """
        due = self.windows.ending_in(start, stop)
        first = due[0] * self.windows.slide if due else start
        held: dict[int, int] = {}  # step since which a worker that was down has held its input
        for outage in WindowSink(self.sink).outages():
            held[outage.worker] = max(outage.recovery, held.get(outage.worker, 0))

        shifts = []
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
        """A header block without values, then the worker's input in blocks of steps."""
        shift, context = cast("Shift", partition), TaskContext.get()
        begin = min(shift.begin, shift.stop)
        lost = self._lost(shift, 0 if context is None else context.attemptNumber())
        if lost is None:
            yield _block(shift, begin, np.empty(0))
        else:
            recovery = cast("int", shift.resume)
            begin = max(begin, min(recovery, shift.stop))
            yield _block(shift, begin, np.empty(0), lost.pid, lost.reached, recovery)
        for values in SensorLog.open(self.log).blocks(shift.keys, begin, shift.stop):
            yield _block(shift, begin, values)
            begin += len(values)

    def _lost(self, shift: Shift, attempt: int) -> Mail | None:
        """Mail of the first of the attempts before, if they are dead and may be estimated."""
        if not attempt or shift.resume is None:
            return None
        box = Mailbox(Path(self.mail))
        deaths = [box.death(shift.worker, shift.start, i, len(shift.keys)) for i in range(attempt)]
        if None in deaths or not box.claim(shift.worker, shift.start):
            return None
        return deaths[0]


BLOCK = arrow_schema(SensorShifts.schema)


def _block(
    shift: Shift,
    step: int,
    values: np.ndarray,
    dead: int | None = None,
    failure: int | None = None,
    recovery: int | None = None,
) -> pa.RecordBatch:
    row = [shift.worker, shift.start, shift.stop, step, dead, failure, recovery]
    flat = pa.ListArray.from_arrays(pa.array([0, values.size], pa.int32()), values.ravel())
    arrays = [pa.array([v], f.type) for v, f in zip(row, BLOCK, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, flat], schema=BLOCK)
