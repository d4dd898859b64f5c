"""Costs of a histogram: memory, events per second, D5 figure 5's run, and merging on Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aftlib.exponential_histogram.bits import BitRing, BitStream, relative
from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import aggregate, count
from aftlib.exponential_histogram.source import Drawn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT_RATE = 1e5
"""Events per second that the document reports for 2012."""


def sizes(epsilons: Sequence[float], windows: Sequence[int]) -> pd.DataFrame:
    """Memory of windows full of ones.

    Columns epsilon, window, buckets, bytes (of `to_bytes`), ring_bytes, bound. The bound on the
    number of buckets is (k/2 + 1)(log₂(2N/k + 1) + 1) + 1 with k = ⌈1/ε⌉.
    """
    rows = []
    for window, epsilon in product(windows, epsilons):
        histogram = filled(window, epsilon)
        half = np.ceil(np.ceil(1 / epsilon) / 2)
        bound = (half + 1) * (np.log2(window / half + 1) + 1) + 1
        weighed = len(histogram.buckets), len(histogram.to_bytes()), -(-window // 8)
        rows.append((epsilon, window, *weighed, bound))
    columns = ["epsilon", "window", "buckets", "bytes", "ring_bytes", "bound"]
    return pd.DataFrame(rows, columns=columns)


def filled(window: int, epsilon: float) -> ExponentialHistogram:
    """Return a histogram of a window full of ones; all but the last 10⁶ are added as one event."""
    histogram = ExponentialHistogram(window, epsilon, timed=True, values="integers")
    singles = min(window, 10**6)
    if window > singles:
        histogram.update([window - singles], [0])
    histogram.update(np.ones(singles, np.int64), np.arange(1, singles + 1))
    return histogram


def break_even(table: pd.DataFrame) -> pd.DataFrame:
    """Return, for each ε, the least window with which the histogram is smaller than the ring."""
    smaller = table[table["bytes"] < table["ring_bytes"]].groupby("epsilon")["window"].min()
    return smaller.reindex(sorted(table["epsilon"].unique())).rename("window").reset_index()


def long_run(
    stream: BitStream, *, events: int, window: int, epsilon: float, chunk: int, points: int = 200
) -> pd.DataFrame:
    """Feed a long stream to a histogram in chunks; one row per point of time (D5 fig. 5).

    Columns at: events so far; estimate, article, exact, buckets, bytes: at that point; error,
    article_error: relative; seconds: spent on updates so far.
    """
    histogram, ring = ExponentialHistogram(window, epsilon), BitRing(window)
    histogram.update(np.empty(0, bool))  # compiled before the clock starts
    every = max(chunk, events // points // chunk * chunk)
    rows, seconds = [], 0.0
    for first in range(0, events, chunk):
        part = stream.draw(min(chunk, events - first), first)
        begin = time.perf_counter()
        histogram.update(part)
        seconds += time.perf_counter() - begin
        ring.update(part)
        at = first + part.size
        if at % every == 0 or at == events:
            answers = histogram.estimate(), histogram.article_estimate(), ring.count
            weighed = len(histogram.buckets), len(histogram.to_bytes())
            rows.append((at, *answers, *weighed, seconds))
    columns = ["at", "estimate", "article", "exact", "buckets", "bytes", "seconds"]
    table = pd.DataFrame(rows, columns=columns)
    exact = table["exact"].to_numpy()
    table["error"] = relative(table["estimate"].to_numpy(), exact)
    table["article_error"] = relative(table["article"].to_numpy(), exact)
    return table


def rates(
    window: int, epsilon: float, chunks: Sequence[int], seconds: float, seed: int
) -> pd.DataFrame:
    """Events per second on one core, chunks in memory: counting, the exact ring, the histogram.

    `chunks` are numbers of events per call; 1 means one Python call per event. A chunk size is
    timed for about `seconds`, in rounds over all methods, and the best round counts. Columns chunk,
    rounds; count_nonzero, ring, update, estimates: events per second.
    """
    records = []
    for chunk in chunks:
        size = min(max(chunk, 20_000), 50 * chunk) if chunk > 1 else 20_000
        events = BitStream(0.5, None, seed).draw(size)
        rows: list[Any] = [events[i : i + chunk] for i in range(0, size, chunk)]
        singles = events.tolist() if chunk == 1 else rows
        updating, answering = (ExponentialHistogram(window, epsilon) for _ in "12")
        for histogram in (updating, answering):
            histogram.update(BitStream(0.5).draw(2 * window))
        ring = BitRing(window)

        def answered(event: int, answering: ExponentialHistogram = answering) -> None:
            answering.update(event)
            answering.estimate()

        answer = answered if chunk == 1 else answering.estimates
        tasks: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
            "count_nonzero": (np.count_nonzero, rows),
            "ring": (ring.update, singles),
            "update": (updating.update, singles),
            "estimates": (answer, singles),
        }
        best = dict.fromkeys(tasks, float("inf"))
        end, rounds = time.perf_counter() + seconds, 0
        while rounds < 2 or time.perf_counter() < end:
            for name, (task, pieces) in tasks.items():
                begin = time.perf_counter()
                for piece in pieces:
                    task(piece)
                best[name] = min(best[name], time.perf_counter() - begin)
            rounds += 1
        row = {"chunk": chunk, "rounds": rounds}
        records.append(row | {name: size / taken for name, taken in best.items()})
    return pd.DataFrame(records)


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
    """Time histograms of partitions with their merge, against only generating and counting events.

    Columns events, partitions; count_s, histogram_s: best of the rounds; ratio of these; estimate,
    exact: of the last `window` time units; error, bound: relative; buckets.
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
    rows = []
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
        rows.append(row | {"bound": histogram.error_bound, "buckets": len(histogram.buckets)})
    return pd.DataFrame(rows)
