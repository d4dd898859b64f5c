"""A stream whose dead workers' substitutes go on from the present: what was lost stays lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from aftlib.approximately_once.mailbox import Mailbox
from aftlib.approximately_once.source import BLOCK, SensorShifts, Shift
from aftlib.core.sensorlog import SensorLog


@dataclass(frozen=True)
class OnwardShifts(SensorShifts):
    """Shifts that nobody works on twice; an outage that ends with the stream is never mended."""

    def partitions(self, start: int, stop: int) -> list[Shift]:
        """One shift a worker, from where its last outage ended."""
        shifts = []
        for worker, keys in enumerate(self.workers):
            mine = [(f, r) for who, f, r in self.outages if who == worker]
            begin = max([start, *(r for f, r in mine if f < start)])
            resume = next((r for f, r in mine if start <= f < stop), stop)
            shifts.append(Shift(worker, keys, min(begin, stop), start, stop, resume))
        return shifts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A header block without values, then the input in blocks of steps."""
        shift, context = cast("Shift", partition), TaskContext.get()
        begin, attempt = shift.begin, 0 if context is None else context.attemptNumber()
        lost: tuple[int | None, int | None, int | None] = (None, None, None)
        if attempt:
            mail = Mailbox(Path(self.mail)).death(shift.worker, shift.start, 0, len(shift.keys))
            begin = min(cast("int", shift.resume), shift.stop)
            lost = (mail.pid, mail.reached, shift.resume) if mail else lost
        yield _block(shift, begin, np.empty(0), lost)
        for values in SensorLog.open(self.log).blocks(shift.keys, begin, shift.stop):
            yield _block(shift, begin, values)
            begin += len(values)


def _block(
    shift: Shift,
    step: int,
    values: np.ndarray,
    lost: tuple[int | None, int | None, int | None] = (None, None, None),
) -> pa.RecordBatch:
    row = [shift.worker, shift.start, shift.stop, step, *lost]
    flat = pa.ListArray.from_arrays(pa.array([0, values.size], pa.int32()), values.ravel())
    arrays = [pa.array([v], f.type) for v, f in zip(row, BLOCK, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, flat], schema=BLOCK)
