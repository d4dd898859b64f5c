"""D3's three strategies on Spark: sums by window and key of a partitioned log of text tuples.

*Upfront* parses in one stage, shuffles every tuple by its key, and aggregates behind the shuffle.
*Late local* parses and sums in the tasks, and the driver merges what they hand back. *Late global*
has the tasks merge their sums, with the offsets that these stand for, into a table that they share.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.stores.opening import claim
from aftlib.shared_state.stores.tables import NEVER, Progress, StateTable
from aftlib.shared_state.strategies.merging import (
    STRATEGIES,
    SUMS,
    SliceSums,
    Task,
    merged,
    window_sums,
)
from aftlib.shared_state.strategies.notes import (
    attempt,
    note_task,
    note_try,
    rejects_kept,
    reports,
    require_fresh,
    require_shared,
    tries,
)
from aftlib.shared_state.stream.parsing import Reading, Rules
from aftlib.shared_state.stream.stretch import Stretch, kept
from aftlib.shared_state.stream.tuplelog import TupleLog
from aftlib.spark.faults import Fault

TUPLE_SCHEMA = "slice long, key long, value long"
TUPLE = pa.schema([(name, pa.int64()) for name in ("slice", "key", "value")])
SUM_SCHEMA = "task long, windows binary, keys binary, values binary"
ROWS = 2**18
"""Rows that a task hands to Spark at once."""


@dataclass(frozen=True)
class Job:
    """What every task of a run is told.

    Attributes
    ----------
    log : TupleLog
    rules : Rules
    tasks : int
        Task t reads the partitions t, t + tasks, ….
    directory : Path
        Where tasks leave their reports and malformed lines; one that all machines share.
    fault : Fault or None
        The failure to inject: its point is ``task-N``, passed with the tuples gone through.
    """

    log: TupleLog
    rules: Rules
    tasks: int
    directory: Path
    fault: Fault | None = None

    def partitions(self, task: int) -> range:
        """Partitions that a task reads, one after another."""
        return range(task, self.log.partitions, self.tasks)


@dataclass(frozen=True)
class MergeRun:
    """Result of a strategy.

    Attributes
    ----------
    sums : Partials
        By window start and key, sorted: the sum of the values and their number.
    partitions : DataFrame
        partition, offset, tuples, late, rejected: what the reading of each came to.
    tasks : DataFrame
        task, tuples: that its last try read; began, ended (seconds since the run began), read,
        parse, sum, merge (seconds).
    rejects : DataFrame
        partition, offset, reason, line of every malformed line.
    tries : list of dict
        task, attempt, tuples: what every try of every task of "late global" read; empty otherwise.
    merge_s : float
        Seconds that the driver spent on merging the tasks' sums, or on reading the shared table.
    seconds : float
        The whole run, as whoever called it waited.
    """

    sums: Partials
    partitions: pd.DataFrame
    tasks: pd.DataFrame
    rejects: pd.DataFrame
    tries: list[dict]
    merge_s: float
    seconds: float

    @property
    def tuples(self) -> int:
        """Tuples read, late ones included."""
        return int(self.partitions["tuples"].sum())


def run(
    spark: SparkSession,
    log: TupleLog,
    rules: Rules,
    strategy: str,
    tasks: int,
    directory: Path | str | None = None,
    table: Callable[[], StateTable] | None = None,
    every: int | None = None,
    fault: Fault | None = None,
) -> MergeRun:
    """Sum a log by window and key.

    Parameters
    ----------
    spark : SparkSession
    log : TupleLog
    rules : Rules
        Windows, watermark and how many malformed lines are borne.
    strategy : {"upfront", "late local", "late global"}
    tasks : int
        Parallelism; no task has anything to do beyond the log's partitions.
    directory : path, optional
        Keeps reports and malformed lines, of this run alone, also when these stop it; by default
        they are only in the result. All machines must share it, so a cluster needs one to be named.
    table : callable, optional
        Opens the shared table of "late global", in every task anew; its aggregate is
        `merging.SUMS`. A run goes on where the table says that another one stopped.
    every : int, optional
        Tuples after which a task of "late global" merges; by default once, at its end.
    fault : Fault, optional
        Failure of a "late global" task, for the experiments that inject one.

    Returns
    -------
    MergeRun

    Raises
    ------
    ValueError
        When the strategy is none of the three, tasks is less than 1, "late global" has no table,
        one of another aggregate, that does not keep every merge, or that was begun with another
        log, delay or slice, the directory holds another run's notes, or it is missing on a cluster;
        in a task, when too many lines are malformed.
    """
    _check(strategy, tasks, table)
    require_shared(directory, str(spark.sparkContext.master))
    begin = time.time()
    with tempfile.TemporaryDirectory(prefix="aft-") as scratch:
        place = Path(directory or scratch)
        place.mkdir(parents=True, exist_ok=True)
        require_fresh(place)
        job = Job(log, rules, tasks, place, fault)
        if table is not None and strategy == "late global":
            slices, merge_s = _late_global(spark, job, table, every)
        else:
            slices, merge_s = (_upfront if strategy == "upfront" else _late_local)(spark, job)
        sums = window_sums(slices, rules.windows)
        seconds = time.time() - begin
        return MergeRun(sums, *reports(place, begin), tries(place), merge_s, seconds)


def _check(strategy: str, tasks: int, table: object) -> None:
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
    if tasks < 1:
        raise ValueError(f"tasks must be at least 1, got {tasks!r}")
    if strategy == "late global" and table is None:
        raise ValueError("table must be given for 'late global', got None: name the shared store")


def _upfront(spark: SparkSession, job: Job) -> tuple[Partials, float]:
    """Every tuple goes through the shuffle, each key to one task."""
    grouped = shuffled(spark, job).groupBy("slice", "key")
    table = grouped.agg(f.sum("value"), f.count("value")).toArrow()
    before = time.perf_counter()
    parts, keys, sums, counts = (column.to_numpy() for column in table.columns)
    values = np.stack([sums, counts], axis=1)
    slices = merged([Partials(parts * job.rules.windows.pane, keys, values)])
    return slices, time.perf_counter() - before


def shuffled(spark: SparkSession, job: Job) -> DataFrame:
    """Parsed tuples, partitioned by key."""

    def tuples(task: int) -> Iterator[pa.RecordBatch]:
        yield from _parsed(job, task)

    return _per_task(spark, job.tasks, tuples, TUPLE_SCHEMA).repartition(job.tasks, "key")


def received(spark: SparkSession, job: Job) -> tuple[Partials, list[dict]]:
    """Upfront with the sums behind the shuffle in Python, so that a receiver can be killed.

    Returns
    -------
    sums : Partials
        By slice start and key.
    tries : list of dict
        task, attempt, tuples: what every try of every receiver went through.

    Raises
    ------
    ValueError
        When the job's folder holds another run's notes.
    """
    require_fresh(job.directory)

    def receive(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        index, number = context.partitionId() if context else 0, attempt()
        sums, tuples = SliceSums(job.rules.windows.pane), 0
        for batch in batches:
            sums.add(np.stack([column.to_numpy() for column in batch.columns]))
            tuples += batch.num_rows
            note_try(job.directory, index, number, tuples=tuples)
            if job.fault is not None:
                job.fault.passes(f"task-{index}", tuples)
        yield _packed(index, sums.take())

    rows = shuffled(spark, job).mapInArrow(receive, SUM_SCHEMA).toArrow().to_pylist()
    return merged(_unpacked(row) for row in rows), tries(job.directory)


def _parsed(job: Job, index: int) -> Iterator[pa.RecordBatch]:
    """Tuples of a task's partitions, in batches large enough for the way to the JVM."""
    began, task = time.time(), Task(job.rules)
    with rejects_kept(task, job.directory):
        for partition in job.partitions(index):
            for columns in gathered(task.blocks(partition, job.log.part(partition))):
                yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=TUPLE)
    _, stretches = task.take()
    note_task(job.directory, index, task, began, stretches)


