"""D5 figures 3 and 4: the same thirteen events, step by step. Figures 6 and 7: the operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import run
from aftlib.exponential_histogram.ring import BitRing, exact_counts, relative
from aftlib.exponential_histogram.source import BitEvents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW, EPSILON = 7, 0.5
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
    """The document's events played one by one: t, event and `same`, if its table says the same.

    buckets: tuple of (timestamp, count), newest first; total; query: the article's estimate; exact;
    estimate: the sound one; error: of the query, relative.
    """
    histogram, ring = ExponentialHistogram(WINDOW, EPSILON), BitRing(WINDOW)
    found = []
    for event in EVENTS:
        histogram.update(event)
        ring.update(event)
        query, buckets = histogram.article_estimate(), tuple(histogram.buckets)
        found.append((event, buckets, histogram.total, query, ring.count, histogram.estimate()))
    columns = ["buckets", "total", "query", "exact"]
    table = pd.DataFrame(found, columns=["event", *columns, "estimate"])
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
    """The article's operator (figs. 6 and 7) as a streaming query: one answer an event.

    In order of key and at; estimate, exact; error: relative.
    """
    query, parts = HistogramQuery(window, epsilon), min(events.keys, 4)
    found = run(spark, events.stream(spark), query, directory, parts)
    table = found.toPandas().sort_values(["key", "at"], ignore_index=True)
    counts = [exact_counts(stream.draw(events.stop), window) for stream in events.streams]
    exact = np.concatenate(counts)
    return table.assign(exact=exact, error=relative(table["estimate"].to_numpy(), exact))
