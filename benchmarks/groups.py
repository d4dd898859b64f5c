"""`recoverable` for many groups with warm guards, against Spark's windowed mean of the same rows.

python -m benchmarks groups[=10,10000]

A group has 20 sensors. First its guards receive 130 windows of one sample per sensor, ten per
micro-batch, which are not timed: then they have fitted their predictions, keep outcomes and write
snapshots. Windows 130 to 160 have 100 samples per sensor, and a micro-batch reads one of all
groups, while it emits the one before it. A time is that of Spark's whole micro-batch. Beside
`recoverable` runs an operator with state that does nothing. Then comes one group of 2,000 sensors.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from aftlib import recoverable
from aftlib.spark.session import session
from aftlib.streaming.cache import CACHE_BYTES
from aftlib.streaming.keyed import LEAST_LOG, KeyedGuards
from aftlib.streaming.rows import Arranged
from aftlib.streaming.stream import BUCKETS, PROVIDER, ROCKSDB
from benchmarks.timing import say
from benchmarks.turns import SETTINGS, Turns, Windows, mean_of, promise_of, summarize

SENSORS, SAMPLES = 20, 100
WARM, TIMED, SKIPPED = 130, 30, 2
"""Windows before those that are timed, those, and how many of these are left out: they load code.
"""
PER_MICRO_BATCH = 10
"""Windows of a micro-batch that is not timed."""
IN_BUCKET = 16
"""Groups of a bucket if there are 1,000 of them."""
LAST, LOGGED = 320, (LEAST_LOG, 40)
"""Windows of a guard alone, and those since its snapshot at a restart: the least after which the
next one may be written, and the mean at a random moment."""


def run(groups: str = "10,100,1000") -> dict[str, Any]:
    """Times of micro-batches and their quotients by number of groups, and what a guard costs."""
    spark = session("benchmark", **{PROVIDER: ROCKSDB}, **SETTINGS)
    counts = [int(count) for count in groups.split(",")]
    results: dict[str, Any] = {
        "timed": f"windows {WARM + SKIPPED} to {WARM + TIMED} of warm guards, in turn",
        "sensors": SENSORS,
        "samples_per_window": SAMPLES,
        "groups": {count: compare_streams(spark, count, SENSORS) for count in counts},
        "one_group_of_2000_sensors": compare_streams(spark, 1, 2000),
        "guard": {n: guard_costs(n) for n in (SENSORS, 200)},
    }
    results["guards_in_cache"] = CACHE_BYTES // results["guard"][SENSORS]["bytes"]
    spark.stop()
    return results


def compare_streams(spark: SparkSession, groups: int, sensors: int) -> dict[str, Any]:
    """Spark's windowed mean, an operator that does nothing, and the guards, in turn."""
    # the guards receive windows of one sample, too
    promise = promise_of(sensors, SAMPLES, share=1 / SAMPLES)
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        with Turns(spark, Path(name)) as turns:
            turns.start(
                {
                    "plain_spark": mean_of,
                    "empty_processor": through_an_empty_processor,
                    "recoverable": lambda stream: recoverable(stream, promise, group="site"),
                }
            )
            for first in range(0, WARM, PER_MICRO_BATCH):
                turns.give(Windows(groups, sensors, 1, first, PER_MICRO_BATCH))
            times = []
            for first in range(WARM, WARM + TIMED):
                times.append(turns.give(Windows(groups, sensors, SAMPLES, first)))
                say(f"{groups} groups, window {first}: {times[-1]}")
        files = Path(name).glob("recoverable/state/state/**/*")
        state = sum(file.stat().st_size for file in files if file.is_file())
    return {
        "rows_per_window": groups * sensors * SAMPLES,
        **summarize(pd.DataFrame(times[SKIPPED:])),
        "state_bytes_per_group": round(state / groups),
    }


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


def guard_costs(n: int) -> dict[str, Any]:
    """Of each guard of a bucket without Spark: bytes, milliseconds of a window and of restarts."""
    promise = promise_of(n, SAMPLES)
    keyed = KeyedGuards(promise)
    rng = np.random.default_rng(1)
    group = np.arange(IN_BUCKET)
    seconds, log, stored = [], list[bytes](), {}
    for window in range(LAST):
        values = rng.normal(size=(IN_BUCKET, 1)) + 0.3 * rng.normal(size=(IN_BUCKET, n))
        windows = Arranged(
            key=group,
            start=np.full(IN_BUCKET, window * promise.step),
            value=values,
            samples=np.full(values.shape, SAMPLES),
            variance=np.ones(values.shape),
        )
        began = time.perf_counter()
        _, part = keyed.process(windows)
        seconds.append(time.perf_counter() - began)
        log.append(part)
        logged = LAST - 1 - window
        if logged in LOGGED:
            snapshots = [keyed.snapshot(place) for place in range(IN_BUCKET)]
            stored[logged] = (snapshots, keyed.token)
    restart_ms = {}
    for logged, (snapshots, token) in stored.items():
        began = time.perf_counter()
        again = KeyedGuards(promise)
        again.restore(snapshots, token)
        again.replay(log[LAST - logged :], keyed.token)
        restart_ms[logged] = 1e3 * (time.perf_counter() - began) / IN_BUCKET
    return {
        "bytes": keyed.nbytes // IN_BUCKET,
        "window_ms": 1e3 * sum(seconds[-64:]) / 64 / IN_BUCKET,
        "restart_ms": restart_ms[LEAST_LOG],
        "restart_ms_at_a_random_moment": restart_ms[LOGGED[1]],
    }
