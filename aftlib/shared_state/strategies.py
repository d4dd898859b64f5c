"""D3's three strategies on Spark: shuffle first, merge in the driver, merge in a shared table."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from aftlib.core.checks import require_choice, require_number
from aftlib.core.paths import write_whole
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.parsing import BLOCK, Rules
from aftlib.shared_state.stores import claim
from aftlib.shared_state.stores.tables import Progress, StateTable
from aftlib.shared_state.sums import SUMS, SliceSums, merge_sums, window_sums
from aftlib.shared_state.task import Intake, pack_message, read_markers, unpack_message
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault, Injector
from aftlib.spark.sweep import by_number

OUTPUTS = ("task-*.json", "part-*.json", "try-*.json", "checkpoint-*", "result-*", "message-*")


def require_fresh(directory: Path) -> None:
    """Raise ValueError for a folder with another run's files, which this run would count."""
    old = next((path.name for pattern in OUTPUTS for path in directory.glob(pattern)), None)
    if old is not None:
        raise ValueError(
            f"directory must be without another run's files, got {str(directory)!r}, which holds "
            f"{old}: give every run a folder of its own, or remove them"
        )


def record_try(directory: Path, task: int, attempt: int, **counts: Any) -> None:
    """Record the progress of one try of a task; a later record of the try replaces this one."""
    row = {"task": task, "attempt": attempt, **counts}
    (directory / f"try-{task}-{attempt}.json").write_text(json.dumps(row))


def read_tries(directory: Path) -> list[dict]:
    """Read the last record of every try."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob("try-*.json"))]


def record_task(
    directory: Path, task: int, intake: Intake, began: float, merge_s: float = 0.0
) -> None:
    """Record the times of a finished task."""
    times = {"began": began, "ended": time.time(), **intake.seconds, "merge": merge_s}
    row = {"task": task, "tuples": intake.tuples, **times}
    write_whole(directory / f"task-{task:05d}.json", json.dumps(row))


def read_reports(directory: Path, begin: float) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Read partitions, tasks and malformed lines of a run; times count from `begin`."""
    partitions, rejects = read_markers(directory)
    paths = sorted(directory.glob("task-*.json"))
    tasks = pd.DataFrame([json.loads(path.read_text()) for path in paths])
    tasks[["began", "ended"]] -= begin
    return partitions, tasks, rejects


STRATEGIES = ("upfront", "late local", "late global")
"""Where a key's tuples meet: before the only aggregation, in the driver, or in a shared table."""
TUPLE_SCHEMA = "slice long, key long, value long"
SUM_SCHEMA = "sums binary"
"""One row per task, so that Spark does no work per sum."""
ROWS = 2**18
"""Most rows that a task passes to Spark at once."""


@dataclass(frozen=True)
class LogMerge:
    """A log, and the settings with which tasks sum it.

    Tasks write their reports and malformed lines into `directory`, which all machines share. The
    fault's target is ``task-N``; its step is the number of tuples that the task has read.
    """

    log: TupleLog
    rules: Rules
    tasks: int
    directory: Path
    fault: Fault | None = None

    @property
    def injector(self) -> Injector:
        """Injector of the fault."""
        return Injector(self.directory / "faults", (self.fault,) if self.fault else ())

    def partitions(self, task: int) -> range:
        """Partitions that a task reads, one after another: t, t + tasks, …."""
        return range(task, self.log.partitions, self.tasks)

    def passes(self, task: int, tuples: int) -> None:
        """Crash the task here if its fault is due."""
        self.injector.reach(f"task-{task}", tuples)


@dataclass(frozen=True)
class MergedLog:
    """The result of a strategy."""

    sums: Partials  # by window start and key, sorted: the sum of the values and their number
    partitions: pd.DataFrame  # as `task.read_markers`
    #: task; tuples, read by its last try; began, ended: seconds since the call; read, parse, sum,
    #: merge: seconds
    tasks: pd.DataFrame
    rejects: pd.DataFrame  # every malformed line, as `task.read_markers`
    tries: list[dict]  # task, attempt, tuples of each try of "late global"; else empty
    merge_s: float  # of the driver: merging the tasks' sums, or reading the shared table
    seconds: float  # the whole call

    @property
    def tuples(self) -> int:
        """Tuples read, late ones included."""
        return int(self.partitions["tuples"].sum())


