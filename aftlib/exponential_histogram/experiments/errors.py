"""Relative errors: the article's estimate and the sound one against the promised ε."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.experiments.ring import relative
from aftlib.exponential_histogram.operator import warm
from aftlib.spark.sweep import sweep as in_parallel

INDEPENDENT = 0.0
"""Burst length that stands for independent events, in a frame."""
CHUNK = 2**20
_AXES = ("epsilon", "window", "share", "burst")


def _point(
    point: tuple[float, int, float, float], windows_of_events: int, seed: int
) -> dict[str, Any]:
    """One point of the sweep, in a task."""
    epsilon, window, share, burst = point
    stream = BitStream(share, None if burst == INDEPENDENT else burst, seed)
    size = max(windows_of_events * window, CHUNK // 8)
    return dict(zip(_AXES, point, strict=True)) | measure(stream.draw(size), window, epsilon)


def measure(events: NDArray[np.bool_], window: int, epsilon: float) -> dict[str, Any]:
    """Play a stream and compare every answer with the exact count.

    Returns
    -------
    dict
        events; least: fewest ones in a full window; article, sound: largest relative error over
        full windows, and article_young, sound_young while the stream is younger than the window;
        article_missed, sound_missed: answers off by more than ε, of both; buckets: most at a
        chunk's end.
    """
    made = {name: ExponentialHistogram(window, epsilon) for name in ("article", "sound")}
    ones = np.concatenate((np.zeros(1, np.int64), np.cumsum(events, dtype=np.int64)))
    table = pd.DataFrame(
        [
            _compared(made, events[first : first + CHUNK], ones, first, window, epsilon)
            for first in range(0, events.size, CHUNK)
        ]
    )
    most = ("article", "sound", "article_young", "sound_young", "buckets")
    return {
        "events": events.size,
        "least": int((ones[window:] - ones[:-window]).min()),
        **{name: table[name].max() for name in most},
        **{name: table[name].sum() for name in ("article_missed", "sound_missed")},
    }


def _compared(
    made: dict[str, ExponentialHistogram],
    part: NDArray[np.bool_],
    ones: NDArray[np.int64],
    first: int,
    window: int,
    epsilon: float,
) -> dict[str, Any]:
    """Take a chunk into the histograms, and compare the answers after each of its events."""
    after = np.arange(first + 1, first + part.size + 1)
    exact = ones[after] - ones[np.maximum(after - window, 0)]
    young = min(max(window - 1 - first, 0), part.size)
    row: dict[str, Any] = {}
    for name, histogram in made.items():
        error = relative(histogram.estimates(part, article=name == "article"), exact)
        row |= {
            name: error[young:].max(initial=0),
            f"{name}_young": error[:young].max(initial=0),
            f"{name}_missed": (error > epsilon * (1 + 1e-12)).sum(),
        }
        row["buckets"] = len(histogram.buckets)
    return row


def sweep(
    spark: SparkSession,
    epsilons: Sequence[float],
    windows: Sequence[int],
    shares: Sequence[float],
    bursts: Sequence[float],
    windows_of_events: int,
    seed: int,
) -> pd.DataFrame:
    """Largest relative errors over a grid of ε, N, P(1) and mean lengths of bursts.

    Parameters
    ----------
    spark : SparkSession
        One job; a row of the grid is a unit of work.
    epsilons, windows, shares, bursts : sequence
        The grid; a burst of 0 means independent events.
    windows_of_events : int
        Length of each stream in windows; at least 131,072 events are played.
    seed : int

    Returns
    -------
    DataFrame
        epsilon, window, share, burst, and the columns of `measure`.
    """
    axes = ([float(e) for e in epsilons], list(windows), shares, [float(b) for b in bursts])
    warm()
    # long streams first, so that no task is left with one when the others are through
    points = sorted(product(*axes), key=lambda point: -point[1])
    one = partial(_point, windows_of_events=windows_of_events, seed=seed)
    found = pd.DataFrame(in_parallel(spark, one, points))
    return found.sort_values(list(_AXES), ignore_index=True)


def few_ones(epsilons: Sequence[float], most: int = 600) -> pd.DataFrame:
    """Errors with 1 … `most` ones in the window, all inside, after zeros that fill it.

    Returns
    -------
    DataFrame
        epsilon, ones, article, sound: the answers; article_error, sound_error: relative.
    """
    exact, tables = np.arange(1, most + 1), []
    for epsilon in epsilons:
        answers = {}
        for name in ("article", "sound"):
            histogram = ExponentialHistogram(2 * most, epsilon)
            histogram.update(np.zeros(2 * most, bool))
            answers[name] = histogram.estimates(np.ones(most, bool), article=name == "article")
        errors = {f"{name}_error": relative(found, exact) for name, found in answers.items()}
        tables.append(pd.DataFrame({"epsilon": epsilon, "ones": exact} | answers | errors))
    return pd.concat(tables, ignore_index=True)


def counterexamples(table: pd.DataFrame) -> pd.DataFrame:
    """The fewest ones at which the article's estimate breaks ε, and how far off it gets at most.

    Parameters
    ----------
    table : DataFrame
        Result of `few_ones`.

    Returns
    -------
    DataFrame
        epsilon, k, ones: fewest (missing where there are none), article, sound: the answers there;
        article_error: there; worst, worst_ones: the largest error and where; sound_worst.
    """
    return pd.DataFrame([_smallest(each) for _, each in table.groupby("epsilon")])


def _smallest(each: pd.DataFrame) -> dict[str, Any]:
    """The row of `counterexamples` for one ε."""
    epsilon = float(each["epsilon"].iloc[0])
    errors = each["article_error"].to_numpy()
    broken = each[errors > epsilon * (1 + 1e-12)]
    columns = ("ones", "article", "sound", "article_error")
    first = {name: broken[name].iloc[0] if len(broken) else None for name in columns}
    worst = {"worst": errors.max(), "worst_ones": int(each["ones"].iloc[int(errors.argmax())])}
    sound = {"sound_worst": each["sound_error"].max()}
    return {"epsilon": epsilon, "k": math.ceil(1 / epsilon)} | first | worst | sound
