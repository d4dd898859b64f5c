"""Speed beside other packages, the document's own rule, and the disk, as ratios within one run.

    python -m pip install polars duckdb dgim    # into an environment of its own, if you like
    python -m benchmarks peers

A package that is not installed is left out, and the result says so. polars and DuckDB run on one
thread, as our parser does. AFT_PEER_TUPLES is the number of tuples.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aftlib import ExponentialHistogram, GaussianModel, Requirement, assign_greedy
from aftlib.core.generators import block_model
from aftlib.core.windows import Windows
from aftlib.documents.approximately_once import assignment
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job, serve
from aftlib.documents.shared_state.table import SqliteTable
from aftlib.documents.shared_state.tuples import TupleLog, TupleStream, draw_log, part_path
from benchmarks.timing import say

TUPLES = int(os.environ.get("AFT_PEER_TUPLES", "10000000"))
SKEWS, KEYS, TURNS = (0.0, 1.4, 2.0), 100_000, 5
POLARS = """
import polars as pl
schema = dict.fromkeys(["time", "key", "value"], pl.Int64)
def sums(folder):
    frame = pl.scan_csv(folder + "/part-*.csv", has_header=False, schema=schema)
    table = frame.group_by("key").agg(pl.col("value").sum()).collect(engine="streaming")
    return table.height, int(table["value"].sum())
"""
DUCKDB = """
import duckdb
connection = duckdb.connect()
connection.execute("SET threads = 1")
def sums(folder):
    rows = connection.execute(
        "SELECT key, sum(value) AS total FROM read_csv('" + folder + "/part-*.csv', header = false,"
        " auto_detect = false,"
        " columns = {'time': 'BIGINT', 'key': 'BIGINT', 'value': 'BIGINT'}) GROUP BY key"
    ).fetchnumpy()
    return len(rows["key"]), int(rows["total"].sum())
"""
OURS = """
from pathlib import Path
from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.sums import sum_tuples
from aftlib.documents.shared_state.tuples import TupleLog
def sums(folder):
    source = TupleSource(TupleLog.open(folder), Windows(10**9, 10**9))
    table = sum_tuples(source.readers(0, 1).values())
    return len(table), int(table.values.sum())
"""
TIMED = """
import json, sys, time
for turn in range(int(sys.argv[1]) + 1):
    begin = time.perf_counter()
    result = sums(sys.argv[2])
    print(json.dumps([time.perf_counter() - begin, *result]), flush=True)
