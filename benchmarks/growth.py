"""How cost grows with sensors, horizons, rows per window and groups.

    python -m benchmarks growth
    AFT_GROWTH_GROUPS=1000 python -m benchmarks growth    # at most so many groups

A guard runs alone, without Spark, after it has learned from `LEARNED` windows. A stream has one
window per micro-batch and guards that have just begun, and Spark's windowed mean gets the same rows
after it. ``benchmarks groups`` has guards of a stream that have learned.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aftlib import GaussianModel, Guard, Requirement, assign_greedy, recoverable
from aftlib.core.generators import block_model
from aftlib.documents.checkpoint_planning.replay import select_replay
from aftlib.spark.session import session
from benchmarks.timing import best_of, say
from benchmarks.turns import WIDTH, mean_of, promise_of

SENSORS = (10, 20, 50, 100, 200, 500, 1_000, 2_000)
HORIZONS = (1, 2, 5, 10, 20)
#: Samples of each sensor in a window of one group.
SAMPLES = (1_000, 30_000, 1_000_000)
GROUPS = (1, 10, 100, 1_000, 10_000)
#: Sensors of a group, and of a guard with more or fewer horizons.
SIZE = 20
WORKERS = 4
#: Windows that a guard learns from before it is timed, so that all its parts are in use.
LEARNED = 192
TIMED = 32
#: Micro-batches of a stream that are not timed, and that are.
STARTING = 2
COUNTED = 3


def run() -> dict[str, Any]:
    """All curves, by what grows, and what a million sensors would cost."""
    curves: dict[str, Any] = {
        "sensors": {n: guard_costs(n) | planning_costs(n) for n in SENSORS},
        "horizons": {horizons: guard_costs(SIZE, horizons) for horizons in HORIZONS},
    }
    spark = session("benchmark")
    stream_costs(spark, 100)  # starts Spark's processes, and compiles its code
    most = int(os.environ.get("AFT_GROWTH_GROUPS", GROUPS[-1]))
    curves["groups"] = {each: stream_costs(spark, 100, each) for each in GROUPS if each <= most}
    curves["rows"] = {SIZE * samples: stream_costs(spark, samples) for samples in SAMPLES}
    spark.stop()
    return curves | {"million_sensors": million_sensors(curves)}


def million_sensors(curves: dict[str, Any]) -> dict[str, float]:
    """Compute in proportion what 50,000 groups of 20 sensors take, from the largest stream."""
    groups = 50_000
    measured = max(curves["groups"])
    cores = os.cpu_count() or 1
    stream_s = curves["groups"][measured]["recoverable_s"]
    guard = curves["sensors"][SIZE]
    return {
        "groups_measured": measured,
        "stream_core_seconds": stream_s * cores * groups / measured,
        "guards_core_seconds": guard["window_ms"] * groups / 1e3,
        "guards_gigabytes": guard["bytes"] * groups / 1e9,
        "restart_core_minutes": guard["restart_ms"] * groups / 6e4,
    }


def guard_costs(n: int, horizons: int = 5) -> dict[str, float]:
    """Milliseconds of a window, the guard's bytes, and milliseconds of a restart."""
    say(f"guard of {n} sensors, {horizons} horizons")
    workers = [range(first, n, WORKERS) for first in range(WORKERS)]
    guard = Guard(workers, epsilon=0.5, delta=0.05, horizons=horizons)
    rng = np.random.default_rng(1)
    windows = rng.normal(size=(LEARNED + TIMED, 1)) + 0.3 * rng.normal(size=(LEARNED + TIMED, n))
    guard.update(windows[:LEARNED])
    seconds = []
    for window in windows[LEARNED:]:
        begin = time.perf_counter()
        guard.update(window)
        seconds.append(time.perf_counter() - begin)
    data = guard.to_bytes()
    restart_s, _ = best_of(3, lambda: Guard.from_bytes(data))
    return {
        "window_ms": 1e3 * float(np.median(seconds)),
        "bytes": guard.nbytes,
        "restart_ms": 1e3 * restart_s,
    }


def planning_costs(n: int) -> dict[str, float]:
    """Seconds of D1's assignment to ten workers, and of D2's selection of what to replay."""
    model = block_model(n, max(2, n // 10))
    fresh = GaussianModel(model.mean, model.covariance)
    assign_s, _ = best_of(1, lambda: assign_greedy(model, 10, Requirement(0.66, 0.05)))
    select_s, chosen = best_of(1, lambda: select_replay(fresh, 0.3))
    return {"assign_s": assign_s, "select_s": select_s, "replayed": len(chosen.sensors)}


def stream_costs(spark: SparkSession, samples: int, groups: int = 1) -> dict[str, float]:
    """Median seconds of a micro-batch of `recoverable` and of Spark's windowed mean."""
    say(f"{groups:,} groups, {samples:,} samples of each sensor per window")
    promise = promise_of(SIZE, samples)
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", groups * SIZE * samples)
        .option("advanceMillisPerBatch", 1_000 * WIDTH)
        .option("numPartitions", 2)
        .load()
    )
    place = F.col("value") % (groups * SIZE)
    stream = source.select(
        F.col("timestamp").alias("time"),
        F.concat(F.lit("g"), F.floor(place / SIZE)).alias("site"),
        F.concat(F.lit("s"), place % SIZE).alias("sensor"),
        F.rand(1).alias("value"),
    )
    return {
        "rows": groups * SIZE * samples,
        "recoverable_s": batch_seconds(recoverable(stream, promise, group="site")),
        "mean_s": batch_seconds(mean_of(stream)),
    }


def batch_seconds(result: DataFrame) -> float:
    """Return the median of the micro-batches that are timed."""
    with tempfile.TemporaryDirectory(prefix="aft-") as place:
        writer = result.writeStream.format("noop").option("checkpointLocation", place)
        query = writer.start()
        while query.isActive and len(query.recentProgress) < STARTING + COUNTED:
            time.sleep(0.1)
        progress = query.recentProgress
        query.stop()
        query.awaitTermination()
    seconds = [each["durationMs"]["triggerExecution"] / 1e3 for each in progress]
    return float(np.median(seconds[STARTING:]))
