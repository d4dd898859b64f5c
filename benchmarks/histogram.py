"""Speed of the exponential histogram as ratios within one run, and of its work on Spark.

    python -m benchmarks histogram

On one core, data in memory; every figure is the best of alternating rounds, so that a slow moment
of the machine hits both sides of a ratio. `dgim` (a package for the same task) is compared if it is
installed. `wanted` compares each ratio with the project's target.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from aftlib.exponential_histogram import ExponentialHistogram, VarianceHistogram
from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.experiments import costs
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import aggregate
from aftlib.exponential_histogram.source import Drawn
from aftlib.spark.session import session
from benchmarks import histogram_stream
from benchmarks.timing import say

WINDOW, EPSILON = 10**6, 0.01  # D5, figure 5
CHUNKS = (10**3, 10**4, 10**5, 10**6, 10**7)


def run(seconds: float = 2.0, spark_events: int = 10**8) -> dict[str, Any]:
    """All figures of this benchmark.

    Parameters
    ----------
    seconds : float
        For each timed task.
    spark_events : int
        Events of the aggregate on Spark.
    """
    events = np.random.default_rng(2).random(10**7) < 0.5
    result: dict[str, Any] = {"window": WINDOW, "epsilon": EPSILON}
    for chunk in CHUNKS:
        say(f"chunks of {chunk}")
        result[f"chunks of {chunk}"] = bulk(events, chunk, seconds)
    say("single events")
    result["single events"] = singles(events[:100_000].tolist(), seconds)
    say("others")
    result["others"] = others(events[: 10**6], seconds)
    say(f"{spark_events} events on Spark")
    result["spark"] = on_spark(spark_events)
    return result | {"wanted": wanted(result)}


def on_spark(events: int) -> dict[str, Any]:
    """Drawing and counting events in tasks, beside drawing them into histograms that merge."""
    spark = session("benchmark")
    frame = costs.parallel(
        spark, [events], window=WINDOW, epsilon=EPSILON, share=0.5, seed=1, tasks=8, rounds=5
    )
    record = json.loads(frame.to_json(orient="records"))[0]
    by_keys = histogram_stream.by_keys(spark, {1: 10**6, 10**5: 5})
    return record | {"rows": rows(spark, events // 10), "stream": by_keys}


def rows(spark: SparkSession, events: int) -> dict[str, float]:
    """The same with one Spark row per event; rows go to the JVM and back before they are counted.

    They are compared with Spark's own count and sum, for which rows only go to the JVM. Rows that
    are read inside the task do not go there either.
    """
    drawn = Drawn(BitStream(0.5, None, 1), events, 8)

    def as_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for at, event in drawn(batches):
            yield pa.RecordBatch.from_arrays([pa.array(at), pa.array(event)], names=["at", "event"])

    frame = drawn.frame(spark).mapInArrow(as_rows, "at long, event boolean")
    query = HistogramQuery(WINDOW, EPSILON, timed=True)
    sums = F.sum(F.col("event").cast("long")), F.max("at")
    tasks = {
        "count": frame.count,
        "sum": lambda: frame.agg(*sums).collect(),  # a new frame: Spark caches shuffles
        "histogram": lambda: aggregate(frame, query),
        "inside": lambda: aggregate(drawn.frame(spark), query, drawn),
    }
    best = seconds_each(tasks, 1.0)
    return {"events": events, **{f"{name}_s": taken for name, taken in best.items()}} | {
        "histogram / count": best["histogram"] / best["count"],
        "histogram / sum": best["histogram"] / best["sum"],
        "read inside the task / sum": best["inside"] / best["sum"],
    }


def wanted(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Target of each ratio or rate, the measured value, and whether it meets the target."""
    single = result["single events"]
    at = {chunk: result[f"chunks of {chunk}"] for chunk in CHUNKS}
    one = single["update, events/s"]
    least = {
        "update at 10**6 / count_nonzero": (at[10**6]["update / count_nonzero"], 0.9),
        "update at 10**3 / one by one": (at[10**3]["update, events/s"] / one, 1),
        "estimates at 10**5, events/s": (at[10**5]["estimates, events/s"], 2e8),
        "estimates at 10**6, events/s": (at[10**6]["estimates, events/s"], 2e8),
        "one by one, events/s": (one, 1e6),
    }
    many = result["spark"]["stream"]["100000 keys, 5 events each"]
    least["stream of 10**5 keys, events/s"] = (many["histogram, events/s"], 1e5)
    if "dgim, events/s" in single:
        ratio = at[10**6]["update, events/s"] / single["dgim, events/s"]
        least["update at 10**6 / dgim"] = (ratio, 1000)
    table = {n: {"measured": m, "at least": w, "met": m >= w} for n, (m, w) in least.items()}
    spark = result["spark"]
    most = {
        "Spark: histograms / draw and count": (spark["ratio"], 2),
        "one row an event / Spark's sum": (spark["rows"]["histogram / sum"], 0.6),
        "read inside the task / Spark's sum": (spark["rows"]["read inside the task / sum"], 0.6),
    }
    return table | {n: {"measured": m, "at most": w, "met": m <= w} for n, (m, w) in most.items()}


