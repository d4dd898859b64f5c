"""`recoverable` for many groups against Spark's own windowed mean of the same rows.

A group has 20 sensors with 100 samples per window. Each micro-batch has a window of all groups.
Then one group of 2,000 sensors.
AFT_GROUPS gives other numbers of groups, such as 10,10000.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from aftlib import Promise, recoverable
from aftlib.spark.session import session
from aftlib.streaming.groups import CACHE_BYTES
from aftlib.streaming.keyed import KeyedGuard
from aftlib.streaming.stream import BUCKETS, PROVIDER, ROCKSDB

SENSORS, SAMPLES, WIDTH = 20, 100, 100
WINDOWS, WARM = 12, 5
"""Windows per stream, and those that are not timed: kernels are loaded and guards are made."""
FILES = 2
BEGIN = 1_704_067_200
"""2024-01-01, seconds since 1970."""
SCHEMA = "time timestamp, site string, sensor string, value double"


def run() -> dict[str, Any]:
    """Rows per second, micro-batches and state by number of groups, and what a guard costs."""
    counts = [int(text) for text in os.environ.get("AFT_GROUPS", "10,100,1000").split(",")]
    spark = session("benchmark", **{PROVIDER: ROCKSDB})
    results: dict[str, Any] = {
        "sensors": SENSORS,
        "samples_per_window": SAMPLES,
        "groups": {groups: compare_streams(spark, groups, SENSORS) for groups in counts},
        "one_group_of_2000_sensors": compare_streams(spark, 1, 2000),
        "guard": {n: guard_costs(n) for n in (SENSORS, 200)},
    }
    results["guards_in_cache"] = int(CACHE_BYTES * spark.sparkContext.defaultParallelism)
    results["guards_in_cache"] //= results["guard"][SENSORS]["bytes"]
    spark.stop()
    return results


def compare_streams(spark: SparkSession, groups: int, sensors: int) -> dict[str, Any]:
    """The guard's stream and Spark's aggregation over the same files."""
    rows = groups * sensors * SAMPLES
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        place = Path(name)
        write(spark, place / "in", groups, sensors)
        stream = read(spark, place / "in")
        names = [f"s{i}" for i in range(sensors)]
        promise = Promise([names[i::4] for i in range(4)], 0.5, 0.05, f"{WIDTH}s", samples=SAMPLES)
        plain = batches(mean_of(stream), place / "plain")
        empty = batches(through_an_empty_processor(stream), place / "empty")
        ours = batches(recoverable(stream, promise, group="site"), place / "ours")
        state = sum(f.stat().st_size for f in (place / "ours" / "state").rglob("*") if f.is_file())
    return {
        "rows_per_window": rows,
        "seconds_per_micro_batch": {
            "recoverable": ours,
            "plain_spark": plain,
            "empty_processor": empty,
        },
        "rows_per_second": round(rows / median(ours)),
        "ratio_to_plain_spark": median(plain) / median(ours),
        "empty_processor_to_plain_spark": median(plain) / median(empty),
        "state_bytes_per_group_and_window": round(state / groups / (WINDOWS - 1)),
    }


def write(
    spark: SparkSession, place: Path, groups: int, sensors: int, samples: int = SAMPLES
) -> None:
    """Write `FILES` files per window, in the order in which a stream reads them."""
    place.mkdir()
    per_group = sensors * samples
    for window in range(WINDOWS):
        number = spark.range(0, groups * per_group, 1, FILES)
        second = F.floor(F.col("id") % samples * WIDTH / samples)
        common = F.sin(second / 9 + window)
        number.select(
            F.timestamp_seconds(BEGIN + window * WIDTH + second).alias("time"),
            F.concat(F.lit("g"), F.floor(F.col("id") / per_group)).alias("site"),
            F.concat(F.lit("s"), F.floor(F.col("id") / samples) % sensors).alias("sensor"),
            (common + 0.1 * F.randn(window)).alias("value"),
        ).write.parquet(str(place / f"window{window}"))
        for i, file in enumerate(sorted((place / f"window{window}").glob("*.parquet"))):
            file.rename(place / f"{window:03}-{i}.parquet")


def read(spark: SparkSession, place: Path) -> DataFrame:
    """Return the stream of these files, a window per micro-batch."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES)
    return rows.parquet(str(place))


def mean_of(stream: DataFrame) -> DataFrame:
    """Return the mean of each window and sensor by Spark alone."""
    window = F.window("time", f"{WIDTH} seconds")
    return stream.withWatermark("time", "0 seconds").groupBy(window, "site", "sensor").avg("value")


def through_an_empty_processor(stream: DataFrame) -> DataFrame:
    """Return the windows as a stateful processor passes them on that only counts its calls.

    So much time do Spark's second aggregation and its Python processes take without a guard.
    """

    class Empty(StatefulProcessor):  # in a function, so that Spark's processes get its code
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.calls = handle.getValueState("calls", "number int")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            (number,) = self.calls.get() or (0,)
            self.calls.update((number + 1,))
            yield from (part[["site", "sensor", "value"]] for part in rows)

        def close(self) -> None:
            pass

    windows = mean_of(stream).select(
        F.pmod(F.xxhash64("site"), F.lit(BUCKETS)).alias("bucket"),
        "site",
        "sensor",
        F.col("avg(value)").alias("value"),
    )
    schema = "site string, sensor string, value double"
    return windows.groupBy("bucket").transformWithStateInPandas(Empty(), schema, "append", "none")


def batches(result: DataFrame, checkpoint: Path) -> list[float]:
    """Seconds of each micro-batch that is timed."""
    query = (
        result.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    durations = [
        progress["durationMs"]["triggerExecution"] / 1e3
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    return durations[WARM:]


def guard_costs(n: int) -> dict[str, Any]:
    """One guard without Spark: bytes, and milliseconds of a window and of a restart from state."""
    names = [f"s{i}" for i in range(n)]
    promise = Promise([names[i::4] for i in range(4)], 0.5, 0.05, f"{WIDTH}s", samples=SAMPLES)
    keyed, rng, windows = KeyedGuard(promise), np.random.default_rng(1), list[pd.DataFrame]()
    for window in range(320):
        columns = {"sensor": names, "value": rng.normal() + 0.3 * rng.normal(size=n)}
        constant = {"start": window * promise.step, "samples": SAMPLES, "variance": 1.0}
        windows.append(pd.DataFrame(columns | constant))
    for each in windows[:256]:
        keyed.process(each)
    snapshot, log = keyed.snapshot(), []
    began = time.perf_counter()
    for each in windows[256:]:
        _, part = keyed.process(each)
        log.append(part)
    middle = time.perf_counter()
    KeyedGuard(promise).restore(snapshot, log, keyed.token)
    return {
        "bytes": keyed.guard.nbytes,
        "window_ms": 1e3 * (middle - began) / 64,
        "restart_ms": 1e3 * (time.perf_counter() - middle),
    }
