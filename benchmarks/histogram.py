"""Speed of the exponential histogram on one core, as ratios within one run; prints JSON.

    python benchmarks/histogram.py [--seconds 1]

Every figure is the best of alternating rounds, so that a slow moment of the machine hits both
sides of a ratio. `dgim` (a package for the same task) is compared if it is installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from aftlib.histogram import ExponentialHistogram, VarianceHistogram

WINDOW, EPSILON = 10**6, 0.01  # D5, figure 5


def seconds_each(tasks: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Best time of each task, over alternating rounds of at least `seconds` in all."""
    best = dict.fromkeys(tasks, float("inf"))
    end = time.perf_counter() + seconds * len(tasks)
    while time.perf_counter() < end:
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


def main() -> None:
    """Run everything and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    seconds = parser.parse_args().seconds
    events = np.random.default_rng(2).random(10**7) < 0.5
    result: dict[str, dict[str, float]] = {"window": WINDOW, "epsilon": EPSILON}  # type: ignore
    for chunk in (10**3, 10**4, 10**5, 10**6, 10**7):
        result[f"chunks of {chunk}"] = bulk(events, chunk, seconds)
    result["single events"] = singles(events[:100_000].tolist(), seconds)
    result["others"] = others(events[: 10**6], seconds)
    fast, single = result["chunks of 1000000"], result["single events"]
    if "dgim, events/s" in single:
        ratio = fast["update, events/s"] / single["dgim, events/s"]
        result["update at 10**6 / dgim"] = ratio  # type: ignore[assignment]
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
