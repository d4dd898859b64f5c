"""Partial replay on Structured Streaming: micro-batch boundaries are the planned τ_k (D2).

If a driver crashes in a batch, the next driver recovers the batch before Spark's stream starts.
Spark then runs the batch again, and the operator skips it, because it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from aftlib.checkpoint_planning.operator import PartialReplay, Read, ReplayQuery, bare_read, prepare
from aftlib.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
    WindowResult,
)
from aftlib.checkpoint_planning.steps import interval_sums
from aftlib.core.sensorlog import LogReader, SensorLog
from aftlib.spark.checkpoint import QueryDirectory
from aftlib.spark.streams import PlannedInput, drain

_LONG = pa.int64()
_LISTS = {"keys": pa.int32(), "sums": pa.float64(), "counts": _LONG}
SUM = pa.schema({"start": _LONG, "stop": _LONG} | {k: pa.list_(v) for k, v in _LISTS.items()})
SUM_SCHEMA = from_arrow_schema(SUM)


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
    state: str  # path of the checkpoint store
    fingerprint: str  # of the stream
    stop: int  # step at which the stream ends, the end of the last whole window
    tasks: int  # slices of the sensors that are read in parallel

    schema: ClassVar[StructType] = SUM_SCHEMA
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
        for record in store.records():
            if record.start == start:
                return record.stop
        raise ValueError(
            f"batch must go on at step {checkpoint.position}, where the state ends, got {start} "
            "from Spark's checkpoint; restore both from the same copy, or delete both"
        )

    def partitions(self, start: int, stop: int) -> list[SensorSlice]:
        """Slices of all sensors, or of none if the operator has already committed these steps."""
        position = CheckpointStore(self.state, self.fingerprint).restore().position  # type: ignore[union-attr]
        keys = range(len(SensorLog.open(self.log).names) if position == start else 0)
        return [SensorSlice(part, start, stop) for part in sliced(keys, self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the sums of the slice, in one row."""
        piece = cast("SensorSlice", partition)
        yield sum_slice(SensorLog.open(self.log), piece.keys, piece.start, piece.stop)


def sliced(keys: Sequence[int], tasks: int) -> list[list[int]]:
    """Keys cut into one part per task; without keys, one empty part."""
    parts = np.array_split(np.array(keys, dtype=int), min(tasks, max(1, len(keys))))
    return [part.tolist() for part in parts]


def sum_slice(
    log: SensorLog | LogReader, keys: Sequence[int], start: int, stop: int
) -> pa.RecordBatch:
    """A row of `SUM`."""
    sums, counts = interval_sums(log, keys, start, stop)
    row = {"start": start, "stop": stop, "keys": keys, "sums": sums, "counts": counts}
    return pa.RecordBatch.from_pydict({name: [value] for name, value in row.items()}, schema=SUM)


def collected(frame: DataFrame) -> Read:
    """Return a reader that runs the tasks of a frame of `SUM` rows and puts sums in key order.

    The tasks run once for all segments of the batch.
    """
    rows: list[dict] = []

    def read(keys: Sequence[int], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        rows.extend([] if rows else frame.toArrow().to_pylist())
        mine = [row for row in rows if (row["start"], row["stop"]) == (start, stop)]
        if not mine:
            raise ValueError(
                f"batch must cover the steps [{start}, {stop}) that the state waits for, got "
                f"[{rows[0]['start']}, {rows[0]['stop']}); state and Spark's checkpoint must be of "
                "one stream: restore both from the same copy"
            )
        each = [zip(*(row[name] for name in _LISTS), strict=True) for row in mine]
        by_key = {key: (value, count) for part in each for key, value, count in part}
        sums, counts = ([by_key[key][i] for key in keys] for i in (0, 1))
        return np.array(sums), np.array(counts, np.int64)

    return read


@dataclass(frozen=True)
class ReplayedStream:
    """Result of a stream: finished windows, and a record of each batch."""

    results: list[WindowResult]
    records: list[IntervalRecord]


def replay_stream(
    spark: SparkSession,
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    passes: Callable[[str, int], None] = lambda point, batch: None,
    tasks: int = 2,
) -> ReplayedStream:
    """Stream the whole windows of a log; continue where an earlier process crashed.

    `directory` has the state, the prepared replay sets and Spark's own checkpoint. `passes` is
    called with each point that a batch passes, where faults are injected. Each batch is read by
    `tasks` parallel tasks.

    ValueError when the log's keys are not the model's in the same order; when the directory is
    another stream's; or when Spark's checkpoint is torn or ahead of the state. TimeoutError when
    another driver uses the directory.
    """
    with QueryDirectory(directory).locked():
        operator = prepare(query, log, directory, passes)
        require_in_step(operator, Path(directory))
        operator.recover()
        planned = PlannedLog(
            log=str(log.path.absolute()),
            state=str(operator.store.path.absolute()),
            fingerprint=query.fingerprint,
            stop=log.steps - log.steps % query.window,
            tasks=tasks,
        )

        def step(batch: DataFrame, number: int) -> None:
            operator.process(number, collected(batch))

        try:
            drain(planned.stream(spark).writeStream, Path(directory), step)
        finally:
            operator.store.end(operator.process_id)
        return _replayed(operator)


def require_in_step(operator: PartialReplay, directory: Path) -> None:
    """Refuse a Spark checkpoint that is torn, or ahead of the state.

    A checkpoint that is behind the state does no harm: committed batches do not run again.
    """
    place = QueryDirectory(
        directory,
        f"remove the folder {str(directory / 'checkpoint')!r}; the state tells Spark which "
        "micro-batches it has, and none of them is done again",
    )
    offset = place.spark_checkpoint().offset
    needed = offset[PlannedLog.unit] if offset else 0
    missing = f"state must have come to step {needed}, which Spark's checkpoint counts as done"
    place.require_state(needed, operator.checkpoint.position, missing, operator.store.path)


def replay_in_process(
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    passes: Callable[[str, int], None] = lambda point, batch: None,
) -> ReplayedStream:
    """`replay_stream` in this process, without Spark; arguments, result and errors are the same."""
    stop = log.steps - log.steps % query.window
    with QueryDirectory(directory).locked():
        operator = prepare(query, log, directory, passes)
        read = bare_read(log)
        operator.recover()
        batch = len(operator.store.records())
        try:
            while operator.checkpoint.position < stop:
                operator.process(batch, read)
                batch += 1
        finally:
            operator.store.end(operator.process_id)
        return _replayed(operator)


def _replayed(operator: PartialReplay) -> ReplayedStream:
    return ReplayedStream(operator.store.results(), operator.store.records())