def seconds_each(tasks: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Best time of each task, over alternating rounds of at least `seconds` in all."""
    best = dict.fromkeys(tasks, float("inf"))
    end, rounds = time.perf_counter() + seconds * len(tasks), 0
    while rounds < 2 or time.perf_counter() < end:
        rounds += 1
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def warmed(**kwargs: Any) -> ExponentialHistogram:
    """A histogram whose window is full, with everything compiled."""
    histogram = ExponentialHistogram(WINDOW, EPSILON, **kwargs)
    events = np.random.default_rng(0).random(2 * WINDOW) < 0.5
    histogram.update(events, np.arange(events.size) if kwargs.get("timed") else None)
    return histogram


def repeated(task: Callable[[np.ndarray], Any], rows: list[np.ndarray]) -> Callable[[], None]:
    """Apply a task to each of many rows, so that short ones can be timed."""

    def run() -> None:
        for row in rows:
            task(row)

    return run


def bulk(events: np.ndarray, chunk: int, seconds: float) -> dict[str, float]:
    """Updates and answers in chunks, against counting the non-zeros of the same chunks."""
    size = max(1, min(events.size, 50 * chunk) // chunk)
    rows = [events[i * chunk : (i + 1) * chunk] for i in range(size)]
    histogram, answering = warmed(), warmed()
    best = seconds_each(
        {
            "count": repeated(np.count_nonzero, rows),
            "update": repeated(histogram.update, rows),
            "estimates": repeated(answering.estimates, rows),
        },
        seconds,
    )
    done = size * chunk
    return {
        "count_nonzero, events/s": done / best["count"],
        "update, events/s": done / best["update"],
        "estimates, events/s": done / best["estimates"],
        "update / count_nonzero": best["count"] / best["update"],
    }


def singles(events: list[bool], seconds: float) -> dict[str, float]:
    """One event at a time from Python, and the package `dgim` likewise."""
    histogram, answering = warmed(), warmed()

    def update() -> None:
        for event in events:
            histogram.update(event)

    def answer() -> None:
        for event in events:
            answering.update(event)
            answering.estimate()

    tasks = {"update": update, "update + estimate": answer}
    try:
        theirs = importlib.import_module("dgim").Dgim(WINDOW, EPSILON)
    except ImportError:
        theirs = None
    if theirs is not None:
        tasks["dgim"] = repeated(theirs.update, events)  # type: ignore[arg-type]
    best = seconds_each(tasks, seconds)
    return {f"{name}, events/s": len(events) / taken for name, taken in best.items()}


def others(events: np.ndarray, seconds: float) -> dict[str, float]:
    """Time windows, sums, merging, bytes and variance."""
    timed, sums, moments = (
        warmed(timed=True),
        warmed(values="integers"),
        VarianceHistogram(10**5, 0.1),
    )
    reals = np.random.default_rng(1).normal(size=10**6)
    numbers = np.random.default_rng(1).integers(0, 1000, events.size)
    steps = np.arange(1, events.size + 1)
    data = warmed(timed=True).to_bytes()
    rebuilt = ExponentialHistogram.from_bytes

    def time_window() -> None:
        timed.update(events, steps + (timed.now or 0))

    best = seconds_each(
        {
            "time window": time_window,
            "sum": lambda: sums.update(numbers),
            "variance": lambda: moments.update(reals),
            "merge of two": lambda: rebuilt(data).merge(rebuilt(data)),
            "bytes there and back": lambda: rebuilt(data).to_bytes(),
        },
        seconds,
    )
    sizes = {"time window": events.size, "sum": events.size, "variance": reals.size}
    rates = {f"{name}, events/s": size / best[name] for name, size in sizes.items()}
    return rates | {f"{name}, ms": 1e3 * t for name, t in best.items() if name not in sizes}