def merge_log(
    spark: SparkSession,
    log: TupleLog,
    rules: Rules,
    strategy: str,
    tasks: int,
    directory: Path | str | None = None,
    table: Callable[[], StateTable] | None = None,
    every: int | None = None,
    fault: Fault | None = None,
) -> MergedLog:
    """Sum a log by window and key.

    Parameters
    ----------
    spark, log
    rules : Rules
        Windows, watermark and how many malformed lines are allowed.
    strategy : {"upfront", "late local", "late global"}
    tasks : int
        Parallelism; tasks beyond the number of the log's partitions are idle.
    directory : path, optional
        New folder for reports and malformed lines, which stay there if the call fails. By default
        they are only in the result. All machines of a cluster must share this folder; by default
        they must share the folder of temporary files.
    table : callable, optional
        Opens the shared table of "late global", once per task; its aggregate is `sums.SUMS`.
        The call continues at the offsets in the table.
    every : int, optional
        Tuples after which a task of "late global" merges; by default once, at its end.
    fault : Fault, optional
        Failure of a "late global" task, for the experiments that inject one.

    Raises
    ------
    ValueError
        When the strategy is none of the three, or tasks or every is less than 1. When the table of
        "late global" is missing, has another aggregate, is not flushed at every merge, or was begun
        with another log, delay or slice. When only one machine can open it, but tasks run on
        several. When the directory holds another run's files or is not shared. In a task, when too
        many lines are malformed.
    """
    require_choice("strategy", strategy, STRATEGIES)
    require_number("tasks", tasks, least=1, whole=True)
    if every is not None:
        require_number("every", every, least=1, whole=True)
    if strategy == "late global" and table is None:
        raise ValueError("table must be given for 'late global', got None: name the shared store")

    begin = time.time()
    with tempfile.TemporaryDirectory(prefix="aft-") as scratch:
        place = Path(directory or scratch)
        place.mkdir(parents=True, exist_ok=True)
        require_fresh(place)
        job = LogMerge(log, rules, tasks, place, fault)

        if strategy == "upfront":
            slices, merge_s = upfront(spark, job)
        elif table is None or strategy == "late local":
            slices, merge_s = late_local(spark, job)
        else:
            slices, merge_s = late_global(spark, job, table, every)

        sums = window_sums(slices, rules.windows)
        seconds = time.time() - begin
        return MergedLog(sums, *read_reports(place, begin), read_tries(place), merge_s, seconds)


def upfront(spark: SparkSession, job: LogMerge) -> tuple[Partials, float]:
    """Shuffle every tuple to its key's task; return the sums and the seconds of the driver."""
    grouped = shuffle_tuples(spark, job).groupBy("slice", "key")
    table = grouped.agg(f.sum("value"), f.count("value")).toArrow()
    before = time.perf_counter()
    parts, keys, sums, counts = (column.to_numpy() for column in table.columns)
    values = np.stack([sums, counts], axis=1)
    slices = merge_sums([Partials(parts * job.rules.windows.pane, keys, values)])
    return slices, time.perf_counter() - before


def shuffle_tuples(spark: SparkSession, job: LogMerge) -> DataFrame:
    """Parsed tuples, partitioned by key."""

    def tuples(task: int) -> Iterator[pa.RecordBatch]:
        began, intake = time.time(), Intake(job.rules, markers=job.directory)
        for partition in job.partitions(task):
            for block in intake.blocks(partition, job.log.part(partition), ROWS):
                columns = [pa.array(column) for column in block.copy()]  # Spark may read ahead
                yield pa.RecordBatch.from_arrays(columns, ["slice", "key", "value"])
        intake.take()
        record_task(job.directory, task, intake, began)

    return by_number(spark, job.tasks, tuples, TUPLE_SCHEMA).repartition(job.tasks, "key")


