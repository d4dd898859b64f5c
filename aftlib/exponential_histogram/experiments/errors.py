"""The document's example step by step, and errors of both estimates against the guaranteed ε."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aftlib.exponential_histogram.bits import BitRing, BitStream, exact_counts, relative
from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import run
from aftlib.exponential_histogram.source import BitEvents
from aftlib.exponential_histogram.variance import VarianceHistogram
from aftlib.spark.sweep import sweep as in_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURE_3_WINDOW, EPSILON = 7, 0.5
EVENTS = (0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0)
_ONE = ((2, 1),)
_FOUR = ((9, 1), (8, 2), (6, 4))
#: Buckets (newest first), total, query and exact count after each event, as the document prints.
FIGURE_3: tuple[tuple[tuple[tuple[int, int], ...], int, int, int], ...] = (
    ((), 0, 0, 0),
    (_ONE, 1, 1, 1),
    (((3, 1), *_ONE), 2, 2, 2),
    (((3, 1), *_ONE), 2, 2, 2),
    (((5, 1), (3, 2)), 3, 2, 3),
    (((6, 1), (5, 1), (3, 2)), 4, 3, 4),
    (((7, 1), (6, 2), (3, 2)), 5, 4, 5),
    (((8, 1), (7, 1), (6, 2), (3, 2)), 6, 5, 6),
    (_FOUR, 7, 5, 6),
    (_FOUR, 7, 5, 5),
    (_FOUR, 7, 5, 5),
    (_FOUR, 7, 5, 4),
    (((9, 1), (8, 2)), 3, 2, 3),
)


def figure_3() -> pd.DataFrame:
    """Add the document's events one by one.

    Columns t; event; buckets: tuple of (timestamp, count), newest first; total; query: the
    article's estimate; exact; estimate: the sound one; error: of the query, relative; same: whether
    the document's table agrees.
    """
    histogram, ring = ExponentialHistogram(FIGURE_3_WINDOW, EPSILON), BitRing(FIGURE_3_WINDOW)
    rows = []
    for event in EVENTS:
        histogram.update(event)
        ring.update(event)
        query, buckets = histogram.article_estimate(), tuple(histogram.buckets)
        rows.append((event, buckets, histogram.total, query, ring.count, histogram.estimate()))
    columns = ["buckets", "total", "query", "exact"]
    table = pd.DataFrame(rows, columns=["event", *columns, "estimate"])
    table.insert(0, "t", range(1, len(table) + 1))
    error = relative(table["query"].to_numpy(), table["exact"].to_numpy())
    same = (table[columns] == pd.DataFrame(FIGURE_3, columns=columns)).all(axis=1)
    return table.assign(error=error, same=same)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its buckets as the document writes them."""
    texts = [" ".join(f"({at},{count})" for at, count in row) or "–" for row in table["buckets"]]
    return table.assign(buckets=texts)


def operator_demo(
    spark: SparkSession, directory: Path, events: BitEvents, *, window: int, epsilon: float
) -> pd.DataFrame:
    """The article's operator (figs. 6 and 7) as a streaming query: one answer per event.

    Columns key, at, estimate, exact; error: relative. Rows are in order of key and at.
    """
    query, parts = HistogramQuery(window, epsilon), min(events.keys, 4)
    answers = run(spark, events.stream(spark), query, directory, parts)
    table = answers.toPandas().sort_values(["key", "at"], ignore_index=True)
    counts = [exact_counts(stream.draw(events.stop), window) for stream in events.streams]
    exact = np.concatenate(counts)
    return table.assign(exact=exact, error=relative(table["estimate"].to_numpy(), exact))


CHUNK = 2**20
OTHERS = ("sound", "more")
_AXES = ("epsilon", "window", "share", "burst")
#: Factor by which rounding may enlarge an error.
_ROUNDING = 1 + 1e-12


