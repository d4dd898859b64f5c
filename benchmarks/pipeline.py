"""The streaming pipeline against the same aggregation in plain Spark, and the cost of recovery.

Also the cost of fault tolerance without failures: D1 and D2 against the same work without it.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.experiments.cases import ROWS, NotebookParameters
from aftlib.approximately_once.experiments.grid import grid
from aftlib.approximately_once.experiments.streams import recovery_cost
from aftlib.approximately_once.pipeline import Delivery, Query, recover_stream, staff
from aftlib.approximately_once.sink import Outage
from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read
from aftlib.checkpoint_planning.pipeline import replay_in_process
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.session import session
from aftlib.spark.streams import drain
from aftlib.spark.sweep import write_samples
from benchmarks.careless import Careless

STEPS, WIDTH, M, REPEATS = 200_000, 100, 10, 3
LONG, LONG_REPEATS = 4, 2  # with so many times the steps, so that a stream's start matters less


def run() -> dict:
    """Rows (samples) per second both ways, the recovery table, and the grid's seconds."""
    spark = session("benchmark")
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        place, model = Path(name), block_model()
        query = build_query(write_samples(spark, model, STEPS, 1, place / "log"))
        plain_spark(spark, query.log, WIDTH)  # warm
        recover_stream(spark, query, place / "warm")
        run_unprotected(spark, query, place / "warm-bare")
        short = compare(spark, query, place / "short", REPEATS)
        long = build_query(write_samples(spark, model, LONG * STEPS, 1, place / "long-log"))
        outage = Outage(3, int(0.7 * STEPS), int(0.7 * STEPS) + 2 * WIDTH)
        cost = recovery_cost(spark, query, place / "cost", [outage])
        return short | {
            "long": compare(spark, long, place / "long", LONG_REPEATS),
            "checkpoint_planning": replay_overhead(place, query.log),
            "recovery": json.loads(cost.to_json(orient="records")),
            "grid_seconds": grid_seconds(spark, place),
        }


def build_query(log: SensorLog) -> Query:
    """Means of tumbling windows, in four micro-batches."""
    requirement, windows = Requirement(0.1, 0.05), Windows(WIDTH, WIDTH)
    means = block_model().aggregate(WIDTH)
    assignment = assign_spread(means, M, requirement)
    return Query(log, windows, means, assignment, requirement, every=log.steps // 4)


def compare(spark: SparkSession, query: Query, place: Path, repeats: int) -> dict:
    """The pipeline, the same without fault tolerance, and plain Spark over one log."""
    ours, bare, plain = [], [], []
    for i in range(repeats):  # in turn, so that a busy moment slows all three
        ours.append(time_call(recover_stream, spark, query, place / f"run{i}"))
        bare.append(time_call(run_unprotected, spark, query, place / f"bare{i}"))
        plain.append(time_call(plain_spark, spark, query.log, WIDTH))
    samples = query.steps * len(query.log.names)
    return {
        "samples": samples,
        "pipeline_rows_per_second": samples / median(ours),
        "plain_spark_rows_per_second": samples / median(plain),
        "ratio_pipeline_to_plain": median(plain) / median(ours),
        "seconds": {"pipeline": ours, "no_fault_tolerance": bare, "plain_spark": plain},
        "overhead_of_fault_tolerance": median(ours) / median(bare) - 1,
    }


def time_call(call, *arguments) -> float:  # noqa: ANN001, ANN002
    """Seconds of one call."""
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def run_unprotected(spark: SparkSession, query: Query, directory: Path) -> None:
    """At most once: no acknowledgement, no handler; rows are appended, without a sync."""
    splits, _ = staff(query, directory)
    splits = replace(splits, worker=Careless(**vars(splits.worker)))
    table = sqlite3.connect(
        directory / "rows.sqlite", isolation_level=None, check_same_thread=False
    )
    table.execute("PRAGMA synchronous = OFF")
    table.execute("CREATE TABLE windows (start, stop, key, value, half_width, estimated, samples)")

    def append(batch: DataFrame, number: int) -> None:  # noqa: ARG001
        delivery = Delivery.of(batch.toArrow(), query.windows, query.assignment)
        rows = delivery.cells(range(len(delivery.windows)), query.log.names)
        table.execute("BEGIN")
        table.executemany("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        table.execute("COMMIT")

    drain(splits.stream(spark).writeStream, directory, append)
    table.close()


def replay_overhead(place: Path, log: SensorLog) -> dict:
    """D2 in one process: planned checkpoints against sums without checkpoints; no failures."""
    model, window = block_model(), 10_000
    query = ReplayQuery(model, window, Requirement(0.01, 0.05), RecoveryTime(28.33, 9.332e-4), 50)
    time_call(query.plan)  # the libraries loaded
    planning = time_call(lambda: query.first_plan)  # once per query, whatever the stream's length
    bare, replays = [], []
    for i in range(REPEATS):
        bare.append(time_call(window_sums, log, window))
        replays.append(time_call(replay_in_process, query, log, place / f"replay{i}"))
    return {
        "checkpoints_a_window": len(query.first_plan.checkpoints),
        "planning_seconds": planning,
        "seconds": {"replay": replays, "no_fault_tolerance": bare},
        "overhead_of_fault_tolerance": median(replays) / median(bare) - 1,
    }


def window_sums(log: SensorLog, window: int) -> list:
    """Sums of every whole window, as the operator makes them."""
    read, keys = bare_read(log), range(len(log.names))
    return [read(keys, at, at + window) for at in range(0, log.steps - window + 1, window)]


def plain_spark(spark: SparkSession, log: SensorLog, width: int) -> None:
    """The window means of every key by Spark's own aggregation, written as Parquet."""
    wide = spark.read.parquet(*map(str, sorted(log.path.glob("*.parquet"))))
    means = [f.avg(name).alias(name) for name in log.names]
    out = wide.groupBy(f.floor(f.col("step") / width).alias("window")).agg(*means)
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        out.write.parquet(f"{name}/out")


def grid_seconds(spark: SparkSession, place: Path) -> float:
    """The (ε, m) grid of figs 10–13 with the notebook's defaults, Spark already running."""
    return time_call(grid, spark, NotebookParameters().case(spark, place), ROWS, 1)