def sum_received(spark: SparkSession, job: LogMerge) -> tuple[Partials, list[dict]]:
    """As `upfront`, but tasks behind the shuffle sum in Python, so that a fault can kill a task.

    Return the sums by slice start and key, and task, attempt and tuples of every try behind the
    shuffle. The folder must have no files of another run (`require_fresh`).
    """
    require_fresh(job.directory)

    def receive(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        index, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        sums, tuples = SliceSums(job.rules.windows.pane), 0
        for batch in batches:
            sums.add(np.stack([column.to_numpy() for column in batch.columns]))
            tuples += batch.num_rows
            record_try(job.directory, index, attempt, tuples=tuples)
            job.passes(index, tuples)
        yield _to_batch(sums.take())

    table = shuffle_tuples(spark, job).mapInArrow(receive, SUM_SCHEMA).toArrow()
    return _merge_batches(table["sums"].to_pylist()), read_tries(job.directory)


def late_local(spark: SparkSession, job: LogMerge) -> tuple[Partials, float]:
    """Merge the tasks' sums in the driver; return the sums and the seconds of the driver."""

    def sums(index: int) -> Iterator[pa.RecordBatch]:
        began, intake = time.time(), Intake(job.rules, markers=job.directory)
        for partition in job.partitions(index):
            for _ in intake.read(partition, job.log.part(partition)):
                pass
        partials, _ = intake.take()
        record_task(job.directory, index, intake, began)
        yield _to_batch(partials)

    messages = by_number(spark, job.tasks, sums, SUM_SCHEMA).toArrow()["sums"].to_pylist()
    before = time.perf_counter()
    return _merge_batches(messages), time.perf_counter() - before


def late_global(
    spark: SparkSession, job: LogMerge, table: Callable[[], StateTable], every: int | None
) -> tuple[Partials, float]:
    """Let tasks merge into the shared table; return its rows and the seconds to read them."""

    def merge(index: int) -> Iterator[pa.RecordBatch]:
        with table() as shared:
            merge_into(shared, job, index, every)
        yield pa.RecordBatch.from_pydict({"task": [index]})

    with table() as shared:
        if shared.aggregate != SUMS:
            raise ValueError(
                f"table must keep sums and counts (the aggregate {SUMS.name!r}), got "
                f"{shared.aggregate.name!r}: open it with aftlib.shared_state.sums.SUMS"
            )
        if shared.flush != "merge" or not shared.durable:
            raise ValueError(
                "table must store each merge durably, because each task opens it for itself, got a "
                f"{type(shared).__name__} (durable = {shared.durable}, flush = {shared.flush!r}): "
                "open a file or server with flush='merge'"
            )
        rules = {"delay": job.rules.delay, "pane": job.rules.windows.pane}
        about = json.dumps(job.log.identity | rules, sort_keys=True, default=str)
        claim(shared, f"log {hashlib.sha256(about.encode()).hexdigest()}")

    by_number(spark, job.tasks, merge, "task long").collect()
    before = time.perf_counter()
    with table() as shared:
        require_all_merged(shared, job.log)
        return shared.read(), time.perf_counter() - before


def require_all_merged(shared: StateTable, log: TupleLog) -> None:
    """Raise a RuntimeError unless the table holds every partition to its end."""
    stands = shared.progress()
    ends = {p: log.size(p) for p in range(log.partitions)}
    short = [p for p, end in ends.items() if stands.get(p, Progress()).offset != end]
    if short:
        raise RuntimeError(
            f"table must hold all sums that the tasks have merged, got partitions {short} short "
            "of their ends: it was replaced meanwhile; start again with a new one"
        )


def merge_into(shared: StateTable, job: LogMerge, index: int, every: int | None) -> None:
    """Read each partition from its offset in the table; merge at intervals and at the end."""
    context, began, merge_s = TaskContext.get(), time.time(), 0.0
    attempt = context.attemptNumber() if context else 0
    stands = shared.progress()
    mine = {p: stands[p] for p in job.partitions(index) if p in stands}
    intake = Intake(job.rules, mine, markers=job.directory)
    rows = min(BLOCK, every or BLOCK)

    def merge() -> float:
        before = time.perf_counter()
        partials, progress = intake.take()
        if progress:
            shared.merge(partials, progress)
        return time.perf_counter() - before

    for partition in job.partitions(index):
        for waiting in intake.read(partition, job.log.part(partition), rows):
            if job.fault is not None:
                record_try(job.directory, index, attempt, tuples=intake.tuples)
                job.passes(index, intake.tuples)
            if every is not None and waiting >= every:
                merge_s += merge()
    merge_s += merge()
    record_try(job.directory, index, attempt, tuples=intake.tuples)
    record_task(job.directory, index, intake, began, merge_s)


def _to_batch(sums: Partials) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"sums": [pack_message("sums", rows=sums)]})


def _merge_batches(messages: list[bytes]) -> Partials:
    return merge_sums(unpack_message(sums)[2] for sums in messages)