def measure(events: NDArray[np.bool_], window: int, epsilon: float) -> dict[str, Any]:
    """Compare every answer of both estimates with the exact count.

    Return events; least: fewest ones in a full window; article, sound: largest relative error over
    full windows; article_young, sound_young: while the stream is shorter than the window;
    article_missed, sound_missed: number of answers off by more than ε, over the whole stream;
    buckets: most at a chunk's end.
    """
    ones = np.concatenate((np.zeros(1, np.int64), np.cumsum(events, dtype=np.int64)))
    histograms = {name: ExponentialHistogram(window, epsilon) for name in ("article", "sound")}
    rows = []
    for first in range(0, events.size, CHUNK):
        part = events[first : first + CHUNK]
        after = np.arange(first + 1, first + part.size + 1)
        exact = ones[after] - ones[np.maximum(after - window, 0)]
        young = min(max(window - 1 - first, 0), part.size)
        row: dict[str, Any] = {}
        for name, histogram in histograms.items():
            error = relative(histogram.estimates(part, article=name == "article"), exact)
            row |= {name: error[young:].max(initial=0), "buckets": len(histogram.buckets)}
            row[f"{name}_young"] = error[:young].max(initial=0)
            row[f"{name}_missed"] = (error > epsilon * _ROUNDING).sum()
        rows.append(row)
    table = pd.DataFrame(rows)
    missed = ["article_missed", "sound_missed"]
    least = int((ones[window:] - ones[:-window]).min())
    most, total = table.drop(columns=missed).max(), table[missed].sum()
    return {"events": events.size, "least": least, **dict(most), **dict(total)}


