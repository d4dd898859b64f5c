"""D3 table 1 and figs 1, 5 and 6 on Spark: sums, throughput and failures of each strategy."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aftlib.core.checks import require_number
from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.experiments.parameters import Input
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.pipelined import sum_pipelined
from aftlib.shared_state.scaling import BROKEN, spark_hashes
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.stores.tables import Progress, StateTable
from aftlib.shared_state.strategies import STRATEGIES, LogMerge, MergedLog, merge_log, sum_received
from aftlib.shared_state.sums import SUMS
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault
from aftlib.spark.sweep import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE_WINDOWS = Windows(10, 5, "sum")
TABLE_TUPLES = (
    ((1, 0, 10), (3, 1, 20), (8, 0, 30), (6, 1, 40), (14, 0, 50)),
    ((2, 1, 1), (7, 0, 2), (4, 0, 3), (11, 1, 4), (19, 1, 5)),
)
"""Our tuples (timestamp, key, value) of two partitions; the document's table gives no numbers."""
TABLE_DELAY = 5
"""Ticks that the watermark is behind: enough that none of these tuples is late."""
ROUNDS = 4
"""Rounds of the pipelined shuffle between two checkpoints."""
BETWEEN = "between"
"""Point of the broken store's crash: after a batch's sums are committed, before its offsets."""


def table_1(spark: SparkSession, directory: Path) -> tuple[pd.DataFrame, pd.DataFrame, MergedLog]:
    """Let two tasks merge their slices into one shared table, and compose windows of them.

    Return the shared table (slice, key, value), D3 table 1 for w = 10 and l = 5 (window id, key,
    value), and the whole result.
    """

    def frame(sums: Partials, name: str, width: int) -> pd.DataFrame:
        spans = [f"[{start}, {start + width})" for start in sums.windows.tolist()]
        return pd.DataFrame({name: spans, "key": sums.keys, "value": sums.values[:, 0]})

    texts = ["".join(f"{t},{k},{v}\n" for t, k, v in part).encode() for part in TABLE_TUPLES]
    log, rules = TupleLog.write(directory / "log", texts), Rules(TABLE_WINDOWS, TABLE_DELAY)
    with shared_table(spark, directory) as table:
        run = merge_log(spark, log, rules, "late global", len(texts), directory / "markers", table)
        with table() as shared:
            state = frame(shared.read(), "slice", TABLE_WINDOWS.pane)
    return state, frame(run.sums, "window id", TABLE_WINDOWS.width), run


def measure(
    run: Callable[[Input, str, int], dict[str, Any]],
    inputs: Sequence[Input],
    strategies: Sequence[str],
    tasks: Sequence[int],
    repeats: int,
    warm_up: bool = False,
) -> pd.DataFrame:
    """Run each strategy on each input at each parallelism, in `repeats` turns.

    With `warm_up`, one uncounted turn on the first input comes first. `run` returns at least tuples
    and seconds. Columns strategy, skew, tasks, repeat, those that `run` returns, and throughput:
    tuples per second.
    """
    rows = []
    for repeat in range(-warm_up, repeats):
        chosen = inputs if repeat >= 0 else inputs[:1]
        for each, strategy, number in product(chosen, strategies, tasks):
            row = run(each, strategy, number)
            speed = {"throughput": row["tuples"] / row["seconds"]}
            case = {"strategy": strategy, "skew": each.stream.skew, "tasks": number}
            if repeat >= 0:
                rows.append(case | {"repeat": repeat} | row | speed)
    return pd.DataFrame(rows)


