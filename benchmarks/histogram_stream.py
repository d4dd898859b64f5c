"""The histogram as a streaming operator, beside Spark's own sum of the same stream (D5)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import run as histograms
from aftlib.spark.streams import drain

QUERY = HistogramQuery(1000, 0.05, each=False)
PARTITIONS = 2


def by_keys(spark: SparkSession, cases: dict[int, int], batches: int = 3) -> dict[str, Any]:
    """Events per second of a stream by its number of keys, and Spark's `sum` by key beside it.

    `cases` maps numbers of keys to events of a key in a micro-batch. A stream is read from Parquet
    files, one per micro-batch, and answers once per key and micro-batch. Answers of histograms go
    to Parquet files, sums nowhere. Seconds include the query's start: `start_s` is the time of a
    stream of one event per micro-batch.
    """
    _seconds(spark, 1, 1, 1)  # warm up: compile and load
    start = _seconds(spark, 1, 1, batches)
    speeds: dict[str, Any] = {"start_s": {name: round(s, 2) for name, s in start.items()}}
    for keys, each in cases.items():
        events, taken = keys * each * batches, _seconds(spark, keys, each, batches)
        rates = {f"{name}, events/s": round(events / s) for name, s in taken.items()}
        speeds[f"{keys} keys, {each} events each"] = {
            "events": events,
            "micro_batches": batches,
            **rates,
            "histogram / sum": taken["histogram"] / taken["sum"],
        }
    return speeds


def _seconds(spark: SparkSession, keys: int, each: int, batches: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        source, place = str(Path(folder) / "source"), Path(folder)
        for batch in range(batches):
            _batch(spark, keys, each, batch).coalesce(1).write.mode("append").parquet(source)
        schema = spark.read.parquet(source).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)

        def sums() -> None:
            totals = stream.groupBy("key").agg(F.sum(F.col("event").cast("long")))
            drain(totals.writeStream.outputMode("update").format("noop"), place / "sums")

        tasks: dict[str, Callable[[], Any]] = {
            "sum": sums,
            "histogram": lambda: histograms(spark, stream, QUERY, place / "own", PARTITIONS),
        }
        taken = {}
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            taken[name] = time.perf_counter() - begin
        return taken


def _batch(spark: SparkSession, keys: int, each: int, batch: int) -> DataFrame:
    """A micro-batch: `each` events of every key, in turn."""
    number, id_ = batch * each, F.col("id")
    return spark.range(0, keys * each, 1, PARTITIONS).select(
        (id_ % keys).alias("key"),
        (F.floor(id_ / keys) + 1 + number).cast("long").alias("at"),
        (F.xxhash64(id_, F.lit(batch)) % 2 != 0).alias("event"),
    )
