"""A worker process of D1: it aggregates its sensors' samples and emits each finished window.

A worker that begins at the present resumes: the windows that it has not read from their first step
are lost. A worker that begins where a lost window begins replays it. SIGKILL ends it, as the
failures that are tried here do.

With a folder, it also writes each finished window as a file. Spark streams the folder, and
`aftlib.streaming.stream.recoverable` estimates the windows that are missing.

With `Checkpoints` it stores the samples of its running window durably, as exact fault tolerance
does and D1 does not. They are there to compare the costs.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aftlib.core.processes import ChildProcess, preload
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

preload(__name__)
SCHEMA = "time timestamp, sensor string, value double"
"""Spark's schema of the files: a window's start, and its result for one sensor."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of step 0 in the files; a step takes one second."""

Emitted = tuple[list[int], np.ndarray]
"""Finished windows, and their aggregates, shape (windows, sensors of the worker)."""


@dataclass(frozen=True)
class Checkpoints:
    """Exact checkpoints of a worker's running window, every `every` steps, in an SQLite file.

    Each is one transaction that is flushed to the disk. Only the last one is stored.
    """

    path: Path
    every: int

    @cached_property
    def connection(self) -> sqlite3.Connection:
        """The connection of this process."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        columns = "id INTEGER PRIMARY KEY, first INTEGER, steps INTEGER, samples BLOB"
        connection.execute(f"CREATE TABLE IF NOT EXISTS running ({columns})")
        return connection

    def inside(self, begin: int, stop: int) -> range:
        """Return the steps of the checkpoints that are due after `begin` and before `stop`."""
        return range((begin // self.every + 1) * self.every, stop, self.every)

    def save(self, first: int, samples: np.ndarray) -> None:
        """Store the samples since the step `first`, shape (steps, sensors)."""
        row = 0, first, len(samples), samples.tobytes()
        self.connection.execute("INSERT OR REPLACE INTO running VALUES (?, ?, ?, ?)", row)

    def load(self) -> tuple[int, np.ndarray]:
        """Return what the last `save` stored, without columns where it has no steps."""
        stored = self.connection.execute("SELECT first, steps, samples FROM running").fetchone()
        first, steps, samples = stored
        return first, np.frombuffer(samples).reshape(steps, -1) if steps else np.empty((0, 0))


def run(
    pipe: Connection,
    log: SensorLog,
    sensors: Sequence[int],
    windows: Windows,
    begin: int,
    folder: Path | None = None,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Read samples up to each step that the pipe names, and send the windows that are finished.

    The first window is the first one that begins at the step `begin` or later. A message is (step,
    rate), with the rate in samples per second. A checkpoint at a window's end comes after its
    result, which so does not wait for it.
    """
    first = -(-begin // windows.slide) * windows.slide  # of the next window
    samples = np.empty((0, len(sensors)))
    pipe.send("ready")
    while True:
        step, rate = pipe.recv()
        new = log.read(sensors, min(step, first + len(samples)), step)
        time.sleep(new.size / rate)
        if checkpoints is not None:
            for due in checkpoints.inside(first + len(samples), step):
                known = np.concatenate([samples, new])[: due - first]
                checkpoints.save(first, known)
        samples = np.concatenate([samples, new])
        finished = windows.ending_in(first + windows.width - 1, step)
        aggregates, _ = windows.aggregate(samples, first, finished)
        if folder is not None:
            for window, values in zip(finished, aggregates, strict=True):
                write(folder, window * windows.slide, [log.names[i] for i in sensors], values)
        pipe.send(([*finished], aggregates))
        done = len(finished) * windows.slide
        samples = samples[done:]
        first += done
        if checkpoints is not None and step % checkpoints.every == 0:
            checkpoints.save(first, samples)


def write(folder: Path, start: int, names: Sequence[str], values: np.ndarray) -> None:
    """Write a window's results as a file, which appears whole or not at all."""
    time = pa.scalar(int(EPOCH.timestamp() + start) * 10**6, pa.timestamp("us", "UTC"))
    table = pa.table({"time": [time] * len(names), "sensor": list(names), "value": values})
    path = folder / f"{start:09d}-{names[0]}.parquet"
    hidden = path.with_name(f".{path.name}")  # Spark reads no file whose name begins with a dot
    pq.write_table(table, hidden)
    hidden.rename(path)


class Worker(ChildProcess):
    """A handle of a worker process, which is ready when `wait` returns."""

    def __init__(
        self,
        log: SensorLog,
        sensors: Sequence[int],
        windows: Windows,
        begin: int = 0,
        folder: Path | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.sensors = list(sensors)
        super().__init__(run, log, self.sensors, windows, begin, folder, checkpoints)

    def wait(self) -> None:
        """Wait until the process works; EOFError if it crashed."""
        self.receive()

    def advance(self, step: int, rate: float = np.inf) -> None:
        """Let the worker read its samples up to a step, at `rate` samples per second."""
        self.send((step, rate))

    def receive(self) -> Emitted:
        """Return the windows that the worker finished in its last advance; EOFError on a crash."""
        finished: Emitted = super().receive()
        return finished