def measured(
    spark: SparkSession,
    inputs: Sequence[Input],
    tasks: Sequence[int],
    repeats: int,
    warm_up: bool = True,
) -> pd.DataFrame:
    """Time every strategy on every input at every parallelism (`measure`).

    RuntimeError if the sums of two runs on an input differ. "Late global" shares a new table each
    time (`shared_table`).

    Besides the columns of `measure`: states: number of sums; sum and count over all keys; seconds;
    start_s: until the first task started; work_s: of the longest task; read_s, parse_s, sum_s: of
    all tasks together; merge_s: merging the sums; task_merge_s: the tasks' part of it; sender_s,
    receiver_s: of all tasks before and behind the shuffle, NaN without a shuffle.
    """
    first = dict[float, Partials]()

    def run(each: Input, strategy: str, number: int) -> dict[str, Any]:
        with (
            tempfile.TemporaryDirectory(prefix="aft-") as scratch,
            shared_table(spark, scratch) as table,
            stage_seconds(spark) as stages,
        ):
            result = merge_log(spark, each.log, each.rules, strategy, number, table=table)
        require_same(first.setdefault(each.stream.skew, result.sums), result.sums, strategy)
        value, count = result.sums.values.sum(axis=0).tolist()
        sender_s, receiver_s = stages if strategy == "upfront" else (np.nan, np.nan)
        times = result.tasks
        return {
            "tuples": result.tuples,
            "states": len(result.sums),
            "sum": value,
            "count": count,
            "seconds": result.seconds,
            "start_s": times["began"].min(),
            "work_s": (times["ended"] - times["began"]).max(),
            **{f"{part}_s": times[part].sum() for part in ("read", "parse", "sum")},
            "task_merge_s": times["merge"].sum(),
            "merge_s": times["merge"].sum() + result.merge_s,
            "sender_s": sender_s,
            "receiver_s": receiver_s,
        }

    return measure(run, inputs, STRATEGIES, tasks, repeats, warm_up)


@contextmanager
def stage_seconds(spark: SparkSession) -> Iterator[list[float]]:
    """Yield a list that holds, after the block, the run time of each Spark stage in the block.

    A run time is in seconds, summed over the stage's tasks. The list is in the order of the stages,
    without skipped ones.
    """
    context, group = spark.sparkContext, uuid.uuid4().hex
    seconds = list[float]()
    context.setJobGroup(group, "timed")
    try:
        yield seconds
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(group))]
    stages = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
    attempts = [store.lastStageAttempt(stage) for stage in stages]
    seconds += [a.executorRunTime() / 1e3 for a in attempts if a.status().toString() == "COMPLETE"]


def require_same(one: Partials, other: Partials, name: str) -> None:
    """Raise a RuntimeError if sums differ."""
    if not all(np.array_equal(getattr(one, n), getattr(other, n)) for n in vars(one)):
        raise RuntimeError(f"{name} gives other sums than the run before: report this as a bug")


@contextmanager
def shared_table(spark: SparkSession, directory: Path | str) -> Iterator[Callable[[], StateTable]]:
    """Yield a function that opens a new table, which tasks share.

    The table is a SQLite file in the folder. On a cluster with ``AFT_POSTGRES_URL`` it is a schema
    of that PostgreSQL, which is dropped at the end.
    """
    url = os.environ.get("AFT_POSTGRES_URL")
    if is_local(spark) or not url:
        yield partial(SqliteTable, Path(directory) / "shared.sqlite", SUMS)
        return
    from aftlib.shared_state.stores.postgres import PostgresTable

    table = partial(PostgresTable, url, SUMS, schema=f"aft_{uuid.uuid4().hex[:12]}")
    try:
        yield table
    finally:
        with table() as shared:
            shared.remove()


