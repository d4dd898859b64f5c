"""D3 fig. 1, measured: whom a death disturbs, and what is processed again, in each design."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.experiments.streams import Input
from aftlib.shared_state.experiments.throughputs import shared_table
from aftlib.shared_state.job import Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.pipelined import pipelined
from aftlib.shared_state.scaling import spark_hashes
from aftlib.shared_state.strategies import LogMerge, merge_log, received
from aftlib.shared_state.sums import SUMS
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 4
"""Rounds of the pipelined shuffle between two checkpoints."""
WINDOWS = Windows(1_000, 500)
SHARED_PARTITIONS, SHARED_KEYS, BATCHES = 4, 1_000, 500
"""Partitions and keys of the servers' log, and the most batches of a partition."""


def one_task_crashes(
    spark: SparkSession, given: Input, tasks: int, every: int, after: int
) -> pd.DataFrame:
    """Kill one task's process by SIGKILL in each way of sharing the work out, and count.

    Behind a shuffle it is the task that receives most, so that it goes through its part at least.
    It dies when it has gone through `after` tuples, and has `every` of them between checkpoints. Of
    `tasks` no more run than Spark has cores, or the log partitions.

    Columns strategy, tasks, tuples, again: tuples gone through more than once, by all tries of all
    tasks, disturbed: healthy tasks that were started anew, twice: tuples that these would count
    twice had they been left running, missing where nothing is passed on a second time, error:
    largest difference of a sum from the undisturbed run's, dead_pid.
    """
    tasks = min(tasks, given.log.partitions, spark.sparkContext.defaultParallelism)
    if tasks < 2:
        raise ValueError(f"tasks must be at least 2 for one to die and one to live, got {tasks!r}")
    true = merge_log(spark, given.log, given.rules, "late local", tasks).sums
    routes = {
        "upfront, pipelined shuffle": true.keys % tasks,
        "upfront, Spark's shuffle on disk": spark_hashes(spark, true.keys) % tasks,
    }
    rows = []
    for name, way in WAYS.items():
        receivers = routes.get(name, np.zeros_like(true.keys))
        victim = int(np.bincount(receivers, true.values[:, 1]).argmax())
        with tempfile.TemporaryDirectory(prefix="aft-") as scratch:
            fault = Fault(Path(scratch), f"task-{victim}", after)
            job = LogMerge(given.log, given.rules, tasks, Path(scratch), fault)
            sums, tries = way(spark, job, every)
            note = fault.fallen
        if note is None:
            raise ValueError(
                f"after must be below what task {victim} goes through, got {after}: nobody died; "
                "lower it, or take more tuples"
            )

        less = Partials(true.windows, true.keys, -true.values)  # what only one has counts whole
        error = np.abs(SUMS.group(Partials.concat(sums, less)).values).max(initial=0)
        again = sum(t["received" if "received" in t else "tuples"] for t in tries)
        row = {"strategy": name, "tasks": tasks, "tuples": given.stream.tuples}
        row |= {"again": again - given.stream.tuples, "disturbed": restarted_tasks(tries, victim)}
        row |= {"twice": None, "error": int(error), "dead_pid": note["pid"]}
        if "by_round" in tries[0]:  # what healthy tasks had received of rounds that came again
            since = min(t["since"] for t in tries if t["attempt"] > 0)
            healthy = [t for t in tries if t["attempt"] == 0 and t["task"] != victim]
            row["twice"] = sum(sum(t["by_round"][since:]) for t in healthy)
        rows.append(row)
    return pd.DataFrame(rows).astype({"twice": "Int64"})


def restarted_tasks(tries: list[dict], victim: int) -> int:
    """Number of tasks that were started anew, but for the one that died."""
    return len({each["task"] for each in tries if each["attempt"] > 0} - {victim})


def _late_global(spark: SparkSession, job: LogMerge, every: int) -> tuple[Partials, list[dict]]:
    with shared_table(spark, job.directory) as table:
        done = merge_log(
            spark, job.log, job.rules, "late global", job.tasks, job.directory, table, every,
            job.fault,
        )  # fmt: skip
    return done.sums, done.tries


WAYS: dict[str, Callable[[SparkSession, LogMerge, int], tuple[Partials, list[dict]]]] = {
    "upfront, pipelined shuffle": lambda spark, job, every: pipelined(
        spark, job, every // ROUNDS, ROUNDS
    ),
    # receivers begin when all is written down, and one reads it again
    "upfront, Spark's shuffle on disk": lambda spark, job, every: received(spark, job),
    "late global": _late_global,
}


def servers_and_tasks_crash(directory: Path, tuples: int, seed: int) -> pd.DataFrame:
    """Run two servers of two tasks each: undisturbed, with a task killed, with a server killed.

    A server's own store is RocksDB, the global one SQLite. Task 0-0 dies when it has read half of
    its partition, server 0 when its two tasks have merged three quarters of theirs. Each of four
    partitions has so many tuples; the folder is a new one.

    Columns run, task, dead: whether it or its server was killed; joined: how often it began or came
    back, read_again: tuples that it read a second time, seconds: the whole run, error: windows of
    the run that are not those of the undisturbed one.
    """
    rng, times = np.random.default_rng(seed), np.arange(tuples) * 10 * WINDOWS.width // tuples
    texts = []
    for _ in range(SHARED_PARTITIONS):
        columns = times, rng.integers(0, SHARED_KEYS, tuples), rng.integers(0, 101, tuples)
        texts.append(b"".join(b"%d,%d,%d\n" % row for row in zip(*columns, strict=True)))
    log = TupleLog.write(directory / "log", texts)

    rules, batch = Rules(WINDOWS, WINDOWS.pane), -(-tuples // BATCHES)
    notes, batches = directory / "faults", -(-tuples // batch)
    runs: dict[str, tuple[str, Fault | None]] = {
        "undisturbed": ("nobody", None),
        "a task dies": ("task-0-0", Fault(notes, "task-0-0 read", -(-batches // 2))),
        "a server dies": ("task-0-", Fault(notes, "server-0 merged", -(-batches * 3 // 2))),
    }
    rows, true = [], dict[str, str]()
    for name, (dead, fault) in runs.items():
        faults = (fault,) if fault else ()
        place = directory / name.replace(" ", "-")
        job = Job(log, rules, place, batch=batch, checkpoint_s=0.05, faults=faults)
        account = run_job(job)
        if fault and not fault.fallen:
            raise RuntimeError(f"{name}, but nobody died: take more tuples")
        windows = {path.name: path.read_text() for path in job.output.iterdir()}
        true = true or windows
        error = len(dict(windows.items() ^ true.items()))
        for task in sorted(account.joined):
            found = {"joined": account.joined[task], "read_again": account.read_again.get(task, 0)}
            row = {"run": name, "task": task, "dead": task.startswith(dead), **found}
            rows.append(row | {"seconds": account.seconds, "error": error})
    return pd.DataFrame(rows)
