"""Partial replay on Structured Streaming: micro-batch boundaries are the planned τ_k (D2).

A micro-batch that runs again after the driver died is the recovery: its tasks read the replay set
O only, the driver estimates the other sensors.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from aftlib.checkpoint_planning.operator import (
    PartialReplay,
    Preparation,
    Read,
    ReplayQuery,
    next_boundary,
)
from aftlib.checkpoint_planning.sqlite import SqliteCheckpoints
from aftlib.checkpoint_planning.state import IntervalRecord, WindowResult
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.drain import drain

SLICE_SCHEMA = "start long, stop long, keys array<int>, values array<double>"
SLICE = pa.schema(
    [
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("keys", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)
SUM_SCHEMA = "start long, stop long, keys array<int>, sums array<double>, counts array<long>"
SUM = pa.schema(
    [
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("keys", pa.list_(pa.int32())),
        ("sums", pa.list_(pa.float64())),
        ("counts", pa.list_(pa.int64())),
    ]
)


@dataclass(frozen=True)
class ReplayPlan:
    """What the source needs to know, in JSON's types.

    Attributes
    ----------
    log, state, preparation : str
        Paths of the sensor log, the checkpoint store and the prepared replay sets.
    fingerprint, run : str
        Of the stream, and of this process.
    times : list of int
        Planned τ of a window nothing has happened to.
    stop : int
        Step at which the stream ends.
    tasks : int
        Slices of the sensors that are read in parallel.
    """

    log: str
    state: str
    preparation: str
    fingerprint: str
    run: str
    times: list[int]
    stop: int
    tasks: int


@dataclass
class SensorSlice(InputPartition):
    """Sensors that one task reads over the steps of a micro-batch."""

    keys: list[int]
    start: int
    stop: int


class PlannedLogStream(DataSource):
    """Streaming source `plannedlog`; its option `plan` is a `ReplayPlan` in JSON."""

    @classmethod
    def name(cls) -> str:
        """Name under which Spark knows the source."""
        return "plannedlog"

    def schema(self) -> str:
        """One row a block of steps; `values` is row-major (steps, keys)."""
        return SLICE_SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """Reader of the plan in the options."""
        return PlannedLogReader(ReplayPlan(**json.loads(self.options["plan"])))


class PlannedLogReader(DataSourceStreamReader):
    """Offsets are steps; each micro-batch ends at the next τ of the plan in force."""

    def __init__(self, plan: ReplayPlan) -> None:
        self.plan = plan

    def initialOffset(self) -> dict:  # noqa: N802
        """Step 0."""
        return {"step": 0}

    def latestOffset(self, start: dict, limit: Any) -> dict:  # noqa: N802
        """Next planned τ, whatever Spark's limit; the last window must be whole."""
        if start["step"] >= self.plan.stop:
            return start
        checkpoint = self._store().restore()
        position = 0 if checkpoint is None else checkpoint.position
        if position != start["step"]:
            raise ValueError(
                f"batch must go on at step {position}, where the state ends, got {start['step']} "
                "from Spark's checkpoint; restore both from the same copy, or delete both"
            )
        return {"step": self.plan.times[1] if checkpoint is None else next_boundary(checkpoint)}

    def partitions(self, start: dict, end: dict) -> list[SensorSlice]:
        """Slices of all sensors, or of the replay set when another process died in this batch."""
        if start["step"] >= end["step"]:
            return []
        keys = self._keys(start["step"])
        slices = np.array_split(np.array(keys, dtype=int), min(self.plan.tasks, max(1, len(keys))))
        return [SensorSlice(s.tolist(), start["step"], end["step"]) for s in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The slice's samples in blocks of steps."""
        piece = cast("SensorSlice", partition)
        return read_slice(self.plan.log, piece.keys, piece.start, piece.stop)

    def _keys(self, start: int) -> list[int]:
        """Sensors of the batch that begins at `start`."""
        everything = list(range(len(SensorLog.open(self.plan.log).names)))
        store = self._store()
        if not store.begun_by_another(start, self.plan.run):
            return everything
        checkpoint = store.restore()
        if checkpoint is not None and checkpoint.position != start:
            return []  # committed already: the operator will not look at what is read
        prepared = Preparation(self.plan.preparation)
        if checkpoint is None:
            return prepared.sensors(0, 0, 0)
        origin = checkpoint.times[0] - checkpoint.window
        return prepared.sensors(checkpoint.window, origin, checkpoint.times.index(start))

    def _store(self) -> SqliteCheckpoints:
        return SqliteCheckpoints(self.plan.state, self.plan.fingerprint)


def read_slice(log: str, keys: Sequence[int], start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Rows of `SLICE`: samples of some sensors, a block of steps each."""
    blocks = SensorLog.open(log).blocks(keys, start, stop) if len(keys) else [np.empty((0, 0))]
    for values in blocks:
        row = {"start": [start], "stop": [stop], "keys": [list(keys)], "values": [values.ravel()]}
        yield pa.RecordBatch.from_pydict(row, schema=SLICE)


def sum_slice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum each sensor of a slice over all its blocks; NaN and infinite samples are not counted."""
    total: dict[str, Any] = {}
    for batch in batches:
        for i in range(batch.num_rows):
            keys = batch.column("keys")[i].as_py()
            flat = np.asarray(batch.column("values")[i].values)
            sums, counts = interval_sums(flat.reshape(-1, len(keys)) if keys else np.empty((0, 0)))
            if not total:
                span = {name: batch.column(name)[i].as_py() for name in ("start", "stop")}
                total = span | {"keys": keys, "sums": 0.0, "counts": 0}
            total["sums"], total["counts"] = total["sums"] + sums, total["counts"] + counts
    if total:
        yield pa.RecordBatch.from_pydict({k: [v] for k, v in total.items()}, schema=SUM)


def interval_sums(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum and number of the finite samples of each sensor; `values` has shape (steps, keys)."""
    present = np.isfinite(values)
    columns = np.ascontiguousarray(np.where(present, values, 0.0).T)
    return columns.sum(axis=1), present.sum(axis=0)


def collected(frame: DataFrame) -> Read:
    """Reader that runs the tasks of a frame of `SUM` rows and puts their sums in order."""

    def read(keys: Sequence[int], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        sums: dict[int, float] = {}
        counts: dict[int, int] = {}
        for row in frame.toArrow().to_pylist():
            if (row["start"], row["stop"]) != (start, stop):
                raise ValueError(
                    f"batch must cover the steps [{start}, {stop}) that the state waits for, got "
                    f"[{row['start']}, {row['stop']}); state and Spark's checkpoint must be of one "
                    "stream: restore both from the same copy"
                )
            sums |= zip(row["keys"], row["sums"], strict=True)
            counts |= zip(row["keys"], row["counts"], strict=True)
        return np.array([sums[k] for k in keys]), np.array([counts[k] for k in keys], np.int64)

    return read


def spark_read(spark: SparkSession, log: SensorLog, tasks: int) -> Read:
    """Reader of a log by a Spark job of its own."""
    path = str(log.path.absolute())

    def read(keys: Sequence[int], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        slices = np.array_split(np.array(keys, dtype=int), min(tasks, max(1, len(keys))))
        chosen = [s.tolist() for s in slices]

        def blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield from sum_slice(read_slice(path, chosen[index], start, stop))

        frame = spark.range(0, len(chosen), 1, len(chosen)).mapInArrow(blocks, SUM_SCHEMA)
        return collected(frame)(keys, start, stop)

    return read


def bare_read(log: SensorLog) -> Read:
    """Reader of a log in this process."""

    def read(keys: Sequence[int], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        sums, counts = np.zeros(len(keys)), np.zeros(len(keys), dtype=np.int64)
        for values in log.blocks(keys, start, stop) if len(keys) else []:
            s, c = interval_sums(values)
            sums, counts = sums + s, counts + c
        return sums, counts

    return read


@dataclass(frozen=True)
class ReplayRun:
    """What a stream left: finished windows, and what each batch did."""

    results: list[WindowResult]
    records: list[IntervalRecord]


def run(
    spark: SparkSession,
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    at: Callable[[str, int], None] = lambda point, batch: None,
    tasks: int = 2,
) -> ReplayRun:
    """Stream the whole windows of a log; go on where an earlier process died.

    Parameters
    ----------
    spark : SparkSession
    query : ReplayQuery
    log : SensorLog
        Its keys are the model's, in the same order.
    directory : path
        Place of the state, the prepared replay sets and Spark's own checkpoint.
    at : callable, optional
        Told of each point that a batch passes; crash tests strike there.
    tasks : int
        Slices of the sensors that are read in parallel.

    Returns
    -------
    ReplayRun

    Raises
    ------
    ValueError
        When the log's keys are not the model's, or the state belongs to another stream.
    """
    check_keys(query, log)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    operator = prepare(query, directory, at)
    plan = _source_plan(operator, log, directory, tasks)
    spark.dataSource.register(PlannedLogStream)
    slices = spark.readStream.format("plannedlog").option("plan", json.dumps(asdict(plan))).load()

    def step(batch: DataFrame, number: int) -> None:
        operator.process(number, collected(batch))

    drain(slices.mapInArrow(sum_slice, SUM_SCHEMA).writeStream.foreachBatch(step), directory)
    return ReplayRun(operator.store.results(), operator.store.records())


def run_bare(
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    at: Callable[[str, int], None] = lambda point, batch: None,
) -> ReplayRun:
    """`run` in this process, without Spark; arguments, result and errors are the same."""
    check_keys(query, log)
    Path(directory).mkdir(parents=True, exist_ok=True)
    operator, read = prepare(query, Path(directory), at), bare_read(log)
    stop, batch = log.steps - log.steps % query.window, len(operator.store.records())
    while (state := operator.store.restore()) is None or state.position < stop:
        operator.process(batch, read)
        batch += 1
    return ReplayRun(operator.store.results(), operator.store.records())


def prepare(
    query: ReplayQuery,
    directory: Path,
    at: Callable[[str, int], None] = lambda point, batch: None,
) -> PartialReplay:
    """The operator over the state in a directory, under a new name of this process."""
    store = SqliteCheckpoints(directory / "state.sqlite", query.fingerprint)
    return PartialReplay(query, store, Preparation(directory / "prepared"), uuid.uuid4().hex, at)


def check_keys(query: ReplayQuery, log: SensorLog) -> None:
    """Refuse a log whose keys are not the model's."""
    if log.names != query.model.names:
        gone = sorted(set(query.model.names) - set(log.names))
        new = sorted(set(log.names) - set(query.model.names))
        raise ValueError(
            f"log must have the model's {query.model.size} keys in their order, got "
            f"{len(log.names)} (missing {gone[:5]}, new {new[:5]}); fit the model on these sensors"
        )


def _source_plan(
    operator: PartialReplay, log: SensorLog, directory: Path, tasks: int
) -> ReplayPlan:
    query = operator.query
    return ReplayPlan(
        log=str(log.path.absolute()),
        state=str((directory / "state.sqlite").absolute()),
        preparation=str(operator.preparation.directory.absolute()),
        fingerprint=query.fingerprint,
        run=operator.run,
        times=list(query.first_plan.times),
        stop=log.steps - log.steps % query.window,
        tasks=tasks,
    )
