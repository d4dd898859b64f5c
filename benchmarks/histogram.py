"""Speed of the exponential histogram (D5) as ratios within one run: python -m benchmarks histogram.

Updates with arrays are compared with `np.count_nonzero` of the same arrays, and single events with
the package `dgim`, which is left out if it is not installed.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from aftlib import ExponentialHistogram
from benchmarks.timing import best_of

SIZES = (10**6, 10**7)
SINGLE = 300_000
WINDOW, EPSILON = 10**6, 0.01
TURNS = 15


def run() -> dict[str, Any]:
    """Median seconds of what is compared, in turn; ratios above 1 say that ours is the faster."""
    return {f"{size:.0e} events": arrays(size) for size in SIZES} | {"single": single_events()}


def arrays(size: int) -> dict[str, Any]:
    """Seconds of an update, and of counting."""
    bits = np.random.default_rng(1).random(size) < 0.5
    histogram = ExponentialHistogram(WINDOW, EPSILON)
    seconds = in_turn(
        {
            "update": lambda: histogram.update(bits),
            "count_nonzero": lambda: np.count_nonzero(bits),
        }
    )
    ratio = seconds["count_nonzero"] / seconds["update"]
    return {"seconds": seconds, "speed / count_nonzero": ratio}


def single_events() -> dict[str, Any]:
    """Events per second, one event per call."""
    events = (np.random.default_rng(1).random(SINGLE) < 0.5).tolist()
    updates: dict[str, Callable[[bool], Any]] = {}
    updates["ours"] = ExponentialHistogram(WINDOW, EPSILON).update
    with suppress(ImportError):
        updates["dgim"] = importlib.import_module("dgim").Dgim(WINDOW, EPSILON).update

    def loop(update: Callable[[bool], Any]) -> None:
        for event in events:
            update(event)

    seconds = in_turn({name: lambda each=each: loop(each) for name, each in updates.items()})
    return {"events per second": {name: SINGLE / taken for name, taken in seconds.items()}}


def in_turn(work: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each, after one turn that is not counted."""
    turns = [{name: best_of(1, each)[0] for name, each in work.items()} for _ in range(TURNS + 1)]
    return {name: statistics.median(turn[name] for turn in turns[1:]) for name in work}