def gathered(blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Blocks put together to at least `ROWS` rows, the last to what is left."""
    waiting: list[np.ndarray] = []
    for block in blocks:
        waiting.append(block.copy())
        if sum(part.shape[1] for part in waiting) >= ROWS:
            yield np.concatenate(waiting, axis=1)
            waiting = []
    if waiting:
        yield np.concatenate(waiting, axis=1)


def _late_local(spark: SparkSession, job: Job) -> tuple[Partials, float]:
    """Tasks hand their sums back; the driver merges them."""

    def sums(index: int) -> Iterator[pa.RecordBatch]:
        began, task = time.time(), Task(job.rules)
        with rejects_kept(task, job.directory):
            for partition in job.partitions(index):
                for _ in task.read(partition, job.log.part(partition)):
                    pass
        partials, stretches = task.take()
        note_task(job.directory, index, task, began, stretches)
        yield _packed(index, partials)

    rows = _per_task(spark, job.tasks, sums, SUM_SCHEMA).toArrow().to_pylist()
    before = time.perf_counter()
    slices = merged(_unpacked(row) for row in rows)
    return slices, time.perf_counter() - before


def _late_global(
    spark: SparkSession, job: Job, table: Callable[[], StateTable], every: int | None
) -> tuple[Partials, float]:
    """Tasks merge into the shared table, offsets included, and it is read once at the end."""

    def merge(index: int) -> Iterator[pa.RecordBatch]:
        with table() as shared:
            merge_into(shared, job, index, every)
        yield pa.RecordBatch.from_pydict({"task": [index]})

    with table() as shared:
        _require_sums(shared)
        _claim(shared, job)
    _per_task(spark, job.tasks, merge, "task long").collect()
    before = time.perf_counter()
    with table() as shared:
        return shared.read(), time.perf_counter() - before


def _require_sums(shared: StateTable) -> None:
    if shared.aggregate != SUMS:
        raise ValueError(
            f"table must keep sums and counts (the aggregate {SUMS.name!r}), got "
            f"{shared.aggregate.name!r}: open it with aftlib.shared_state.strategies.merging.SUMS"
        )
    if shared.flush != "merge" or not shared.durable:
        raise ValueError(
            f"table must keep every merge, got a {type(shared).__name__} that flushes at every "
            f"{shared.flush}: each task opens it anew, so open a file or server with flush='merge'"
        )


def _claim(shared: StateTable, job: Job) -> None:
    """Let the table be of this log, its delay and its slices alone."""
    about = job.log.identity | {"delay": job.rules.delay, "pane": job.rules.windows.pane}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    claim(shared, f"log {digest.hexdigest()}")


def merge_into(shared: StateTable, job: Job, index: int, every: int | None) -> None:
    """Read on from where the table says that each partition stands; merge at times, and at last."""
    began, stands, merge_s, number = time.time(), shared.progress(), 0.0, attempt()
    mine = {p: stands[p] for p in job.partitions(index) if p in stands}
    stretches = kept(job.directory) if mine else []
    task = Task(job.rules, {p: _resumed(at, p, job.rules, stretches) for p, at in mine.items()})
    with rejects_kept(task, job.directory):
        for partition in job.partitions(index):
            for waiting in task.read(partition, job.log.part(partition)):
                if job.fault is not None:
                    note_try(job.directory, index, number, tuples=task.tuples)
                    job.fault.passes(f"task-{index}", task.tuples)
                if every is not None and waiting >= every:
                    merge_s += _merge(shared, task, job)
    merge_s += _merge(shared, task, job)
    note_try(job.directory, index, number, tuples=task.tuples)
    note_task(job.directory, index, task, began, [], merge_s)


def _merge(shared: StateTable, task: Task, job: Job) -> float:
    """One transaction of sums and offsets; what was read for it is noted just before."""
    before = time.perf_counter()
    partials, stretches = task.take()
    for stretch in stretches:
        stretch.keep(job.directory)
    now = {s.partition: _progress(task.readings[s.partition], s, job.rules) for s in stretches}
    if now:
        shared.merge(partials, now)
    return time.perf_counter() - before


def _progress(reading: Reading, stretch: Stretch, rules: Rules) -> Progress:
    seen = reading.tuples and rules.delay is not None
    watermark = reading.high - (rules.delay or 0) if seen else NEVER
    return Progress(stretch.offset, watermark, reading.late, since=stretch.since)


def _resumed(stands: Progress, partition: int, rules: Rules, stretches: list[Stretch]) -> Reading:
    """Reading that goes on where the table stands; malformed lines of the run's tries count on."""
    mine = (s for s in stretches if s.partition == partition)
    rejected = sum(s.rejected for s in mine if s.since < stands.offset >= s.offset)
    if stands.watermark == NEVER:
        return Reading(stands.offset, rejected=rejected)
    high = stands.watermark + (rules.delay or 0)
    return Reading(stands.offset, high, late=stands.late, rejected=rejected)


def _per_task(
    spark: SparkSession,
    tasks: int,
    work: Callable[[int], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Frame of what `work` yields for each task number, one Spark task each."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from work(index)

    return spark.range(0, tasks, 1, tasks).mapInArrow(each, schema)


def _packed(index: int, partials: Partials) -> pa.RecordBatch:
    """A task's sums as one row of bytes: Spark then has nothing to do for each of them."""
    names = ("windows", "keys", "values")
    row = {"task": [index]} | {name: [getattr(partials, name).tobytes()] for name in names}
    return pa.RecordBatch.from_pydict(row)


def _unpacked(row: dict) -> Partials:
    windows, keys, values = (
        np.frombuffer(row[name], np.int64) for name in ("windows", "keys", "values")
    )
    return Partials(windows, keys, values.reshape(-1, len(SUMS.components)))
