"""D3 table 1, figs 5 and 6 as far as this machine goes: sums and throughput of each strategy."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aftlib.core.paths import project_root
from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.experiments.streams import Input
from aftlib.shared_state.job import Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.scaling import SERVED
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.stores.tables import StateTable
from aftlib.shared_state.strategies import STRATEGIES, MergedLog, merge_log
from aftlib.shared_state.sums import SUMS
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog, part_path, write_manifest
from aftlib.spark.sweep import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE_WINDOWS = Windows(10, 5, "sum")
TABLE_TUPLES = (
    ((1, 0, 10), (3, 1, 20), (8, 0, 30), (6, 1, 40), (14, 0, 50)),
    ((2, 1, 1), (7, 0, 2), (4, 0, 3), (11, 1, 4), (19, 1, 5)),
)
"""Our tuples (timestamp, key, value) of two partitions: the document's table has only o."""
TIMES = 10
"""How often servers read an input that is timed: once is too soon over to tell anything."""
TABLE_DELAY = 5
"""Ticks that the watermark is behind: enough for the tuples that come out of order here."""


def table_1(spark: SparkSession, directory: Path) -> tuple[pd.DataFrame, pd.DataFrame, MergedLog]:
    """Let two tasks merge their slices into one shared table, and put windows together.

    The shared table as it is kept (slice, key, value), D3 table 1 for w = 10 and l = 5 (window id,
    key, value), and the whole result.
    """

    def shown(sums: Partials, name: str, width: int) -> pd.DataFrame:
        spans = [f"[{start}, {start + width})" for start in sums.windows.tolist()]
        return pd.DataFrame({name: spans, "key": sums.keys, "value": sums.values[:, 0]})

    texts = ["".join(f"{t},{k},{v}\n" for t, k, v in part).encode() for part in TABLE_TUPLES]
    log, rules = TupleLog.write(directory / "log", texts), Rules(TABLE_WINDOWS, TABLE_DELAY)
    with shared_table(spark, directory) as table:
        done = merge_log(spark, log, rules, "late global", len(texts), directory / "notes", table)
        with table() as shared:
            state = shown(shared.read(), "slice", TABLE_WINDOWS.pane)
    return state, shown(done.sums, "window id", TABLE_WINDOWS.width), done


def measured(
    spark: SparkSession,
    given: Sequence[Input],
    tasks: Sequence[int],
    repeats: int,
    strategies: Sequence[str] = STRATEGIES,
    warm_up: bool = True,
) -> pd.DataFrame:
    """Time every strategy on every input at every parallelism, in turns.

    The sums of all runs on an input must be the same, or a RuntimeError says so. "Late global"
    shares a new table each time (`shared_table`). With `warm_up` a turn comes first that is not
    counted.

    Columns strategy, skew, tasks, repeat, tuples, states; sum and count over all keys; seconds,
    throughput: tuples a second; start_s: until the first task began; work_s: of the longest task;
    read_s, parse_s, sum_s: of all tasks together; merge_s: merging the sums, of which task_merge_s
    in the tasks; sender_s, receiver_s: of all tasks before and behind the shuffle, NaN where there
    is none.
    """
    rows, first = [], dict[float, Partials]()
    cells = [(i, s, p) for i in given for s in strategies for p in tasks]
    for repeat, (each, strategy, p) in [(r, c) for r in range(-warm_up, repeats) for c in cells]:
        with (
            tempfile.TemporaryDirectory(prefix="aft-") as scratch,
            shared_table(spark, scratch) as table,
            stage_seconds(spark) as stages,
        ):
            done = merge_log(spark, each.log, each.rules, strategy, p, table=table)
        require_same(first.setdefault(each.stream.skew, done.sums), done.sums, strategy)
        if repeat < 0:
            continue

        at = {"strategy": strategy, "skew": each.stream.skew, "tasks": p, "repeat": repeat}
        value, count = done.sums.values.sum(axis=0).tolist()
        found = {"tuples": done.tuples, "states": len(done.sums), "sum": value, "count": count}
        ran, timed = done.tasks, {"seconds": done.seconds, "throughput": done.tuples / done.seconds}
        timed |= {
            "start_s": ran["began"].min(),
            "work_s": (ran["ended"] - ran["began"]).max(),
            **{f"{part}_s": ran[part].sum() for part in ("read", "parse", "sum")},
            "task_merge_s": ran["merge"].sum(),
            "merge_s": ran["merge"].sum() + done.merge_s,
        }
        sides = stages if strategy == "upfront" else (np.nan, np.nan)
        rows.append(at | found | timed | {"sender_s": sides[0], "receiver_s": sides[1]})
    return pd.DataFrame(rows)


