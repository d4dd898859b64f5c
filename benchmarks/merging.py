"""D3's strategies on Spark against Flink on the same files, as JSON.

    python -m benchmarks merging                    # 10⁷ tuples, 5 runs
    AFT_MERGING_TUPLES=100000000 python -m benchmarks merging  # late local and its rivals

Flink gets its jars from PyPI on the first run (330 MB, stored in data/) and needs a Java compiler;
without them it is left out, and the result says why. Its figure is the job's net run time in a warm
JVM (`benchmarks.flink`); Spark's is all that the caller waits for, task start included.
"""

from __future__ import annotations

import os
from itertools import product
from typing import Any

import pandas as pd

from aftlib.core.paths import data_dir
from aftlib.documents.shared_state.experiments import sources
from aftlib.documents.shared_state.throughput import LATE_LOCAL, STRATEGIES, measure
from aftlib.documents.shared_state.tuples import TupleStream
from aftlib.spark.session import session
from benchmarks import flink
from benchmarks.timing import say

STORED_TUPLES = 10_000_000
TUPLES = int(os.environ.get("AFT_MERGING_TUPLES", STORED_TUPLES))
RUNS = int(os.environ.get("AFT_MERGING_RUNS", "5"))
SKEWS = (0.0, 1.4, 2.0)
KEYS, TASKS, SEED = 100_000, 2, 1
ALL = TUPLES <= STORED_TUPLES
"""Whether all strategies run, or, because there are more tuples, late local and its rivals only."""
CHOSEN = STRATEGIES if ALL else (LATE_LOCAL,)
FLINK_MODES = ("keyed", "late", "shared") if ALL else ("late", "shared")
FLINK_TASKS = (1, TASKS) if ALL else (TASKS,)


def run() -> dict[str, Any]:
    """Medians with the least and most of all systems, and of two tasks over one in Flink."""
    spark = session("benchmark")
    streams = [TupleStream(TUPLES, KEYS, skew, SEED) for skew in SKEWS]
    inputs = sources(spark, data_dir(), streams)
    say(f"{TUPLES:,} tuples at skews {SKEWS}, {RUNS} runs, {TASKS} tasks")
    measured = measure(spark, inputs, TASKS, RUNS, CHOSEN)
    spark.stop()
    folders = {str(source.log.path): skew for skew, source in inputs.items()}
    rivals, reason = time_flink(folders)
    require_equal(measured, rivals)
    by_tasks = {tasks: rivals[rivals["tasks"] == tasks] for tasks in (1, TASKS)}
    return {
        "benchmark": "merging" if TUPLES == STORED_TUPLES else f"merging_{TUPLES}",
        "tuples": TUPLES,
        "runs": RUNS,
        "tasks": TASKS,
        "spark_million_tuples_a_second": spread(measured, "strategy"),
        "flink_million_tuples_a_second": reason or spread(by_tasks[TASKS], "engine"),
        "flink_one_task_million_tuples_a_second": reason or spread(by_tasks[1], "engine"),
    }


def time_flink(folders: dict[str, float]) -> tuple[pd.DataFrame, str]:
    """Return Flink's runs with one task and with `TASKS`, and why there are none."""
    columns = ["engine", "tasks", "skew", "throughput", "tuples", "keys", "sum"]
    rows = []
    try:
        path = flink.prepare(data_dir())
        for mode, tasks in product(FLINK_MODES, FLINK_TASKS):
            say(f"Flink, {mode}, tasks {tasks}: {RUNS + 1} runs at each skew")
            for each in flink.timed(path, mode, [*folders], RUNS, tasks).itertuples():
                speed, skew = TUPLES / each.seconds, folders[each.folder]
                totals = each.tuples, each.keys, each.sum
                rows.append((f"flink {mode}", tasks, skew, speed, *totals))
    except RuntimeError as error:
        say(f"Flink is left out: {error}")
        return pd.DataFrame(columns=columns), f"left out: {error}"
    return pd.DataFrame(rows, columns=columns), ""


def require_equal(measured: pd.DataFrame, rivals: pd.DataFrame) -> None:
    """Raise a RuntimeError unless Flink has found as many keys and tuples as Spark at each skew."""
    ours = set(measured[["skew", "tuples", "states"]].itertuples(index=False, name=None))
    theirs = set(rivals[["skew", "tuples", "keys"]].itertuples(index=False, name=None))
    if not theirs <= ours:
        raise RuntimeError(f"systems must find the same keys and tuples, got {theirs} and {ours}")


def spread(frame: pd.DataFrame, by: str) -> dict[str, dict[str, list[float]]]:
    """Median, least and most of the runs, in million tuples per second, by system and skew."""
    table: dict[str, dict[str, list[float]]] = {}
    for (name, skew), runs in frame.groupby([by, "skew"])["throughput"]:
        values = [runs.median(), runs.min(), runs.max()]
        table.setdefault(str(name), {})[f"{skew:g}"] = [round(v / 1e6, 2) for v in values]
    return table
