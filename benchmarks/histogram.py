"""Speed of the exponential histogram as ratios within one run: python -m benchmarks histogram.

Updates with arrays are compared with `np.count_nonzero` of the same arrays.
"""

from __future__ import annotations

import time

import numpy as np

from aftlib.documents.exponential_histogram import ExponentialHistogram

SIZES = (10**6, 10**7)
TURNS = 15


def run() -> dict:
    """Median seconds of both in turn, their ratio, and events per second one by one."""
    rng = np.random.default_rng(1)
    result = {}
    for size in SIZES:
        bits = rng.random(size) < 0.5
        histogram = ExponentialHistogram(1_000_000, 0.01)
        histogram.update(bits)
        seconds = {"update": [], "count_nonzero": []}
        for _ in range(TURNS):
            for name, work in (("update", histogram.update), ("count_nonzero", np.count_nonzero)):
                begin = time.perf_counter()
                work(bits)
                seconds[name].append(time.perf_counter() - begin)
        medians = {name: float(np.median(each)) for name, each in seconds.items()}
        ratio = medians["count_nonzero"] / medians["update"]
        result[f"{size:.0e} events"] = {"seconds": medians, "speed / count_nonzero": ratio}
    singles, histogram = (rng.random(200_000) < 0.5).tolist(), ExponentialHistogram(10**6, 0.01)
    begin = time.perf_counter()
    for bit in singles:
        histogram.update(bit)
    result["one event per call, events per second"] = len(singles) / (time.perf_counter() - begin)
    return result