def sweep(
    spark: SparkSession,
    *,
    epsilons: Sequence[float],
    windows: Sequence[int],
    shares: Sequence[float],
    bursts: Sequence[float],
    windows_of_events: int,
    seed: int,
) -> pd.DataFrame:
    """Largest relative errors over a grid of ε, N, P(1) and mean lengths of bursts.

    One Spark job measures all points of the grid. A burst of 0 means independent events. A stream
    is `windows_of_events` windows long, and at least 131,072 events. One row per point: epsilon,
    window, share, burst, and the results of `measure`.
    """
    from aftlib.exponential_histogram import kernels  # noqa: F401 - compiled before the tasks start

    def one(point: tuple[float, int, float, float]) -> dict[str, Any]:
        epsilon, window, share, burst = point
        stream = BitStream(share, burst or None, seed)
        size = max(windows_of_events * window, CHUNK // 8)
        return dict(zip(_AXES, point, strict=True)) | measure(stream.draw(size), window, epsilon)

    # long streams first, so that none of them runs alone at the end
    axes = ([float(e) for e in epsilons], list(windows), shares, [float(b) for b in bursts])
    points = sorted(product(*axes), key=lambda point: -point[1])
    table = pd.DataFrame(in_parallel(spark, one, points))
    return table.sort_values(list(_AXES), ignore_index=True)


def few_ones(epsilons: Sequence[float], most: int = 600) -> pd.DataFrame:
    """Errors with 1 … `most` ones in the window, after zeros that fill it; no bucket expires.

    Columns epsilon, ones; article, sound: the estimates; more: the article's estimate if it kept up
    to k + 1 buckets of count 1; article_error, sound_error, more_error: relative; buckets,
    more_buckets: numbers of buckets of the article and of `more`.
    """
    exact, tables = np.arange(1, most + 1), []
    for epsilon in epsilons:
        table = pd.DataFrame({"epsilon": epsilon, "ones": exact})
        for name in ("article", "sound"):
            histogram = ExponentialHistogram(2 * most, epsilon)
            histogram.update(np.zeros(2 * most, bool))
            table[name] = histogram.estimates(np.ones(most, bool), article=name == "article")
        k = math.ceil(1 / epsilon)
        larger = math.ceil(k / 2) + 1
        table["buckets"] = count_buckets(most, larger, larger)[:, 1]
        last, table["more_buckets"] = count_buckets(most, k + 1, larger).T
        table["more"] = np.ceil(exact - last / 2)
        for name in ("article", *OTHERS):
            table[f"{name}_error"] = relative(table[name].to_numpy(), exact)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def count_buckets(most: int, ones: int, larger: int) -> NDArray[np.int64]:
    """Count of the oldest bucket and number of buckets after 1 … `most` ones, shape (most, 2).

    No event expires. Up to `ones` buckets of count 1 are kept and up to `larger` of each larger
    count; with one more the two oldest merge.

    >>> count_buckets(4, ones=2, larger=2).tolist()
    [[1, 1], [1, 2], [2, 2], [2, 3]]
    """
    powers, rows = range(most.bit_length()), []
    counts = [0] * (len(powers) + 1)
    for _ in range(most):
        counts[0] += 1
        for power in powers:  # ascending: merges cascade
            if counts[power] > (larger if power else ones):
                counts[power] -= 2
                counts[power + 1] += 1
        rows.append((max(2**power for power in powers if counts[power]), sum(counts)))
    return np.array(rows)


def counterexamples(table: pd.DataFrame) -> pd.DataFrame:
    """For each ε: fewest ones with which the article's error exceeds ε, and largest errors.

    `table` is that of `few_ones`. Columns epsilon, k; ones: the fewest, missing if none break ε;
    article, sound, article_error: with these ones; worst, worst_ones: the article's largest error,
    and its ones; sound_worst, more_worst: largest errors of the others; buckets, more_buckets: with
    the most ones.
    """
    rows = []
    for _, each in table.groupby("epsilon"):
        epsilon, errors = float(each["epsilon"].iloc[0]), each["article_error"].to_numpy()
        broken = each[errors > epsilon * _ROUNDING]
        columns = ("ones", "article", "sound", "article_error")
        row: dict[str, Any] = {"epsilon": epsilon, "k": math.ceil(1 / epsilon)}
        row |= {name: broken[name].iloc[0] if len(broken) else None for name in columns}
        row |= {"worst": errors.max(), "worst_ones": int(each["ones"].iloc[int(errors.argmax())])}
        row |= {f"{name}_worst": each[f"{name}_error"].max() for name in OTHERS}
        rows.append(row | each[["buckets", "more_buckets"]].iloc[-1].to_dict())
    return pd.DataFrame(rows)


def error_curve(
    stream: BitStream, events: int, window: int, epsilon: float, points: int = 2000
) -> pd.DataFrame:
    """Largest relative errors of both estimates in `points` segments of a stream.

    Columns at: end of the segment; sound, article.
    """
    bits = stream.draw(events)
    exact = exact_counts(bits, window)
    edges = np.linspace(0, events, min(points, events) + 1).astype(int)
    table = pd.DataFrame({"at": edges[1:]})
    for name in ("sound", "article"):
        answers = ExponentialHistogram(window, epsilon).estimates(bits, article=name == "article")
        table[name] = np.maximum.reduceat(relative(answers, exact), edges[:-1])
    return table


def variances(epsilons: Sequence[float], window: int, seed: int, looks: int = 200) -> pd.DataFrame:
    """Errors and buckets of the variance histogram on three streams, against the exact variance.

    "noise" is normal, "walk" its running sum. The mean of "steps" jumps by ten after every third of
    a window, so that the mean of the oldest bucket is often far from that of the rest. A stream is
    four windows long. After the first window the estimate is compared `looks` times.

    Columns epsilon, stream; error: largest relative error; buckets: most.
    """
    noise = np.random.default_rng(seed).normal(size=4 * window)
    jumps = 10.0 * (np.arange(noise.size) // max(window // 3, 1) % 2)
    streams = {"noise": noise, "walk": np.cumsum(noise), "steps": noise + jumps}
    ends = np.unique(np.linspace(window, noise.size, looks + 1).astype(int))
    rows = []
    for (name, values), epsilon in product(streams.items(), epsilons):
        histogram, start, error, buckets = VarianceHistogram(window, epsilon), 0, 0.0, 0
        for end in ends.tolist():
            histogram.update(values[start:end])
            exact, start = float(values[end - window : end].var()), end
            # the variance of one value is 0
            off = abs(histogram.estimate() - exact)
            error = max(error, off / exact if exact else off)
            buckets = max(buckets, len(histogram.buckets))
        rows.append({"epsilon": epsilon, "stream": name, "error": error, "buckets": buckets})
    return pd.DataFrame(rows)
