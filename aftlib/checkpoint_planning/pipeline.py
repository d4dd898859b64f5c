"""Partial replay on Structured Streaming: micro-batch boundaries are the planned τ_k (D2).

If a driver crashes in a batch, the next driver recovers the batch before Spark's stream starts.
Spark then runs the batch again, and the operator skips it, because it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from aftlib.checkpoint_planning.operator import (
    PartialReplay,
    Passes,
    Read,
    ReplayQuery,
    bare_read,
    driver,
    ignore_points,
    interval_sums,
)
from aftlib.checkpoint_planning.state import Checkpoint, CheckpointStore
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.streams import PlannedInput, QueryDirectory, drain

_LONG = pa.int64()
SUMS = pa.schema(
    {"start": _LONG, "stop": _LONG, "sensor": pa.int32(), "sum": pa.float64(), "count": _LONG}
)


@dataclass
class SensorSlice(InputPartition):
    """Sensors that one task reads over the steps of a micro-batch."""

    keys: list[int]
    start: int
    stop: int


@dataclass(frozen=True)
class PlannedLog(PlannedInput):
    """A sensor log as a stream whose micro-batches end at the plan's τ."""

    log: str  # path
    state: str  # directory of the checkpoint store
    fingerprint: str  # of the stream
    stop: int  # step at which the stream ends, the end of the last whole window
    tasks: int  # slices of the sensors that are read in parallel

    schema: ClassVar[StructType] = from_arrow_schema(SUMS)
    unit: ClassVar[str] = "step"

    def next_boundary(self, start: int) -> int:
        """Next τ of the current plan; for a batch that is already committed, the batch's end."""
        if start >= self.stop:
            return start
        store = CheckpointStore(self.state, self.fingerprint)
        checkpoint = cast("Checkpoint", store.restore())
        if checkpoint.position == start:
            return checkpoint.next_boundary
        # Spark's checkpoint is behind the state, as a power failure may leave it
        records = store.records()
        for stop in records["stop"][records["start"] == start].tolist():
            return stop
        raise ValueError(
            f"batch must go on at step {checkpoint.position}, where the state ends, got {start} "
            "from Spark's checkpoint; restore both from the same copy, or delete both"
        )

    def partitions(self, start: int, stop: int) -> list[SensorSlice]:
        """Slices of all sensors, or of none if the operator has already committed these steps."""
        checkpoint = cast("Checkpoint", CheckpointStore(self.state, self.fingerprint).restore())
        size = len(SensorLog.open(self.log).names) if checkpoint.position == start else 0
        parts = np.array_split(np.arange(size), min(self.tasks, max(1, size)))
        return [SensorSlice(part.tolist(), start, stop) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one row per sensor of the slice."""
        piece = cast("SensorSlice", partition)
        sums, counts = interval_sums(SensorLog.open(self.log), piece.keys, piece.start, piece.stop)
        size = len(piece.keys)
        columns = [[piece.start] * size, [piece.stop] * size, piece.keys, sums, counts]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, SUMS.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SUMS)


def batch_reader(batch: DataFrame) -> Read:
    """Return a reader of a micro-batch of `PlannedLog`, whose tasks run at its first read."""

    def read(keys: Sequence[int], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        rows = batch.toArrow().sort_by("sensor")
        steps = (rows["start"][0].as_py(), rows["stop"][0].as_py())
        if steps != (start, stop):
            raise ValueError(
                f"batch must cover the steps [{start}, {stop}) that the state waits for, got "
                f"[{steps[0]}, {steps[1]}); restore state and Spark's checkpoint from the same copy"
            )
        return rows["sum"].to_numpy()[keys], rows["count"].to_numpy()[keys]

    return read


def replay_stream(
    spark: SparkSession,
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    passes: Passes = ignore_points,
    tasks: int = 2,
) -> CheckpointStore:
    """Stream the whole windows of a log; continue where an earlier process crashed.

    `directory` has the state, the prepared replay sets and Spark's own checkpoint. Each batch is
    read by `tasks` parallel tasks. The returned state has the finished windows, and a record of
    each batch. A batch in which a process crashed is read without Spark, because T_SLA permits few
    tuples and Spark would have to start first.

    ValueError when the log's keys are not the model's in the same order; when the directory is
    another stream's; or when Spark's checkpoint is torn or ahead of the state. TimeoutError when
    another driver uses the directory.
    """
    with driver(query, log, directory, passes) as operator:
        require_in_step(operator, Path(directory))
        operator.recover(bare_read(log))
        planned = PlannedLog(
            log=str(log.path.absolute()),
            state=str(operator.store.path.parent.absolute()),
            fingerprint=query.fingerprint,
            stop=operator.stop,
            tasks=tasks,
        )

        def step(batch: DataFrame, number: int) -> None:
            operator.process(number, batch_reader(batch))

        drain(planned.stream(spark).writeStream, Path(directory), step)
        return operator.store


def require_in_step(operator: PartialReplay, directory: Path) -> None:
    """Refuse a Spark checkpoint that is torn, or ahead of the state.

    A checkpoint that is behind the state does no harm: committed batches do not run again.
    """
    place = QueryDirectory(
        directory,
        f"remove the folder {str(directory / 'checkpoint')!r}; the state tells Spark which "
        "micro-batches it has, and none of them is done again",
    )
    offset = place.committed_offset()
    needed = offset[PlannedLog.unit] if offset else 0
    missing = f"state must have come to step {needed}, which Spark's checkpoint counts as done"
    place.require_state(needed, operator.checkpoint.position, missing, operator.store.path)
