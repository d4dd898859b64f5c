"""Streaming queries of the same samples that take turns, window by window.

So load of the machine that changes from one minute to the next changes all of them. The order is
reversed every other window. A result is a quotient of two times of the same window.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from aftlib import Promise

WIDTH = 100
"""Seconds of a window."""
FILES = 2
"""Files with the samples of a micro-batch."""
SCHEMA = "time timestamp, site string, sensor string, value double"
SETTINGS = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # a window is one micro-batch
    "spark.sql.streaming.pollingDelay": "200ms",  # of the queries whose turn it is not
}
"""Spark properties of a session with turns."""
_BEGIN = 1_704_067_200
"""2024-01-01, seconds since 1970."""


def promise_of(sensors: int, samples: int, **terms: Any) -> Promise:
    """Return a promise of a group's sensors, which belong to four workers in turn."""
    names = [f"s{i}" for i in range(sensors)]
    workers = [names[i::4] for i in range(4)]
    return Promise(workers, 0.5, 0.05, f"{WIDTH}s", samples=samples, **terms)


def mean_of(stream: DataFrame) -> DataFrame:
    """Return the mean of each window and sensor by Spark alone."""
    window = F.window("time", f"{WIDTH} seconds")
    return stream.withWatermark("time", "0 seconds").groupBy(window, "site", "sensor").avg("value")


class Windows(NamedTuple):
    """Consecutive windows of all groups, with so many samples of each sensor."""

    groups: int
    sensors: int
    samples: int
    first: int
    number: int = 1

    def write(self, spark: SparkSession, place: Path) -> None:
        """Write the samples, window after window."""
        per_group = self.sensors * self.samples
        per_window = self.groups * per_group
        number = spark.range(0, self.number * per_window, 1, FILES)
        window = self.first + F.floor(F.col("id") / per_window)
        group = F.floor(F.col("id") % per_window / per_group)
        sensor = F.floor(F.col("id") / self.samples) % self.sensors
        second = F.floor(F.col("id") % self.samples * WIDTH / self.samples)
        common = F.sin(second / 9 + window)
        number.select(
            F.timestamp_seconds(_BEGIN + window * WIDTH + second).alias("time"),
            F.concat(F.lit("g"), group).alias("site"),
            F.concat(F.lit("s"), sensor).alias("sensor"),
            (common + 0.1 * F.randn(self.first)).alias("value"),
        ).write.parquet(str(place))


class Turns:
    """Running queries, each of which gets its own copy of the same files."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self._spark = spark
        self._place = place
        self._queries: dict[str, StreamingQuery] = {}
        self._number = 0

    def start(self, systems: Mapping[str, Callable[[DataFrame], DataFrame]]) -> Self:
        """Start a query per system, which makes its windows of a stream of samples."""
        for name, system in systems.items():
            place = self._place / name
            place.mkdir()
            stream = self._spark.readStream.schema(SCHEMA).parquet(f"{place}/in-*")
            writer = system(stream).writeStream.format("noop").outputMode("append")
            self._queries[name] = writer.option("checkpointLocation", f"{place}/state").start()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for query in self._queries.values():
            query.stop()

    def give(self, windows: Windows) -> dict[str, float]:
        """Let each query process windows in one micro-batch; return its seconds by system."""
        files = self._place / "samples"
        windows.write(self._spark, files)
        order = list(self._queries)[:: -1 if self._number % 2 else 1]
        seconds = {}
        for name in order:
            folder = self._place / name / "new"
            shutil.copytree(files, folder, copy_function=os.link)
            folder.rename(folder.with_name(f"in-{self._number:03}"))
            seconds[name] = self._process(self._queries[name])
        shutil.rmtree(files)
        self._number += 1
        return {name: seconds[name] for name in self._queries}

    def _process(self, query: StreamingQuery) -> float:
        """Wait for the end of the next micro-batch; return its seconds."""
        query.processAllAvailable()
        batches = {each["batchId"]: each for each in query.recentProgress if each["numInputRows"]}
        return batches[self._number]["durationMs"]["triggerExecution"] / 1e3


def summarize(times: pd.DataFrame) -> dict[str, Any]:
    """Seconds per micro-batch, and speeds of systems as shares of the speed of one before them."""
    speed = {}
    names = list(times)
    for place, name in enumerate(names):
        for other in names[:place]:
            pairs = times[other] / times[name]
            low, middle, high = pairs.quantile([0.25, 0.5, 0.75])
            speed[f"{name}/{other}"] = {
                "median": round(middle, 3),
                "quartiles": [round(low, 3), round(high, 3)],
                "of_sums": round(times[other].sum() / times[name].sum(), 3),
            }
    return {"speed": speed, "seconds_per_micro_batch": times.to_dict("list")}
