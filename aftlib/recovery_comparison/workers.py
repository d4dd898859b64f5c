"""D1's worker processes under kills, with their coordinator and the database of the results.

The coordinator lets all workers read one window after the other, notices a crash because the
worker's pipe closes, starts a replacement, and commits each window's results. It is plain Python:
no Spark, and so no micro-batch and no watermark.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

from aftlib.core.processes import preload
from aftlib.core.sensorlog import SensorLog
from aftlib.core.storage import open_database, transaction
from aftlib.documents.approximately_once.worker import Checkpoints, Worker
from aftlib.recovery_comparison.cases import Case, Kill
from aftlib.recovery_comparison.schemes import SchemeEstimator

preload(__name__)
PARTS = ["start_s", "read_s", "estimate_s", "commit_s"]
"""Parts of a recovery: until the replacement works, reading again, estimating, committing."""


class Sink:
    """The emitted results in an SQLite file: one transaction per window, flushed to the disk.

    As D1 assumes, a repeated result replaces the first one, because window and sensor are its key.
    """

    def __init__(self, path: Path) -> None:
        self.connection = open_database(path)
        columns = "window INTEGER, sensor INTEGER, value REAL, estimated INTEGER, writes INTEGER"
        key = "PRIMARY KEY (window, sensor)"
        self.connection.execute(f"CREATE TABLE results ({columns}, {key})")

    def commit(self, window: int, values: np.ndarray, estimated: np.ndarray) -> None:
        """Commit the results of a window, shape (n,); NaN is no result."""
        upsert = (
            "INSERT INTO results VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET "
            "value = excluded.value, estimated = excluded.estimated, writes = writes + 1"
        )
        rows = [
            (window, int(sensor), float(values[sensor]), bool(estimated[sensor]))
            for sensor in np.flatnonzero(np.isfinite(values))
        ]
        with transaction(self.connection, f"commit window {window} to") as connection:
            connection.executemany(upsert, rows)

    def results(self) -> pd.DataFrame:
        """Return all results: window, sensor, value, estimated; writes: how often it came."""
        frame = pd.read_sql_query("SELECT * FROM results", self.connection)
        return frame.astype({"estimated": bool})


@dataclass
class Coordinator:
    """The coordinator of D1's worker processes.

    A lost sensor is estimated if the `estimator` has certified it. Any other one is read again if
    `replays`, and else stays lost. With `checkpoint_folder`, workers store their running windows
    there every `checkpoint_every` steps. As a context manager it stops the workers at the end.
    """

    case: Case
    log: SensorLog
    sink: Sink
    replays: bool = True
    estimator: SchemeEstimator | None = None
    checkpoint_folder: Path | None = None
    checkpoint_every: int = 1

    def __post_init__(self) -> None:
        self.workers = list[Worker]()
        for number, sensors in enumerate(self.case.assignment.workers):
            checkpoints = None
            if self.checkpoint_folder is not None:
                place = self.checkpoint_folder / f"{number}.sqlite"
                checkpoints = Checkpoints(place, self.checkpoint_every)
            windows = self.case.windows
            self.workers.append(Worker(self.log, sensors, windows, checkpoints=checkpoints))
        for worker in self.workers:
            worker.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.stop()

    def read_before_end(self, window: int) -> None:
        """Let all workers read a window up to its last step."""
        self._advance((window + 1) * self.case.windows.width - 1)
        self._receive()

    def process(self, window: int, kill: Kill | None = None) -> dict[str, float]:
        """Process a window, in which one worker may be killed; return the times of a recovery.

        A kill hits before the window's last step, or after the window is emitted: then nothing is
        lost, but the worker must be replaced.

        seconds: from the kill, or from the begin of a window without one, until the results are
        committed and all workers work. It is the sum of `PARTS`. again: samples read again.
        """
        begin = window * self.case.windows.width
        end = begin + self.case.windows.width
        clock = [time.monotonic()]
        if kill and not kill.emitted:
            self.read_before_end(window)
            clock = [self.workers[kill.worker].kill()]  # the times of a recovery begin here
        self._advance(end)
        values, crashed = self._receive()
        if kill and kill.emitted:
            clock = [self.workers[kill.worker].kill()]
            crashed = [kill.worker]

        failed = [self.workers[index] for index in crashed]
        readers = self._replace(crashed, begin, end, np.isnan(values))
        clock.append(time.monotonic())
        for reader in readers:
            reader.advance(end, kill.rate if kill else np.inf)
        for reader in readers:
            _, aggregates = reader.receive()
            values[reader.sensors] = aggregates[0]
        clock.append(time.monotonic())
        estimated = np.zeros(values.size, bool)
        if self.estimator is not None:
            estimated = np.isnan(values)  # `_replace` had all others read again
            values = np.where(estimated, self.estimator.update(values).estimate[0], values)
        clock.append(time.monotonic())
        self.sink.commit(window, values, estimated)
        clock.append(time.monotonic())

        for worker in (*failed, *readers):
            if worker not in self.workers:
                worker.stop()
        parts = dict(zip(PARTS, np.diff(clock).tolist(), strict=True))
        again = sum(len(reader.sensors) for reader in readers) * self.case.windows.width
        return {"seconds": clock[-1] - clock[0], **parts, "again": again}

    def _advance(self, step: int) -> None:
        for worker in self.workers:
            with suppress(BrokenPipeError):  # it crashed, which `_receive` notices
                worker.advance(step)

    def _receive(self) -> tuple[np.ndarray, list[int]]:
        """Return a finished window's values, NaN where a worker crashed, and crashed workers."""
        values = np.full(self.case.model.size, np.nan)
        crashed = list[int]()
        for index, worker in enumerate(self.workers):
            try:
                finished, aggregates = worker.receive()
            except EOFError:
                crashed.append(index)
            else:
                if finished:
                    values[worker.sensors] = aggregates[0]
        return values, crashed

    def _replace(
        self, crashed: Sequence[int], begin: int, end: int, lost: np.ndarray
    ) -> list[Worker]:
        """Replace crashed workers; return readers of the sensors that must be read again.

        A reader is the replacement itself if all of its sensors are read again. Else the
        replacement goes on at the present, and the reader is a process of its own.
        """
        readers = list[Worker]()
        certified = np.zeros(lost.size, bool)
        if self.estimator is not None:
            certified = self.estimator.recoverable[0]
        for index in crashed:
            sensors = self.workers[index].sensors
            replayed = [s for s in sensors if lost[s] and not certified[s] and self.replays]
            all_replayed = replayed == sensors
            replacement = Worker(
                self.log, sensors, self.case.windows, begin if all_replayed else end
            )
            if all_replayed:
                readers.append(replacement)
            elif replayed:
                reader = Worker(self.log, replayed, self.case.windows, begin)
                reader.wait()
                readers.append(reader)
            replacement.wait()
            self.workers[index] = replacement
        return readers


def recover_workers(
    case: Case,
    directory: Path,
    schedule: Sequence[Kill],
    *,
    estimator: SchemeEstimator | None = None,
    replays: bool = True,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by D1's worker processes under a schedule of kills; `directory` must be new.

    `estimator` and `replays` are those of the `Coordinator`.

    Return two frames. One row per window: window, rate (NaN without a kill), emitted, and the
    columns of `Coordinator.process`. One row per result, as `Sink.results` returns them.
    """
    directory.mkdir(parents=True)
    log = case.write_log(directory / "log")
    sink = Sink(directory / "results.sqlite")
    kills = {kill.window: kill for kill in schedule}
    rows = []
    with Coordinator(case, log, sink, replays, estimator) as coordinator:
        for window in range(len(case.truth)):
            kill = kills.get(window)
            times = coordinator.process(window, kill)
            about = {"window": window, "rate": kill.rate if kill else np.nan}
            rows.append(about | {"emitted": bool(kill and kill.emitted)} | times)
    return pd.DataFrame(rows), sink.results()
