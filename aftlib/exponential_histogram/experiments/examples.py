"""D5 figures 3 and 4: the same thirteen events, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.ring import BitRing, relative

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


def steps(
    events: Sequence[int] = EVENTS, window: int = WINDOW, epsilon: float = EPSILON
) -> pd.DataFrame:
    """Play events one by one.

    Returns
    -------
    DataFrame
        t, event, buckets: tuple of (timestamp, count), newest first; total, query: the article's
        estimate; exact; estimate: the sound one.
    """
    histogram, ring = ExponentialHistogram(window, epsilon), BitRing(window)
    found = []
    for t, event in enumerate(events, 1):
        histogram.update(event)
        ring.update([event])
        found.append(
            {
                "t": t,
                "event": event,
                "buckets": tuple(histogram.buckets),
                "total": histogram.total,
                "query": histogram.article_estimate(),
                "exact": ring.count,
                "estimate": histogram.estimate(),
            }
        )
    return pd.DataFrame(found)


def figure_3() -> pd.DataFrame:
    """The document's table beside what the library gives: a row an event, `same` if all agree."""
    table = steps()
    columns = ["buckets", "total", "query", "exact"]
    printed = pd.DataFrame(FIGURE_3, columns=columns)
    same = (table[columns] == printed).all(axis=1)
    query, exact = table["query"].to_numpy(), table["exact"].to_numpy()
    return table.assign(error=relative(query, exact), same=same)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its buckets as the document writes them."""
    texts = [" ".join(f"({at},{count})" for at, count in row) or "–" for row in table["buckets"]]
    return table.assign(buckets=texts)
