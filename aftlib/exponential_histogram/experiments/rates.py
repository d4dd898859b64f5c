"""Events a second, and D5 figure 5's run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.experiments.ring import BitRing, exact_counts, relative
from aftlib.exponential_histogram.operator import warm

DOCUMENT_RATE = 1e5
"""Events a second that the document reports, of 2012."""


def long_run(
    stream: BitStream, events: int, window: int, epsilon: float, chunk: int, points: int = 200
) -> pd.DataFrame:
    """Play a long stream in chunks and look at it now and then (D5 fig. 5).

    Returns
    -------
    DataFrame
        at: events so far; estimate, article, exact, buckets, bytes there; error, article_error;
        seconds: of updates alone so far.
    """
    warm()
    histogram, ring, found, seconds = (
        ExponentialHistogram(window, epsilon),
        BitRing(window),
        [],
        0.0,
    )
    every = max(chunk, events // points // chunk * chunk)
    for first in range(0, events, chunk):
        part = stream.draw(min(chunk, events - first), first)
        begin = time.perf_counter()
        histogram.update(part)
        seconds += time.perf_counter() - begin
        ring.update(part)
        at = first + part.size
        if at % every == 0 or at == events:
            found.append(_look(histogram, ring, at) | {"seconds": seconds})
    table = pd.DataFrame(found)
    exact = table["exact"].to_numpy()
    errors = {
        "error": relative(table["estimate"].to_numpy(), exact),
        "article_error": relative(table["article"].to_numpy(), exact),
    }
    return table.assign(**errors)


def _look(histogram: ExponentialHistogram, ring: BitRing, at: int) -> dict[str, float]:
    return {
        "at": at,
        "estimate": histogram.estimate(),
        "article": histogram.article_estimate(),
        "exact": ring.count,
        "buckets": len(histogram.buckets),
        "bytes": len(histogram.to_bytes()),
    }


def rates(
    window: int, epsilon: float, chunks: Sequence[int], seconds: float, seed: int
) -> pd.DataFrame:
    """Events a second on one core, chunks in memory: counting, the exact ring, the histogram.

    Parameters
    ----------
    window, epsilon
        Of the histogram.
    chunks : sequence of int
        Events a call; 1 means one Python call an event.
    seconds : float
        For each chunk size; the best of the alternating rounds in it is kept.
    seed : int

    Returns
    -------
    DataFrame
        chunk, and events a second of count_nonzero, ring, update, estimates.
    """
    warm()
    found = []
    for chunk in chunks:
        size = min(max(chunk, 20_000), 50 * chunk) if chunk > 1 else 20_000
        events = BitStream(0.5, None, seed).draw(size)
        tasks = _tasks(window, epsilon, events, chunk)
        best = _best(tasks, seconds)
        found.append({"chunk": chunk} | {name: size / taken for name, taken in best.items()})
    return pd.DataFrame(found)


def _tasks(
    window: int, epsilon: float, events: NDArray[np.bool_], chunk: int
) -> dict[str, Callable[[], None]]:
    rows: list[Any] = [events[i : i + chunk] for i in range(0, events.size, chunk)]
    singles = events.tolist() if chunk == 1 else rows
    updating, answering = _full(window, epsilon), _full(window, epsilon)
    ring = BitRing(window)

    def answer_singles() -> None:
        for event in singles:
            answering.update(event)
            answering.estimate()

    answer = answer_singles if chunk == 1 else lambda: _each(answering.estimates, rows)
    return {
        "count_nonzero": lambda: _each(np.count_nonzero, rows),
        "ring": lambda: _each(ring.update, singles),
        "update": lambda: _each(updating.update, singles),
        "estimates": answer,
    }


def _full(window: int, epsilon: float) -> ExponentialHistogram:
    histogram = ExponentialHistogram(window, epsilon)
    histogram.update(BitStream(0.5).draw(2 * window))
    return histogram


def _each(task: Callable[[Any], Any], rows: Sequence[Any]) -> None:
    for row in rows:
        task(row)


def _best(tasks: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Least seconds of each task over alternating rounds."""
    best = dict.fromkeys(tasks, float("inf"))
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 2 or time.perf_counter() < end:
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - begin)
        rounds += 1
    return best


def error_curve(
    stream: BitStream, events: int, window: int, epsilon: float, points: int = 2000
) -> pd.DataFrame:
    """Relative error event by event, the largest of each of `points` stretches of the stream.

    Returns
    -------
    DataFrame
        at: last event of a stretch; sound, article.
    """
    bits = stream.draw(events)
    exact = exact_counts(bits, window)
    sound, article = (
        relative(ExponentialHistogram(window, epsilon).estimates(bits, article=which), exact)
        for which in (False, True)
    )
    edges = np.linspace(0, events, min(points, events) + 1).astype(int)
    return pd.DataFrame(
        {
            "at": edges[1:],
            "sound": np.maximum.reduceat(sound, edges[:-1]),
            "article": np.maximum.reduceat(article, edges[:-1]),
        }
    )
