"""Late merge on Spark against Flink, DuckDB and polars on the same files (D3), as JSON.

    python -m benchmarks merging                                 # 10⁷ tuples, 5 runs
    AFT_MERGING_TUPLES=100000000 AFT_MERGING_RUNS=1 python -m benchmarks merging

Another number of tuples gives a result of its own, `merging-100000000.json`.
Flink gets its jars from PyPI on the first run (330 MB, stored in data/) and needs a Java compiler;
without them it is left out, and the reason printed. Its figure is the job's net run time in a warm
JVM (`benchmarks.flink`); Spark's is all that the caller waits for, task start included. Upfront is
timed twice: as Spark has it, and between compiled loops (`benchmarks.merging_upfront`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import duckdb
import pandas as pd
import psutil

from aftlib.core.paths import data_dir
from aftlib.shared_state.experiments.parameters import Input, inputs
from aftlib.shared_state.experiments.servers import served
from aftlib.shared_state.experiments.strategies import measured
from aftlib.shared_state.strategies import merge_log
from aftlib.shared_state.task import sum_partitions
from aftlib.shared_state.tuplelog import TupleStream
from aftlib.spark.session import session
from benchmarks import flink, merging_upfront
from benchmarks.timing import say

USUAL = 10_000_000
TUPLES = int(os.environ.get("AFT_MERGING_TUPLES", USUAL))
RUNS = int(os.environ.get("AFT_MERGING_RUNS", 5))
SKEWS = (0.0, 1.4, 2.0)
KEYS, TASKS, SEED = 100_000, 2, 1
FLINK_MODES = ("keyed", "late", "shared")
TOTALS = ("keys", "sum", "count")
"""What all systems must agree on: the number of keys, the sum of their sums, of their counts."""

_SQL = """SELECT key, sum(value), count(*)
    FROM read_csv({files}, header = false, auto_detect = false,
                  columns = {{'time': 'BIGINT', 'key': 'BIGINT', 'value': 'BIGINT'}})
    GROUP BY key"""
_POLARS = """
import json, sys, time
import polars as pl
names = ["time", "key", "value"]
schema = dict.fromkeys(names, pl.Int64)
for folder in sys.argv[2:]:
    for run in range(int(sys.argv[1]) + 1):
        begin = time.perf_counter()
        frame = pl.scan_csv(folder + "/part-*.csv", has_header=False, schema=schema)
        sums = frame.group_by("key").agg(pl.col("value").sum(), pl.len())
        table = sums.collect(engine="streaming")
        seconds = time.perf_counter() - begin
        totals = [table.height, table["value"].sum(), table["len"].sum()]
        print(json.dumps([folder, run, seconds, totals]), flush=True)
