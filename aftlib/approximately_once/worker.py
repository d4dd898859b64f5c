"""A worker process of D1: it aggregates its sensors' samples and emits each finished window.

A worker that begins at the present resumes: the windows that it has not read from their first step
are lost. A worker that begins where a lost window begins replays it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np

from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload([__name__])  # workers are forked from a process that has the imports
READY = "ready"

Emitted = tuple[list[int], np.ndarray]
"""Finished windows, and their aggregates, shape (windows, sensors of the worker)."""


def run(
    pipe: Connection, log: SensorLog, sensors: Sequence[int], windows: Windows, begin: int
) -> None:
    """Read samples up to each step that the pipe names, and send the windows that are finished.

    `begin` is the first step that is read. A message is (step, rate), with the rate in samples per
    second; None ends the worker.
    """
    first = -(-begin // windows.slide) * windows.slide  # of the next window
    samples = np.empty((0, len(sensors)))
    pipe.send(READY)
    for step, rate in iter(pipe.recv, None):
        new = log.read(sensors, min(step, first + len(samples)), step)
        time.sleep(new.size / rate)
        samples = np.concatenate([samples, new])
        finished = windows.ending_in(first + windows.width - 1, step)
        aggregates, _ = windows.aggregate(samples, first, finished)
        pipe.send(([*finished], aggregates))
        done = len(finished) * windows.slide
        samples = samples[done:]
        first += done


class Worker:
    """A handle of a worker process, which is ready when `wait` returns."""

    def __init__(
        self, log: SensorLog, sensors: Sequence[int], windows: Windows, begin: int = 0
    ) -> None:
        self.sensors = list(sensors)
        self.pipe, end = FORKS.Pipe()
        self.process = FORKS.Process(target=run, args=(end, log, self.sensors, windows, begin))
        self.process.start()
        end.close()  # so that a crash of the process closes the pipe

    def wait(self) -> None:
        """Wait until the process works; EOFError if it crashed."""
        self.pipe.recv()

    def advance(self, step: int, rate: float = np.inf) -> None:
        """Let the worker read its samples up to a step, at `rate` samples per second."""
        self.pipe.send((step, rate))

    def receive(self) -> Emitted:
        """Return the windows that the worker finished in its last advance; EOFError on a crash."""
        return self.pipe.recv()

    def kill(self) -> float:
        """Kill the process by SIGKILL; return the time by the monotonic clock."""
        now = time.monotonic()
        self.process.kill()
        return now

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
