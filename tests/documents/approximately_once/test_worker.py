"""Worker processes: which windows they emit."""

import numpy as np
import pytest

from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.documents.approximately_once.worker import Worker

VALUES = np.arange(600.0).reshape(100, 6)
WINDOWS = Windows(10, 5)


@pytest.fixture
def start(tmp_path):
    log, workers = SensorLog.write(tmp_path / "log", VALUES, list("abcdef")), []

    def start(begin=0):
        workers.append(Worker(log, [3, 4], WINDOWS, begin))
        workers[-1].wait()
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()


def emitted(worker, *steps):
    """Return the emitted windows with their means, and check the means against the samples."""
    windows = []
    for step in steps:
        worker.advance(step)
        numbers, means = worker.receive()
        for number, mean in zip(numbers, means, strict=True):
            samples = VALUES[number * 5 : number * 5 + 10, [3, 4]]
            assert np.allclose(mean, samples.mean(axis=0))
        windows.append(numbers)
    return windows


def test_each_window_is_emitted_once_when_its_last_sample_is_read(start):
    assert emitted(start(), 9, 10, 16, 30) == [[], [0], [1], [2, 3, 4]]


@pytest.mark.parametrize(("begin", "first"), [(0, 0), (5, 1), (19, 4), (20, 4)])
def test_a_worker_emits_no_window_that_began_before_it(start, begin, first):
    assert emitted(start(begin), 40) == [[*range(first, 7)]]