@contextmanager
def stage_seconds(spark: SparkSession) -> Iterator[list[float]]:
    """List that holds, after the block, the run time of each stage of Spark that ran in it.

    In seconds of all its tasks together, in the order of the stages, without those skipped.
    """
    context, group, found = spark.sparkContext, uuid.uuid4().hex, []  # type: ignore[var-annotated]
    context.setJobGroup(group, "timed")
    try:
        yield found
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(group))]
    stages = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
    attempts = [store.lastStageAttempt(stage) for stage in stages]
    found += [a.executorRunTime() / 1e3 for a in attempts if a.status().toString() == "COMPLETE"]


def served(
    given: Sequence[Input], tasks: Sequence[int], repeats: int, times: int = TIMES
) -> pd.DataFrame:
    """Time the document's own design on every input: a server and its tasks, without Spark.

    Each task sums its partitions and merges them into its server's own table (RocksDB behind a
    buffer), which is flushed and committed to SQLite at the end, when the clock has stopped. An
    input is read `times` over, and its tuples count as often.

    Columns strategy ("servers and tasks"), skew, tasks, repeat, tuples, states, sum: over all keys;
    seconds: from the first task's beginning until the last has merged all; throughput.
    """
    rows = []
    for repeat, each, p in product(range(repeats), given, tasks):
        with tempfile.TemporaryDirectory(prefix="aft-") as folder:
            log = over_and_over(each.log, times, Path(folder) / "log")
            job = Job(
                log, each.rules, Path(folder) / "job", servers=1, tasks=p,
                batch=each.stream.tuples, checkpoint_s=1e9,
            )  # fmt: skip
            account = run_job(job)
            (window,) = job.output.iterdir()
            sums = pd.read_csv(window, names=["window", "key", "sum"])["sum"]
        at = {"strategy": SERVED, "skew": each.stream.skew, "tasks": p, "repeat": repeat}
        found = {"tuples": account.tuples, "states": len(sums), "sum": int(sums.sum())}
        speed = {"seconds": account.seconds, "throughput": account.tuples / account.seconds}
        rows.append(at | found | speed)
    return pd.DataFrame(rows)


def over_and_over(log: TupleLog, times: int, path: Path) -> TupleLog:
    """Return a log in a new folder that has each partition of another one so many times."""
    path.mkdir()
    for number in range(log.partitions * times):
        part_path(path, number).symlink_to(log.part(number % log.partitions).absolute())
    write_manifest(path, log.partitions * times, log.tuples * times, log.about)
    return TupleLog.open(path)


def require_same(one: Partials, other: Partials, what: str) -> None:
    """Refuse sums that differ."""
    same = all(np.array_equal(getattr(one, n), getattr(other, n)) for n in vars(one))
    if not same:
        raise RuntimeError(f"{what} gives other sums than the run before: report this as a bug")


@contextmanager
def shared_table(spark: SparkSession, directory: Path | str) -> Iterator[Callable[[], StateTable]]:
    """Opener of a new table that tasks share, for the block.

    It is a SQLite file in the folder, or on a cluster a schema of the PostgreSQL that
    ``AFT_POSTGRES_URL`` names, if any, which is dropped at the end.
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


def other_engines() -> pd.DataFrame:
    """Throughput of the strategies and of other engines, as `benchmarks merging` stored it.

    Columns tuples, on (two tasks, or one core), engine, skew, throughput: tuples a second, the
    median; runs: of the strategies. Empty where nothing is stored.
    """
    rows = []
    kinds = (("Spark, ", "two tasks", "spark"), ("", "two tasks", "flink"))
    for stored in _stored():
        for prefix, on, kind in (*kinds, ("", "one core", "one_core")):
            found = stored[f"{kind}_million_tuples_a_second"]
            if isinstance(found, str):  # why there is none
                continue
            at = {"tuples": stored["tuples"], "runs": stored["runs"], "on": on}
            rows += [
                at | {"engine": prefix + engine, "skew": float(skew), "throughput": 1e6 * middle}
                for engine, by_skew in found.items()
                for skew, (middle, *_) in by_skew.items()
            ]
    return pd.DataFrame(rows, columns=["tuples", "runs", "on", "engine", "skew", "throughput"])


def memory_stored() -> pd.DataFrame:
    """Most resident gigabytes of late local merge on Spark, as `benchmarks merging` stored them.

    Of two runs of the same number of tuples the larger one. Empty where nothing is stored.
    """
    found: dict[int, float] = {}
    for stored in _stored():
        for tuples, size in stored["memory_gb_at_most_by_tuples"].items():
            number = int(tuples.replace(",", ""))
            found[number] = max(size, found.get(number, 0.0))
    return pd.DataFrame(sorted(found.items()), columns=["tuples", "gigabytes"])


def _stored() -> list[dict[str, Any]]:
    """Results of the merging benchmark that lie in the project."""
    folder = project_root() / "benchmarks" / "results"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("merging*.json"))]
