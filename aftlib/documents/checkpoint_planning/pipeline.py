"""Partial replay on Structured Streaming: micro-batch boundaries are the planned τ_k (D2).

If a driver crashes in a batch, the next driver recovers the batch before Spark's stream starts.
Spark then runs the batch again, and the operator skips it, because it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning.operator import (
    PartialReplay,
    Passes,
    ReplayQuery,
    bare_read,
    driver,
    ignore_points,
    interval_sums,
)
from aftlib.documents.checkpoint_planning.state import Checkpoint, CheckpointStore
from aftlib.spark.streams import CHECKPOINT, PlannedInput, committed_offset, drain

SUMS = pa.schema(
    {
        "start": pa.int64(),
        "stop": pa.int64(),
        "sensor": pa.int32(),
        "sum": pa.float64(),
        "count": pa.int64(),
    }
)
"""One row per sensor of a micro-batch: its samples in the steps [start, stop)."""


@dataclass(frozen=True)
class PlannedLog(PlannedInput):
    """A sensor log as a stream whose micro-batches end at the plan's τ."""

    log: SensorLog
    state: Path  # directory of the checkpoint store
    stop: int  # step at which the stream ends, the end of the last whole window
    tasks: int  # slices of the sensors that are read in parallel

    schema: ClassVar[StructType] = from_arrow_schema(SUMS)
    unit: ClassVar[str] = "step"

    def next_boundary(self, start: int) -> int:
        """Return the next τ of the current plan, or the end of a batch that is committed."""
        if start >= self.stop:
            return start
        with CheckpointStore(self.state) as store:
            checkpoint = cast("Checkpoint", store.restore())
            if checkpoint.position == start:
                return checkpoint.next_boundary
            # Spark's checkpoint is behind the state: an earlier driver went on without Spark, or a
            # power failure deleted Spark's last files
            return int(store.records().set_index("start")["stop"][start])

    def partitions(self, start: int, stop: int) -> list[InputPartition]:
        """Slices of the sensors, each with the steps."""
        slices = np.array_split(np.arange(len(self.log.names)), self.tasks)
        return [InputPartition((keys, start, stop)) for keys in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one row per sensor of the slice."""
        keys, start, stop = partition.value
        sums, counts = interval_sums(self.log, keys, start, stop)
        columns = {
            "start": np.full(len(keys), start),
            "stop": np.full(len(keys), stop),
            "sensor": keys,
            "sum": sums,
            "count": counts,
        }
        yield pa.RecordBatch.from_pydict(columns, schema=SUMS)


def replay_stream(
    spark: SparkSession,
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    passes: Passes = ignore_points,
) -> CheckpointStore:
    """Stream the whole windows of a log; continue where an earlier process crashed.

    `directory` has the state, the prepared replay sets and Spark's own checkpoint. Each batch is
    read by as many tasks as Spark runs in parallel. The returned state has the finished windows,
    and a record of each batch. A batch in which a process crashed is read without Spark, because
    T_SLA permits few tuples and Spark would have to start first. Close the returned store.

    ValueError when the log's keys are not the model's in the same order; when the directory is
    another stream's; or when Spark's checkpoint is torn or not in step with the state. TimeoutError
    when another driver uses the directory.
    """
    with driver(query, log, directory, passes) as operator:
        require_in_step(operator, Path(directory))
        operator.recover(bare_read(log))
        here = replace(log, path=log.path.absolute())  # tasks may run in another folder
        tasks = spark.sparkContext.defaultParallelism
        planned = PlannedLog(here, Path(directory).absolute(), operator.stop, tasks)

        def step(batch: DataFrame, number: int) -> None:
            def read(keys: Sequence[int], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
                return read_batch(batch.toArrow(), keys, start, stop)

            operator.process(number, read)

        drain(planned.stream(spark).writeStream, Path(directory), step)
        return operator.store


def read_batch(
    rows: pa.Table, keys: Sequence[int], start: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and numbers of the samples of some sensors from a micro-batch with all sensors.

    ValueError unless the micro-batch has the steps [start, stop) of every sensor.
    """
    for name, step in (("start", start), ("stop", stop)):
        steps = pc.unique(rows[name]).to_pylist()
        if steps != [step]:
            raise ValueError(
                f"the micro-batch must {name} at step {step}, as the state's next interval "
                f"[{start}, {stop}) does, got {steps}: let one driver at a time use the directory"
            )
    ordered = rows.sort_by("sensor")
    return ordered["sum"].to_numpy()[keys], ordered["count"].to_numpy()[keys]


def require_in_step(operator: PartialReplay, directory: Path) -> None:
    """Refuse a Spark checkpoint that is torn, or does not end where a batch of the state ends.

    A checkpoint that is behind the state does no harm: committed batches do not run again.
    """
    checkpoint = directory / CHECKPOINT
    fix = (
        f"remove the folder {str(checkpoint)!r}; the state tells Spark which micro-batches it has, "
        "and none of them is done again"
    )
    offset = committed_offset(checkpoint, fix)
    needed = offset[PlannedLog.unit] if offset else 0
    if needed and needed not in operator.store.records()["stop"].to_numpy():
        raise ValueError(
            f"state must have a batch that ends at step {needed}, where Spark's checkpoint ends, "
            f"got step {operator.last_checkpoint().position} in {str(operator.store.path)!r}: "
            f"restore both from the same copy, or {fix}"
        )
