"""Speed beside other packages, and of checkpoints on a disk, as ratios within one run.

    python -m pip install polars duckdb    # into an environment of its own, if you like
    python -m benchmarks peers

A package that is not installed is left out, and the result says so. polars and DuckDB run on one
thread, as our parser does. AFT_PEER_TUPLES is the number of tuples.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job, serve
from aftlib.documents.shared_state.sums import sum_tuples
from aftlib.documents.shared_state.table import SqliteTable
from aftlib.documents.shared_state.tuples import TupleLog, TupleStream, draw_log, part_path
from benchmarks.timing import best_of, say

TUPLES = int(os.environ.get("AFT_PEER_TUPLES", "10000000"))
SKEWS, KEYS, TURNS = (0.0, 1.4, 2.0), 100_000, 5


def run() -> dict[str, Any]:
    """All ratios; above 1, ours is the faster one."""
    return {
        "parse and sum, million tuples a second": parse_and_sum(),
        "checkpoints of a server, seconds": server_checkpoints(),
    }


def parse_and_sum() -> dict[str, Any]:
    """Tuples per second of one core, by system and skew; each in a process of its own."""
    table: dict[str, Any] = {system.__name__: {} for system in (ours, polars, duckdb)}
    for skew in SKEWS:
        with tempfile.TemporaryDirectory(prefix="aft-") as name:
            log = draw_log(Path(name) / "log", TupleStream(TUPLES, KEYS, skew, 1), 8)
            totals = set()
            for system in (ours, polars, duckdb):
                say(f"{system.__name__}, skew {skew:g}")
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    result = pool.apply(time_system, (system, str(log.path)))
                if isinstance(result, tuple):
                    seconds, *total = result
                    totals.add(tuple(total))
                    result = round(TUPLES / seconds / 1e6, 2)
                table[system.__name__][f"{skew:g}"] = result
        if len(totals) != 1:
            raise RuntimeError(f"systems must find the same keys and sums, got {totals}")
    return table


def time_system(
    system: Callable[[str], tuple[int, int]], folder: str
) -> tuple[float, int, int] | str:
    """Median seconds of a system, its number of keys and the total, or why there are none."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    try:
        keys, total = system(folder)
    except ImportError as error:
        return str(error)
    seconds = [best_of(1, lambda: system(folder))[0] for _ in range(TURNS)]
    return statistics.median(seconds), keys, total


def ours(folder: str) -> tuple[int, int]:
    """Return the number of keys and the total of a log's sums by key."""
    source = TupleSource(TupleLog.open(folder), Windows(10**9, 10**9))
    sums = sum_tuples(source.readers(0, 1).values())
    return len(sums), int(sums.values.sum())


def polars(folder: str) -> tuple[int, int]:
    """Return the same by polars."""
    import polars as pl

    schema = dict.fromkeys(["time", "key", "value"], pl.Int64)
    rows = pl.scan_csv(f"{folder}/part-*.csv", has_header=False, schema=schema)
    sums = rows.group_by("key").agg(pl.col("value").sum()).collect(engine="streaming")
    return sums.height, int(sums["value"].sum())


def duckdb(folder: str) -> tuple[int, int]:
    """Return the same by DuckDB."""
    import duckdb as db

    query = (
        f"SELECT key, sum(value) AS total FROM read_csv('{folder}/part-*.csv', header = false,"
        " auto_detect = false,"
        " columns = {'time': 'BIGINT', 'key': 'BIGINT', 'value': 'BIGINT'}) GROUP BY key"
    )
    with db.connect(config={"threads": 1}) as connection:
        sums = connection.execute(query).fetchnumpy()
    return len(sums["key"]), int(sums["total"].sum())


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