"""


def run() -> dict[str, Any]:
    """All figures of this benchmark, as medians with the least and most, and their ratios."""
    spark = session("benchmark")
    sources = inputs(spark, data_dir(), [TupleStream(TUPLES, KEYS, skew, SEED) for skew in SKEWS])
    say(f"{TUPLES:,} tuples at skews {SKEWS}, {RUNS} runs, {TASKS} tasks")
    strategies = measured(spark, sources, [TASKS], RUNS, warm_up=True)
    strategies = pd.concat([strategies, _upfront_compiled(spark, sources)])
    say("strategies on Spark done")
    smaller = inputs(spark, data_dir(), [TupleStream(TUPLES // 10, KEYS, SKEWS[0], SEED)])
    memory = {f"{each.stream.tuples:,}": _memory(spark, each) for each in [*smaller, sources[0]]}
    spark.stop()
    servers = served(sources, [TASKS], RUNS, times=1)
    say("servers and tasks done")
    cores = pd.concat([_our_core(sources), _duckdb_core(sources), _polars_core(sources)])
    say("one core each done")
    one, rivals, reason = _flink(sources)
    require_equal([_of_spark(strategies), _of_servers(servers), cores, one, rivals])
    return {
        "benchmark": "merging" if TUPLES == USUAL else f"merging-{TUPLES}",
        "tuples": TUPLES,
        "runs": RUNS,
        "tasks": TASKS,
        "spark_million_tuples_a_second": _spread(strategies, "strategy"),
        "seconds_of_a_run": _breakdown(strategies),
        "servers_million_tuples_a_second": _spread(servers, "strategy"),
        "one_core_million_tuples_a_second": _spread(cores, "system"),
        "flink_million_tuples_a_second": _spread(rivals, "system") if len(rivals) else reason,
        "flink_one_task_million_tuples_a_second": _spread(one, "system") if len(one) else reason,
        "ratios": _ratios(strategies, cores, rivals) | _within_flink(one, rivals),
        "memory_gb_at_most_by_tuples": memory,
    }


def _upfront_compiled(spark: Any, sources: list[Input]) -> pd.DataFrame:
    rows = []
    for turn, each in [(t, i) for t in range(-1, RUNS) for i in sources]:
        seconds, totals = merging_upfront.upfront(spark, each, TASKS)
        row = _row(merging_upfront.NAME, each, seconds, totals)
        names = {"strategy": row.pop("system"), "states": row.pop("keys"), "repeat": turn}
        rows += [names | row | {"seconds": seconds}] if turn >= 0 else []
    return pd.DataFrame(rows)


def _our_core(sources: list[Input]) -> pd.DataFrame:
    rows = []
    for turn, each in [(t, i) for t in range(-1, RUNS) for i in sources]:
        paths = {p: each.log.part(p) for p in range(each.log.partitions)}
        begin = time.perf_counter()
        sums, _ = sum_partitions(paths, each.rules)
        seconds = time.perf_counter() - begin
        totals = [len(sums), *sums.values.sum(axis=0).tolist()]
        rows += [_row("ours", each, seconds, totals)] if turn >= 0 else []
    return pd.DataFrame(rows)


def _duckdb_core(sources: list[Input]) -> pd.DataFrame:
    rows, connection = [], duckdb.connect()
    connection.execute("SET threads = 1")
    for turn, each in [(t, i) for t in range(-1, RUNS) for i in sources]:
        files = [str(each.log.part(p)) for p in range(each.log.partitions)]
        begin = time.perf_counter()
        columns = connection.execute(_SQL.format(files=files)).fetchnumpy()
        seconds = time.perf_counter() - begin
        _, sums, counts = columns.values()
        totals = [len(sums), int(sums.sum()), int(counts.sum())]
        rows += [_row("duckdb", each, seconds, totals)] if turn >= 0 else []
    return pd.DataFrame(rows)


def _polars_core(sources: list[Input]) -> pd.DataFrame:
    """Run in a process of its own, because polars sets its number of threads at import."""
    command = [sys.executable, "-c", _POLARS, str(RUNS), *(str(i.log.path) for i in sources)]
    one = os.environ | {"POLARS_MAX_THREADS": "1"}
    process = subprocess.run(command, env=one, capture_output=True, text=True, check=True)
    by_path = {str(each.log.path): each for each in sources}
    records = [json.loads(line) for line in process.stdout.splitlines()]
    return pd.DataFrame(
        [_row("polars", by_path[path], *result) for path, turn, *result in records if turn]
    )


def _row(system: str, each: Input, seconds: float, totals: Sequence[int]) -> dict[str, Any]:
    speed = each.stream.tuples / seconds
    row = {"system": system, "skew": each.stream.skew, "throughput": speed}
    return row | dict(zip(TOTALS, map(int, totals), strict=True))


def _of_spark(strategies: pd.DataFrame) -> pd.DataFrame:
    names = {"strategy": "system", "states": "keys"}
    return strategies.rename(columns=names)[["system", "skew", *TOTALS]]


def _of_servers(servers: pd.DataFrame) -> pd.DataFrame:
    """As `_of_spark`; their count is the number of tuples read, because their sums have none."""
    names = {"strategy": "system", "states": "keys", "tuples": "count"}
    return servers.rename(columns=names)[["system", "skew", *TOTALS]]


def require_equal(frames: Sequence[pd.DataFrame]) -> None:
    """Refuse systems that have not summed the same.

    Parameters
    ----------
    frames : sequence of DataFrame
        system, skew, and the number of keys, the sum of the sums and of the counts.

    Raises
    ------
    RuntimeError
    """
    runs = pd.concat([frame for frame in frames if len(frame)])
    totals = runs[["system", "skew", *TOTALS]].drop_duplicates()
    if totals.drop_duplicates(["skew", *TOTALS])["skew"].duplicated().any():
        raise RuntimeError(f"the systems disagree, nothing can be compared:\n{totals.to_string()}")


def _flink(sources: list[Input]) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Flink's throughput with one task and with `TASKS`; or empty frames and why."""
    by_path = {str(each.log.path): each for each in sources}
    folders = [each.log.path for each in sources]
    rows: dict[int, list[dict[str, Any]]] = {1: [], TASKS: []}
    try:
        path = flink.prepare(data_dir())
        for mode, tasks in product(FLINK_MODES, rows):
            say(f"Flink, {mode}, tasks {tasks}: {RUNS + 1} runs at each skew")
            rows[tasks] += [
                _row(f"flink {mode}", by_path[r.folder], r.seconds, (r.keys, r.sum, r.tuples))
                for r in flink.timed(path, mode, folders, RUNS, tasks).itertuples()
            ]
    except RuntimeError as error:
        say(f"Flink is left out: {error}")
        return pd.DataFrame(), pd.DataFrame(), f"left out: {error}"
    return pd.DataFrame(rows[1]), pd.DataFrame(rows[TASKS]), ""