"""


def run() -> dict[str, Any]:
    """All ratios; above 1, ours is the faster one."""
    return {
        "parse and sum, million tuples a second": parse_and_sum(),
        "checkpoints of a server, seconds": server_checkpoints(),
        "one event at a time": single_events(),
        "greedy assignment": {n: greedy(n, m) for n, m in ((120, 10), (480, 40))},
    }


def parse_and_sum() -> dict[str, Any]:
    """Tuples per second of one core, by system and skew; each in a process of its own."""
    table: dict[str, Any] = {}
    for skew in SKEWS:
        with tempfile.TemporaryDirectory(prefix="aft-") as name:
            stream = TupleStream(TUPLES, KEYS, skew, 1)
            draw_log(Path(name) / "log", stream, 8)
            totals = set()
            for system, code in (("ours", OURS), ("polars", POLARS), ("duckdb", DUCKDB)):
                say(f"{system}, skew {skew:g}")
                runs = timed_process(code, str(Path(name) / "log"))
                if isinstance(runs, str):
                    table.setdefault(system, {})[f"{skew:g}"] = runs
                    continue
                totals |= {tuple(total) for _, *total in runs}
                seconds = statistics.median(run[0] for run in runs[1:])
                table.setdefault(system, {})[f"{skew:g}"] = round(TUPLES / seconds / 1e6, 2)
        if len(totals) != 1:
            raise RuntimeError(f"systems must find the same keys and sums, got {totals}")
    return table


def timed_process(code: str, folder: str) -> list[list[float]] | str:
    """Seconds and totals of each turn, or why there are none."""
    one = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code + TIMED, str(TURNS), folder]
    process = subprocess.run(command, env=one, capture_output=True, text=True)
    if process.returncode:
        return process.stderr.strip().splitlines()[-1]
    return [json.loads(line) for line in process.stdout.splitlines()]


def server_checkpoints(seconds: float = 12.0) -> dict[str, Any]:
    """Seconds of one server with two tasks that read for `seconds`, with and without checkpoints.

    Each partition is the same file under several names, so that the disk is no limit.
    """
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        place = Path(name)
        small = draw_log(place / "small", TupleStream(4_000_000, KEYS, 1.4, 1), 2)
        time_server(small, place / "warm", 1e9)
        once = time_server(small, place / "once", 1e9)
        copies = max(1, round(seconds / once))
        (place / "long").mkdir()
        for copy in range(copies):
            for partition in range(2):
                os.link(small.part(partition), part_path(place / "long", 2 * copy + partition))
        log, found = TupleLog.open(place / "long"), {"never": [], "every second": []}
        for turn in range(TURNS):
            for every, period in (("never", 1e9), ("every second", 1.0)):
                say(f"server, checkpoint {every}, turn {turn}")
                found[every].append(time_server(log, place / f"{every}-{turn}", period))
    lost = [1 - a / b for a, b in zip(found["never"], found["every second"], strict=True)]
    return found | {"copies": copies, "throughput lost": statistics.median(lost), "lost": lost}


def time_server(log: TupleLog, place: Path, checkpoint_s: float) -> float:
    """Seconds until a server has read and merged a log."""
    place.mkdir()
    table = partial(SqliteTable, place / "shared.sqlite")
    with table() as shared:
        shared.prepare(log.partitions)
    source = TupleSource(log, Windows(10**9, 10**9))
    return serve(replace(Job(source, place, table), checkpoint_s=checkpoint_s), 0)


def single_events() -> dict[str, Any]:
    """Events per second of our histogram and of the package `dgim`, one event per call."""
    events = (np.random.default_rng(1).random(300_000) < 0.5).tolist()
    rivals: dict[str, Callable[[bool], Any]] = {"ours": ExponentialHistogram(10**6, 0.01).update}
    try:
        rivals["dgim"] = importlib.import_module("dgim").Dgim(10**6, 0.01).update
    except ImportError as error:
        return {"left out": str(error)}
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(2 * TURNS):
        for name, update in rivals.items():
            begin = time.perf_counter()
            for event in events:
                update(event)
            seconds[name].append(time.perf_counter() - begin)
    best = {name: len(events) / min(taken[TURNS:]) for name, taken in seconds.items()}
    return {"events a second": best, "ratio": best["ours"] / best["dgim"]}


def greedy(n: int, m: int) -> dict[str, Any]:
    """Seconds of greedy, and of one solve of eq. (2) for each candidate that D1 fig. 9 tries.

    The second is the mean time of a solve times the number of candidates.
    """
    model, requirement, counted = block_model(n, n // 12), Requirement(0.66, 0.05), []
    place = assignment._OpenWorkers.place

    def count(self: assignment._OpenWorkers, *arguments: Any) -> int | None:
        counted.append(int(self.open.sum()))
        return place(self, *arguments)

    assignment._OpenWorkers.place = count  # type: ignore[method-assign]
    try:
        assign_greedy(model, m, requirement)
    finally:
        assignment._OpenWorkers.place = place  # type: ignore[method-assign]
    seconds = []
    for _ in range(TURNS):
        fresh = GaussianModel(model.mean, model.covariance)
        begin = time.perf_counter()
        assign_greedy(fresh, m, requirement)
        seconds.append(time.perf_counter() - begin)
    per_solve = seconds_of_a_solve(model.covariance, n // m)
    return {
        "seconds": min(seconds),
        "candidates": sum(counted),
        "one solve, ms": 1e3 * per_solve,
        "ratio": sum(counted) * per_solve / min(seconds),
    }


def seconds_of_a_solve(covariance: np.ndarray, capacity: int, sample: int = 60) -> float:
    """Mean time of eq. (2) as it stands, for workers from empty to full."""
    rng, n = np.random.default_rng(0), len(covariance)
    blocks = [rng.choice(n, 1 + i % capacity, replace=False) for i in range(sample)]
    begin = time.perf_counter()
    for block in blocks:
        rest = np.setdiff1d(np.arange(n), block)
        cross = covariance[np.ix_(rest, block)]
        gain = np.linalg.solve(covariance[np.ix_(rest, rest)], cross)
        np.diag(covariance[np.ix_(block, block)] - cross.T @ gain)
    return (time.perf_counter() - begin) / sample
