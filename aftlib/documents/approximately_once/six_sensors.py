"""D1's fig. 8 as a stream: six sensors, two worker processes, one killed and replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.documents.approximately_once.worker import EPOCH, SCHEMA, Worker
from aftlib.streaming.promise import Promise
from aftlib.streaming.stream import PROVIDER, ROCKSDB, recoverable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

WINDOWS = Windows(width=10, slide=5)
SENSORS = ["X1", "X2", "X3", "X4", "X5", "X6"]
FIGURE_8 = pd.DataFrame(
    {
        "X1": [21, 21, 22, 23, 23],
        "X2": [19, 20, 20, 22, 22],
        "X3": [20, 20, 21, 22, 23],
        "X4": [18, 19, 20, 21, 21],
        "X5": [19, 19, 20, 21, 22],
        "X6": [21, 22, 22, 23, 23],
    },
    index=pd.Index([0, 5, 10, 15, 20], name="start"),
    dtype=float,
)
"""Window means of D1 fig. 8; the lost ones, X4–X6 over [10, 20) and [15, 25), are our choice."""
MODEL = GaussianModel(FIGURE_8.mean(), 1.4 * np.ones((6, 6)) + 0.1 * np.eye(6), SENSORS)
"""Our choice, too: the document gives no numbers."""
ASSIGNMENT = (("X1", "X2", "X3"), ("X4", "X5", "X6"))
"""Sensors of the workers A and B."""


def six_sensors(spark: SparkSession, directory: Path, failure: int, recovery: int) -> pd.DataFrame:
    """Stream fig. 8's six sensors through two workers, and kill worker B by SIGKILL.

    The workers aggregate samples in windows of 10 s, a new one every 5 s. For Spark each of their
    results is one sample, at the window's start, so that its own windows are of 5 s.

    `directory` must be new. In the document, `failure` is step 16 and `recovery` is step 19. The
    frame has the rows of `recoverable`, with `start` and `stop` in steps, and the true window mean
    in a column `truth`.
    """
    log = write_log(directory / "log")
    incoming = directory / "incoming"
    incoming.mkdir()
    promise = Promise(ASSIGNMENT, epsilon=1.0, delta=0.05, window="5s", watermark="5s", model=MODEL)
    with ExitStack() as running:  # ends workers and query, whatever happens
        query = estimate_windows(spark, promise, incoming, directory)
        running.callback(query.stop)
        a = running.enter_context(Worker(log, [0, 1, 2], WINDOWS, folder=incoming))
        b = running.enter_context(Worker(log, [3, 4, 5], WINDOWS, folder=incoming))
        a.wait()
        b.wait()
        advance([a, b], range(failure + 1))
        b.stop()
        advance([a], range(failure + 1, recovery))
        replacement = Worker(log, [3, 4, 5], WINDOWS, begin=recovery, folder=incoming)
        running.enter_context(replacement)
        replacement.wait()
        advance([a, replacement], range(recovery, log.steps + 1))
        query.processAllAvailable()

    table = spark.read.parquet(str(directory / "windows")).toPandas()
    table["start"] = (table["start"] - pd.Timestamp(EPOCH).tz_localize(None)).dt.seconds
    truth = FIGURE_8.reset_index().melt("start", var_name="sensor", value_name="truth")
    table = table.merge(truth, on=["start", "sensor"]).assign(stop=lambda t: t["start"] + 10)
    return table.sort_values(["start", "sensor"], ignore_index=True)


def write_log(path: Path) -> SensorLog:
    """Write samples with the window means of fig. 8; the last window's means stay for a while."""
    means = FIGURE_8.to_numpy()
    means = np.concatenate([means, np.repeat(means[-1:], 4, axis=0)])
    levels = [means[0]]  # samples are constant over half windows
    for row in means:
        levels.append(2 * row - levels[-1])
    return SensorLog.write(path, np.repeat(levels, 5, axis=0), SENSORS)


def estimate_windows(
    spark: SparkSession, promise: Promise, incoming: Path, directory: Path
) -> StreamingQuery:
    """Start the coordinator: Spark streams the workers' files, and estimates what is missing.

    Windows are stored in the folder "windows" of `directory`, and the query's state beside it.
    """
    spark.conf.set(PROVIDER, ROCKSDB)
    windows = recoverable(spark.readStream.schema(SCHEMA).parquet(str(incoming)), promise)
    writer = windows.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.format("parquet").start(str(directory / "windows"))


def advance(workers: Sequence[Worker], steps: Iterable[int]) -> None:
    """Let the workers process all samples step by step, none ahead of the others."""
    for step in steps:
        for worker in workers:
            worker.advance(step)
        for worker in workers:
            worker.receive()
