"""A driver to be killed: two streams of files through the guard, into tables of windows.

python -m tests.crash.guard_driver DIRECTORY DIRECTORY_OF_NEAREST

It kills itself after it has written the windows of micro-batch `KILL_IN` of both streams, before
Spark commits them. The second stream has another aggregate and predictor.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aftlib import Promise, recoverable
from aftlib.streaming.groups import StoredGuards
from aftlib.streaming.keyed import KeyedGuards
from aftlib.streaming.operator import GuardProcessor
from aftlib.streaming.stream import PROVIDER, ROCKSDB

PROMISE = Promise([["a"], ["b"], ["c"]], 0.5, 0.05, "5min", samples=5)
PREDICTOR = '''
"""A user's module, which each Python process of Spark gets."""
import numpy as np


class NearestBefore:
    """Predict what all sensors had in the earlier window that is most like the newest one."""

    def __init__(self, rows=()):
        self.rows = list(rows)

    def learn(self, window):
        self.rows.append(window)

    def predict(self, windows):
        there = np.isfinite(windows[-1])
        if len(self.rows) < 50 or not there.any():
            return np.full(there.size, np.nan)
        rows = np.array(self.rows)
        near = np.nanargmin(np.abs(rows[:, there] - windows[-1, there]).sum(axis=1))
        return rows[near]

    def to_bytes(self):
        return np.array(self.rows, float).tobytes()

    def from_bytes(self, data):
        return NearestBefore(np.frombuffer(data).reshape(-1, 3))
'''
ROUNDS, CUTS = 320, (0.75, 0.85)
"""Windows, and the shares of the samples between which a file ends."""
KILL_IN = 2
"""The micro-batch whose windows are those of the file in which a sensor is away.

It is one later than the file's samples, because the watermark then ends the windows. The guards
have state by then, that of the windows of the first file.
"""


def prepare(directory: Path) -> None:
    """Write a sample per minute of three sensors in files; one sensor is away for a while.

    Beside them is what the guard of a plan learned, with which the stream begins.
    """
    rng = np.random.default_rng(1)
    common = 0.1 * rng.normal(size=(ROUNDS * 5, 1)).cumsum(0)
    times = pd.date_range("2026-01-01", periods=len(common), freq="min", tz="UTC", name="time")
    values = common + 0.1 * rng.normal(size=(len(common), 3))
    values[1280:1300, 0] = np.nan
    rows = pd.DataFrame(values, times, list("abc")).reset_index().melt("time", var_name="sensor")
    rows = rows.dropna().sort_values(["time", "sensor"])
    directory.mkdir()
    guard = PROMISE.guard()
    guard.update(values[:700].reshape(-1, 5, 3).mean(1) + 1)
    windows = {"window": PROMISE.width, "slide": PROMISE.step, "query": "mean"}
    learned = guard.learned(PROMISE.sensors, windows | {"seasons": [], "until": 0})
    (directory.parent / "learned").write_text(learned.to_text())
    at = [int(share * len(rows)) for share in CUTS]
    for number, part in enumerate(np.split(np.arange(len(rows)), at)):
        place = directory / f"{number}.parquet"
        rows.iloc[part].to_parquet(place, coerce_timestamps="us")
        os.utime(
            place, (number, number)
        )  # Spark reads files by age, and a clock's tick may be 4 ms


class Forgetting(StoredGuards):
    """Guards that start again with every micro-batch."""

    def stored(self) -> KeyedGuards:
        self.places = {}
        return KeyedGuards(self.promise)


class Forgetful(GuardProcessor):
    """The broken control."""

    def guards(self) -> StoredGuards:
        return Forgetting(self.content, self.learned, self.records)


def kill_workers_once(frames: Iterator[pd.DataFrame], marker: Path) -> Iterator[pd.DataFrame]:
    """Pass rows on, but before the first ones kill all Python workers, those of guards included."""
    for frame in frames:
        if not marker.exists():
            marker.touch()
            siblings = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text()
            for process in sorted(map(int, siblings.split()), key=lambda id: id == os.getpid()):
                os.kill(process, signal.SIGKILL)
        yield frame


def promise_of(spark: SparkSession, directory: Path, nearest: bool) -> Promise:
    """Return a promise of means that begins from a plan, or of ranges with a user's predictor.

    The predictor's module is sent to Spark's Python processes.
    """
    if not nearest:
        return replace(PROMISE, learned=(directory.parent / "learned").read_text())
    module = directory / "nearest_before.py"
    module.write_text(PREDICTOR)
    spark.sparkContext.addPyFile(str(module))
    predictor = "nearest_before:NearestBefore"
    return replace(PROMISE, share=None, query="max(value) - min(value)", predictor=predictor)


def run(
    spark: SparkSession,
    directory: Path,
    nearest: bool = False,
    kill_workers: bool = False,
    kill_driver: Callable[[], object] | None = None,
) -> pd.DataFrame:
    """Stream what is left of the files in `incoming` beside the directory; all windows so far.

    The driver, or all Python workers, are killed in the micro-batch `KILL_IN`.
    """

    def write(batch: DataFrame, number: int) -> None:
        if kill_workers and number == KILL_IN:
            kill = partial(kill_workers_once, marker=directory / "workers-killed")
            batch = batch.mapInPandas(kill, batch.schema)
        rows = batch.drop("window_time").toPandas()
        rows["start"] = rows["start"].astype(str)
        with sqlite3.connect(directory / "windows.sqlite") as table:
            columns = ", ".join(rows.columns)
            table.execute(f"CREATE TABLE IF NOT EXISTS windows ({columns}, UNIQUE(start, sensor))")
            marks = ", ".join("?" * len(rows.columns))
            values = rows.astype(object).itertuples(index=False)
            table.executemany(f"INSERT OR REPLACE INTO windows VALUES ({marks})", values)
        if kill_driver and number == KILL_IN:
            kill_driver()

    spark.conf.set(PROVIDER, ROCKSDB)
    reader = spark.readStream.schema("time timestamp, sensor string, value double")
    stream = reader.option("maxFilesPerTrigger", 1).parquet(str(directory.parent / "incoming"))
    now = F.lit(pd.Timestamp("2026-02-01", tz="UTC").to_pydatetime())
    promise = promise_of(spark, directory, nearest)
    writer = recoverable(stream, promise, now=now).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    with sqlite3.connect(directory / "windows.sqlite") as table:
        return pd.read_sql("SELECT * FROM windows ORDER BY start, sensor", table)


def run_both(spark: SparkSession, directory: Path, of_nearest: Path) -> None:
    """Run both streams, and kill this process once both have written the micro-batch."""
    written = Barrier(2, partial(os.kill, os.getpid(), signal.SIGKILL), timeout=600)
    with ThreadPoolExecutor(2) as pool:
        streams = [
            pool.submit(run, spark, directory, kill_driver=written.wait),
            pool.submit(run, spark, of_nearest, nearest=True, kill_driver=written.wait),
        ]
    for stream in streams:
        stream.result()


if __name__ == "__main__":
    from aftlib.spark.session import session

    running = session("crash", **{"spark.sql.shuffle.partitions": "2"})
    run_both(running, *map(Path, sys.argv[1:]))