def one_task_crashes(
    spark: SparkSession, source: Input, tasks: int, every: int, after: int
) -> pd.DataFrame:
    """Kill one task's process by SIGKILL under each strategy, and count tuples read again.

    Behind a shuffle the task that receives most tuples is killed. It crashes when it has read
    `after` tuples; checkpoints are `every` tuples apart. The number of tasks is at most that of
    Spark's cores and of the log's partitions. The last strategy is a broken control
    (`OffsetsApart`), which crashes between sums and offsets.

    Columns strategy; tasks; tuples; again: tuples read more than once, by all tries of all tasks;
    disturbed: healthy tasks that were restarted; twice: tuples that these would count twice without
    a reset, missing if nothing is sent again; error: largest difference of a sum from the
    undisturbed run's; crashed_pid.
    """
    tasks = min(tasks, source.log.partitions, spark.sparkContext.defaultParallelism)
    require_number("tasks", tasks, least=2)  # one crashes, and one goes on
    true = merge_log(spark, source.log, source.rules, "late local", tasks).sums
    receivers = {
        "upfront, pipelined shuffle": true.keys % tasks,
        "upfront, Spark's shuffle on disk": spark_hashes(spark, true.keys) % tasks,
        "late global": np.zeros_like(true.keys),
        BROKEN: np.zeros_like(true.keys),
    }
    rows = []
    for name, method in METHODS.items():
        victim = int(np.bincount(receivers[name], true.values[:, 1]).argmax())
        with tempfile.TemporaryDirectory(prefix="aft-") as scratch:
            when = (1, BETWEEN) if name == BROKEN else (after,)
            fault = Fault("kill", f"task-{victim}", *when)
            job = LogMerge(source.log, source.rules, tasks, Path(scratch), fault)
            sums, tries = method(spark, job, every)
            injection = job.injector.injected(fault)
        if injection is None:
            raise ValueError(
                f"after must be below the number of tuples of task {victim}, got {after}: no task "
                "crashed; lower it, or take more tuples"
            )
        negative = Partials(true.windows, true.keys, -true.values)  # a missing row counts, too
        difference = SUMS.group(Partials.concat(sums, negative)).values
        reads = sum(t["received" if "received" in t else "tuples"] for t in tries)
        row = {
            "strategy": name,
            "tasks": tasks,
            "tuples": source.stream.tuples,
            "again": reads - source.stream.tuples,
            "disturbed": len({t["task"] for t in tries if t["attempt"] > 0} - {victim}),
            "twice": None,
            "error": int(np.abs(difference).max(initial=0)),
            "crashed_pid": injection["pid"],
        }
        if "by_round" in tries[0]:  # tuples of healthy tasks in rounds that were repeated
            since = min(t["since"] for t in tries if t["attempt"] > 0)
            healthy = [t for t in tries if t["attempt"] == 0 and t["task"] != victim]
            row["twice"] = sum(sum(t["by_round"][since:]) for t in healthy)
        rows.append(row)
    return pd.DataFrame(rows).astype({"twice": "Int64"})


class OffsetsApart:
    """A broken store: the offsets of a batch are committed after its sums, apart from them."""

    def __init__(self, table: StateTable, between: Callable[[], None]) -> None:
        self._table, self._between = table, between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def __enter__(self) -> OffsetsApart:
        return self

    def __exit__(self, *error: object) -> None:
        self._table.close()

    def merge(
        self, partials: Partials, progress: Mapping[int, Progress], *rest: Any, **options: Any
    ) -> bool:
        """Merge a batch in one transaction, and commit its partitions' offsets in a second one."""
        if len(partials):
            self._table.merge(partials, {})
            self._between()
        none = Partials.empty(partials.values.shape[1])
        return self._table.merge(none, progress, *rest, **options)


def _late_global(
    spark: SparkSession,
    job: LogMerge,
    every: int,
    wrapped: Callable[[StateTable], Any] = lambda table: table,
) -> tuple[Partials, list[dict]]:
    with shared_table(spark, job.directory) as table:
        result = merge_log(
            spark, job.log, job.rules, "late global", job.tasks, job.directory,
            lambda: wrapped(table()), every, job.fault,
        )  # fmt: skip
    return result.sums, result.tries


def _offsets_apart(spark: SparkSession, job: LogMerge, every: int) -> tuple[Partials, list[dict]]:
    def reach() -> None:
        from pyspark import TaskContext

        task = TaskContext.get()
        job.injector.reach(f"task-{task.partitionId() if task else 0}", 1, BETWEEN)

    return _late_global(spark, job, every, lambda table: OffsetsApart(table, reach))


METHODS: dict[str, Callable[[SparkSession, LogMerge, int], tuple[Partials, list[dict]]]] = {
    "upfront, pipelined shuffle": lambda spark, job, every: sum_pipelined(
        spark, job, every // ROUNDS, ROUNDS
    ),
    # receivers start when all tuples are on disk; a restarted one reads its own again
    "upfront, Spark's shuffle on disk": lambda spark, job, every: sum_received(spark, job),
    "late global": _late_global,
    BROKEN: _offsets_apart,
}
