"""D3 figs 5 and 6 as far as this machine goes: throughput of each strategy, where time goes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.experiments.streams import Input
from aftlib.shared_state.stores.sqlite_table import SqliteTable
from aftlib.shared_state.stores.tables import StateTable
from aftlib.shared_state.strategies.pipeline import STRATEGIES, MergedLog, merge_log
from aftlib.shared_state.strategies.stages import stage_seconds
from aftlib.shared_state.stream.sums import SUMS


def measured(
    spark: SparkSession,
    given: Sequence[Input],
    tasks: Sequence[int],
    repeats: int,
    strategies: Sequence[str] = STRATEGIES,
    warm_up: bool = True,
) -> pd.DataFrame:
    """Time every strategy on every input at every parallelism, in turns.

    The sums of all runs on an input must be the same, or nothing is returned. "Late global" shares
    a new SQLite file each time.

    Parameters
    ----------
    spark : SparkSession
    given : sequence of Input
    tasks : sequence of int
        Parallelism.
    repeats : int
        Counted turns.
    strategies : sequence of str
    warm_up : bool
        Whether a turn comes first that is not counted.

    Returns
    -------
    DataFrame
        strategy, skew, tasks, repeat, tuples, states; sum and count over all keys; seconds,
        throughput: tuples a second; start_s: until the first task began; work_s: of the longest
        task; read_s, parse_s, sum_s: of all tasks together; merge_s: merging the sums, of which
        task_merge_s in the tasks; sender_s, receiver_s: of all tasks before and behind the
        shuffle, NaN where there is none.

    Raises
    ------
    RuntimeError
        When two runs disagree.
    """
    rows, first = [], {}  # type: ignore[var-annotated]
    cells = [(i, s, p) for i in given for s in strategies for p in tasks]
    for repeat, (each, strategy, p) in [(r, c) for r in range(-warm_up, repeats) for c in cells]:
        done, stages = _timed(spark, each, strategy, p)
        require_same(first.setdefault(each.stream.skew, done.sums), done.sums, strategy)
        at = {"strategy": strategy, "skew": each.stream.skew, "tasks": p, "repeat": repeat}
        rows += [at | _costs(done, stages, strategy)] if repeat >= 0 else []
    return pd.DataFrame(rows)


def require_same(one: Partials, other: Partials, what: str) -> None:
    """Refuse sums that differ.

    Raises
    ------
    RuntimeError
    """
    same = all(np.array_equal(getattr(one, n), getattr(other, n)) for n in vars(one))
    if not same:
        raise RuntimeError(f"{what} gives other sums than the run before: report this as a bug")


def shared_file(directory: Path | str) -> Callable[[], StateTable]:
    """Opener of a SQLite table that the tasks of one machine share."""
    return partial(SqliteTable, Path(directory) / "shared.sqlite", SUMS)


def _timed(
    spark: SparkSession, each: Input, strategy: str, tasks: int
) -> tuple[MergedLog, list[float]]:
    with tempfile.TemporaryDirectory(prefix="aft-") as scratch, stage_seconds(spark) as stages:
        table = shared_file(scratch) if strategy == "late global" else None
        done = merge_log(spark, each.log, each.rules, strategy, tasks, table=table)
    return done, stages


def _costs(done: MergedLog, stages: list[float], strategy: str) -> dict[str, float]:
    tasks, shuffled = done.tasks, strategy == "upfront"
    return {
        "tuples": done.tuples,
        "states": len(done.sums),
        "sum": int(done.sums.values[:, 0].sum()),
        "count": int(done.sums.values[:, 1].sum()),
        "seconds": done.seconds,
        "throughput": done.tuples / done.seconds,
        "start_s": tasks["began"].min(),
        "work_s": (tasks["ended"] - tasks["began"]).max(),
        **{f"{part}_s": tasks[part].sum() for part in ("read", "parse", "sum")},
        "task_merge_s": tasks["merge"].sum(),
        "merge_s": tasks["merge"].sum() + done.merge_s,
        "sender_s": stages[0] if shuffled else np.nan,
        "receiver_s": stages[1] if shuffled else np.nan,
    }
