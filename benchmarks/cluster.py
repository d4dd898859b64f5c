"""Seconds per row on Spark's own cluster with one executor and with two, of one core each.

All of it is on one machine: the executors share its cores with the driver. Times of more executors
are projections from these two by Amdahl's law, t(p) = a + b / p, and are named so.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.pipeline import Query, recover_stream
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows
from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import aggregate
from aftlib.exponential_histogram.source import Drawn
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.strategies import merge_log
from aftlib.shared_state.tuplelog import TupleStream, write_tuples
from aftlib.spark.cluster import LocalCluster
from aftlib.spark.session import session
from aftlib.spark.sweep import write_samples

SAMPLES, TUPLES, EVENTS, REPEATS = 2_400_000, 1_000_000, 10_000_000, 1
D1 = (("sensors", 12, 100, 6), ("sensors", 120, 100, 6))
D1 += (("windows", 120, 1_000, 6), ("workers", 120, 100, 12))
"""The varied name, then sensors, samples per window, workers (partitions)."""
D3 = (("keys", 1_000, 4), ("keys", 100_000, 4), ("partitions", 1_000, 8))
"""The varied name, then keys and partitions; the strategy is late local."""
PROJECTED = (4, 8)
"""Numbers of executors that this machine is too small for."""


def run() -> dict:
    """Seconds, and ns per row, of each job by executors: one run, after one to warm up."""
    rows: list[dict] = []
    with LocalCluster(workers=2, cores=1) as cluster, tempfile.TemporaryDirectory() as name:
        os.environ.update(cluster.environment)
        for executors in (1, 2):
            spark = session("benchmark", **{"spark.cores.max": str(executors)})
            started = seconds(spark.range(2).count)
            jobs = [*windows(spark, Path(name)), *merges(spark, Path(name)), *counts(spark)]
            rows += [{"executors": executors, **row} for row in jobs]
            rows.append({"executors": executors, "job": "first job", "seconds": started})
            spark.stop()
    by_job = {(row["executors"], key(row)): row["seconds"] for row in rows}
    for row in rows:
        one, two = (by_job[executors, key(row)] for executors in (1, 2))
        if "rows" in row:
            row["ns_a_row"] = round(1e9 * row["seconds"] / row["rows"], 1)
        row["times_one_executor"] = round(one / row["seconds"], 2)
        if row["executors"] == 2:
            fixed, shared = 2 * two - one, 2 * (one - two)
            projected = {str(p): round(fixed + shared / p, 3) for p in PROJECTED}
            row["projected_seconds"] = projected if fixed >= 0 <= shared else None
    return {"samples": SAMPLES, "tuples": TUPLES, "events": EVENTS, "jobs": rows}


def key(row: dict) -> tuple:
    """The fields that identify a job."""
    return tuple(value for name, value in row.items() if name not in ("executors", "seconds"))


def seconds(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    call()
    return round(time.perf_counter() - began, 3)


def best(call: Callable[[int], object]) -> float:
    """Seconds of the shortest run after the first."""
    return min([seconds(lambda i=i: call(i)) for i in range(REPEATS + 1)][1:])


def windows(spark: SparkSession, place: Path) -> list[dict]:
    """D1 without failures: windows of a log in two micro-batches."""
    jobs = []
    for varied, sensors, width, workers in D1:
        model, requirement = block_model(sensors, sensors // 6), Requirement(0.1, 0.05)
        steps = SAMPLES // sensors
        log = write_samples(spark, model, steps, 1, place / f"log-{sensors}")
        means = model.aggregate(width)
        assignment = assign_spread(means, workers, requirement)
        query = Query(log, Windows(width, width), means, assignment, requirement, steps // 2)

        def stream(index: int, query: Query = query) -> None:
            with tempfile.TemporaryDirectory(dir=place) as at:
                recover_stream(spark, query, Path(at) / str(index))

        about = {"sensors": sensors, "width": width, "workers": workers}
        rows = steps * sensors
        jobs.append({"job": "D1", "varied": varied, "rows": rows, **about, "seconds": best(stream)})
    return jobs


def merges(spark: SparkSession, place: Path) -> list[dict]:
    """D3: sums of a log by window and key."""
    jobs = []
    for varied, keys, partitions in D3:
        stream = TupleStream(TUPLES, keys, 1.2)
        log = write_tuples(spark, stream, partitions, place / f"tuples-{keys}-{partitions}")
        rules = Rules(Windows(stream.ticks, stream.ticks))
        for strategy in ("late local",):
            about = {"strategy": strategy, "keys": keys, "partitions": partitions}

            def merge(_: int, log=log, rules=rules, strategy=strategy, tasks=partitions) -> None:  # noqa: ANN001
                merge_log(spark, log, rules, strategy, tasks)

            jobs.append(
                {"job": "D3", "varied": varied, "rows": TUPLES, **about, "seconds": best(merge)}
            )
    return jobs


def counts(spark: SparkSession) -> list[dict]:
    """D5: ones among drawn events, by one histogram per partition, merged."""
    query, jobs = HistogramQuery(EVENTS // 10, 0.01, timed=True), []
    for tasks in (2, 8):
        reader = Drawn(BitStream(0.3, None, 1), EVENTS, tasks)

        def count(_: int, reader: Drawn = reader) -> None:
            aggregate(reader.frame(spark), query, reader)

        about = {"partitions": tasks}
        labels = {"job": "D5", "varied": "partitions", "rows": EVENTS}
        jobs.append(labels | about | {"seconds": best(count)})
    return jobs
