"""The histogram on Spark: the article's operator demo, and a parallel aggregate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.operator import HistogramQuery, run
from aftlib.exponential_histogram.parallel import Drawn, aggregate, count
from aftlib.exponential_histogram.ring import exact_counts, relative
from aftlib.exponential_histogram.source import BitEvents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def operator_demo(
    spark: SparkSession, directory: Path, events: BitEvents, *, window: int, epsilon: float
) -> pd.DataFrame:
    """The article's operator (figs. 6 and 7) as a streaming query: one answer an event.

    In order of key and at; estimate, exact; error: relative.
    """
    query, parts = HistogramQuery(window, epsilon), min(events.keys, 4)
    found = run(spark, events.stream(spark), query, directory, parts)
    table = found.toPandas().sort_values(["key", "at"], ignore_index=True)
    counts = [exact_counts(stream.draw(events.stop), window) for stream in events.streams]
    exact = np.concatenate(counts)
    return table.assign(exact=exact, error=relative(table["estimate"].to_numpy(), exact))


def parallel(
    spark: SparkSession,
    sizes: Sequence[int],
    *,
    window: int,
    epsilon: float,
    share: float,
    seed: int,
    tasks: int,
    rounds: int = 3,
) -> pd.DataFrame:
    """Count streams in partitions that merge, beside merely drawing and counting their events.

    events, partitions; count_s, histogram_s: the best of the rounds; ratio; estimate, exact: of the
    last `window` time units; error, bound: relative; buckets.
    """

    def timed(work: Callable[[], Any]) -> tuple[float, Any]:
        """Least seconds of the rounds, and the last result."""
        seconds = []
        for _ in range(rounds):
            begin = time.perf_counter()
            result = work()
            seconds.append(time.perf_counter() - begin)
        return min(seconds), result

    query, stream = HistogramQuery(window, epsilon, timed=True), BitStream(share, None, seed)
    found = []
    for size in sizes:
        drawn = Drawn(stream, size, tasks)
        frame = drawn.frame(spark)
        aggregate(frame, query, drawn)  # starts the workers
        count_s, (events, _) = timed(partial(count, frame, drawn))
        histogram_s, merged = timed(partial(aggregate, frame, query, drawn))
        histogram, exact = merged.histogram, stream.draw(min(window, size), max(size - window, 0))
        row = {"events": events, "partitions": merged.partitions}
        row |= {"count_s": count_s, "histogram_s": histogram_s, "ratio": histogram_s / count_s}
        row |= {"estimate": histogram.estimate(), "exact": int(exact.sum())}
        row["error"] = float(relative(np.array(row["estimate"]), exact.sum()))
        found.append(row | {"bound": histogram.error_bound, "buckets": len(histogram.buckets)})
    return pd.DataFrame(found)