def _within_flink(one: pd.DataFrame, rivals: pd.DataFrame) -> dict[str, float]:
    """Medians of a mode over those of keyed aggregation, and of `TASKS` tasks over one."""
    if rivals.empty:
        return {}
    tables = (frame.groupby(["system", "skew"])["throughput"].median() for frame in (one, rivals))
    speeds = dict(zip((1, TASKS), tables, strict=True))
    ratios = {
        f"flink {mode} / flink keyed, tasks {tasks}, skew {skew:g}": at[f"flink {mode}", skew]
        / at["flink keyed", skew]
        for mode, (tasks, at), skew in product(FLINK_MODES[1:], speeds.items(), SKEWS)
    }
    growth = speeds[TASKS] / speeds[1]
    grows = {f"{name}: {TASKS} tasks / 1, skew {skew:g}": g for (name, skew), g in growth.items()}
    return ratios | grows


def _memory(spark: Any, each: Input) -> float:
    """Most resident gigabytes of this process, Spark's JVM and its workers in a late local run.

    Pages that processes share are counted for each of them.
    """
    with _sampled() as sizes:
        merge_log(spark, each.log, each.rules, "late local", TASKS)
    return max(sizes) / 1e9


@contextmanager
def _sampled() -> Iterator[list[int]]:
    sizes, done = [0], threading.Event()

    def sample() -> None:
        while not done.wait(0.1):
            tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
            sizes.append(sum(_resident(process) for process in tree))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        done.set()
        thread.join()


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def _spread(frame: pd.DataFrame, by: str) -> dict[str, dict[str, list[float]]]:
    """Median, least and most of the runs by system and skew."""
    table: dict[str, dict[str, list[float]]] = {}
    for (name, skew), runs in frame.groupby([by, "skew"])["throughput"]:
        values = [runs.median(), runs.min(), runs.max()]
        table.setdefault(str(name), {})[f"{skew:g}"] = [round(v / 1e6, 2) for v in values]
    return table


def _breakdown(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Medians of where a run's seconds go; what is read, parsed and summed is of all tasks."""
    parts = ["seconds", "start_s", "work_s", "read_s", "parse_s", "sum_s", "merge_s"]
    complete = frame.dropna(subset=parts)
    groups = complete.groupby(["strategy", "skew"])[parts].median().round(3)
    return {f"{name} {skew:g}": row for (name, skew), row in groups.to_dict("index").items()}


def _ratios(strategies: pd.DataFrame, cores: pd.DataFrame, rivals: pd.DataFrame) -> dict[str, Any]:
    """What the aims are about: medians over medians, and skewed over uniform turn by turn."""
    speeds = strategies.groupby(["strategy", "skew"])["throughput"].median()
    ours = speeds["late local"]
    core = cores.groupby(["system", "skew"])["throughput"].median()
    ratios: dict[str, Any] = {
        f"one core / {name}, skew {skew:g}": core["ours", skew] / core[name, skew]
        for name in ("duckdb", "polars")
        for skew in SKEWS
    }
    for name in ("duckdb", "polars"):
        for skew in SKEWS:
            per_core = ours[skew] / TASKS / core[name, skew]
            ratios[f"late local on Spark, a core / {name}, skew {skew:g}"] = per_core
    if len(rivals):
        theirs = rivals.groupby(["system", "skew"])["throughput"].median()
        for (name, skew), speed in theirs.items():
            ratios[f"late local / {name}, skew {skew:g}"] = ours[skew] / speed
    for name in ("upfront", merging_upfront.NAME):
        for skew in SKEWS:
            ratios[f"late local / {name}, skew {skew:g}"] = ours[skew] / speeds[name][skew]
    for name, rows in strategies.groupby("strategy"):
        wide = rows.pivot_table(index="repeat", columns="skew", values="throughput")
        turns = wide[2.0] / wide[0.0]
        ratios[f"{name}: skew 2 / uniform, by turn"] = [round(t, 3) for t in turns]
    return ratios
