"""D3 fig. 1, measured: whom one task's death disturbs, and what is processed again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.experiments.streams import Input
from aftlib.shared_state.experiments.throughputs import shared_file
from aftlib.shared_state.strategies.pipeline import LogMerge, merge_log, received
from aftlib.shared_state.strategies.pipelined import pipelined
from aftlib.shared_state.stream.sums import SUMS
from aftlib.spark.faults import Fault

VICTIM = 1
"""Task that dies."""
ROUNDS = 4
"""Rounds of the pipelined shuffle between two checkpoints."""


@dataclass(frozen=True)
class _Outcome:
    """Sums of a run, tuples that its tries went through, healthy tasks tried again, `twice`."""

    sums: Partials
    processed: int
    disturbed: int
    twice: int | None = None


def one_task_dies(
    spark: SparkSession, given: Input, tasks: int, every: int, after: int
) -> pd.DataFrame:
    """Kill one task's process by SIGKILL in each way of sharing the work out, and count.

    Parameters
    ----------
    spark : SparkSession
    given : Input
    tasks : int
        At least 2, and no more than the cores.
    every : int
        Tuples of a task between two checkpoints.
    after : int
        Tuples that the task has gone through when it dies.

    Returns
    -------
    DataFrame
        strategy, tasks, tuples, again: tuples gone through more than once, by all tries of all
        tasks, disturbed: healthy tasks that were started anew, twice: tuples that these would count
        twice had they been left running, missing where nothing is passed on a second time, error:
        largest difference of a sum from the undisturbed run's, dead_pid.

    Raises
    ------
    ValueError
        When there are fewer than 2 tasks, or the task never goes through so many tuples.
    """
    if tasks < 2:
        raise ValueError(f"tasks must be at least 2 for one to die and one to live, got {tasks!r}")
    true = merge_log(spark, given.log, given.rules, "late local", tasks).sums
    rows = []
    for name, way in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="aft-") as scratch:
            fault = Fault(Path(scratch), f"task-{VICTIM}", after)
            job = LogMerge(given.log, given.rules, tasks, Path(scratch), fault)
            done = way(spark, job, every)
            pid = _fallen(fault)["pid"]
        again = done.processed - given.stream.tuples
        counts = {"again": again, "disturbed": done.disturbed, "twice": done.twice}
        row = {"strategy": name, "tasks": tasks, "tuples": given.stream.tuples, **counts}
        rows.append(row | {"error": _difference(done.sums, true), "dead_pid": pid})
    return pd.DataFrame(rows).astype({"twice": "Int64"})


def _late_global(spark: SparkSession, job: LogMerge, every: int) -> _Outcome:
    table = shared_file(job.directory)
    done = merge_log(
        spark, job.log, job.rules, "late global", job.tasks, job.directory, table, every, job.fault
    )
    return _Outcome(done.sums, _gone_through(done.tries), tried_again(done.tries))


def _blocking(spark: SparkSession, job: LogMerge, every: int) -> _Outcome:
    """Spark's own shuffle: receivers begin when all is written down, and one reads it again."""
    sums, tries = received(spark, job)
    return _Outcome(sums, _gone_through(tries), tried_again(tries))


def _pipelined(spark: SparkSession, job: LogMerge, every: int) -> _Outcome:
    done = pipelined(spark, job, every // ROUNDS, ROUNDS)
    first = [each for each in done.tries if each["attempt"] == 0]
    _fallen(job.fault)
    second = min(each["since"] for each in done.tries if each["attempt"] > 0)
    return _Outcome(
        done.sums,
        sum(each["received"] for each in done.tries),
        tried_again(done.tries),
        _since(first, second),
    )


WAYS: dict[str, Callable[[SparkSession, LogMerge, int], _Outcome]] = {
    "upfront, pipelined shuffle": _pipelined,
    "upfront, Spark's shuffle on disk": _blocking,
    "late global": _late_global,
}


def _fallen(fault: Fault | None) -> dict:
    """The note that the dead process left."""
    note = fault.fallen if fault else None
    if note is None:
        after = fault.after if fault else None
        raise ValueError(
            f"after must be below what task {VICTIM} goes through, got {after}: nobody died; "
            "lower it, or take more tuples"
        )
    return note


def _gone_through(tries: list[dict]) -> int:
    return sum(each["tuples"] for each in tries)


def tried_again(tries: list[dict]) -> int:
    """Number of tasks that were started anew, but for the one that died."""
    return len({each["task"] for each in tries if each["attempt"] > 0} - {VICTIM})


def _since(first: list[dict], round_: int) -> int:
    """Tuples that healthy tasks had received of the rounds that were passed on again."""
    return sum(sum(each["by_round"][round_:]) for each in first if each["task"] != VICTIM)


def _difference(found: Partials, true: Partials) -> int:
    """Largest difference of a sum or count; what only one of them has differs by its value."""
    less = Partials(true.windows, true.keys, -true.values)
    both = SUMS.group(Partials.concat(found, less))
    return int(np.abs(both.values).max(initial=0))
