"""A process of its own that counts a stream by D5's histogram, to be killed and started again.

python -m benchmarks.soak_counting LOG DIRECTORY
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from aftlib.core.paths import atomic_file
from aftlib.core.sensorlog import SensorLog
from aftlib.exponential_histogram.histogram import ExponentialHistogram

WINDOW, EPSILON, BATCH, PAUSE_S = 2000, 0.05, 400, 0.25
"""Events of the sliding window, its relative error, events a batch, and the time between two."""


def events(log: SensorLog, begin: int, stop: int) -> np.ndarray:
    """Whether the first sensor is above 0, at the steps [begin, stop)."""
    return log.read([0], begin, stop)[:, 0] > 0


def count(log: SensorLog, directory: Path, goes_on: Callable[[], bool] = lambda: True) -> None:
    """Continue at the state in the directory: answer, then store the state, batch after batch.

    An answer is a line (events so far, estimate); after a crash one may be there twice, and is the
    same.
    """
    state, histogram = directory / "state", ExponentialHistogram(WINDOW, EPSILON)
    if state.exists():
        histogram = ExponentialHistogram.from_bytes(state.read_bytes())
    while goes_on() and (at := histogram.now or 0) + BATCH <= log.steps:
        histogram.update(events(log, at, at + BATCH))
        with (directory / "answers.jsonl").open("a") as file:
            file.write(json.dumps([at + BATCH, histogram.estimate()]) + "\n")
        with atomic_file(state) as scratch:
            scratch.write_bytes(histogram.to_bytes())
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    count(SensorLog.open(sys.argv[1]), Path(sys.argv[2]))
