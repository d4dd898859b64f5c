"""Recoveries of killed processes: D1's workers with their coordinator, and D2's process.

A schedule has the kills of a stream, the same for every scheme.

The coordinator lets all workers read one window after the other, notices a crash because the
worker's pipe closes, starts a replacement, and commits each window's results. It is plain Python:
no Spark, and so no micro-batch and no watermark. D2's process reads few sensors again or, for
comparison, all.
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

from aftlib.core.gaussian import GaussianModel
from aftlib.core.sensorlog import SensorLog
from aftlib.core.storage import open_database, transaction
from aftlib.documents.approximately_once.worker import Checkpoints, Worker
from aftlib.documents.checkpoint_planning.drivers import DriverRun, run_driver
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.documents.checkpoint_planning.state import CheckpointStore
from aftlib.recovery_comparison.schemes import Case, SchemeEstimator

PARTS = ["start_s", "read_s", "estimate_s", "commit_s"]
"""Parts of a recovery: until the replacement works, reading again, estimating, committing."""
SAMPLES = RecoveryTime(0, 1)
"""Counts samples instead of milliseconds: T_SLA is then the number that may be read again."""


@dataclass(frozen=True)
class Kill:
    """One SIGKILL in a window, and the rate at which the replacement reads again."""

    window: int
    worker: int
    rate: float  # samples per second; infinite if reading is not limited
    emitted: bool = False  # whether it hits after the window is emitted, or just before its end


def draw_schedule(rates: Sequence[float], kills: int, workers: int, seed: int) -> list[Kill]:
    """Draw the kills of a stream: `kills` per rate and without a limit, in random order.

    As many more hit after their window is emitted. Every second window has a kill; the first kill,
    which no result counts, warms up.
    """
    rng = np.random.default_rng(seed)
    points = [(rate, False) for rate in (*rates, np.inf)] + [(np.inf, True)]
    drawn = [(np.inf, False)]
    for _ in range(kills):
        drawn += [points[i] for i in rng.permutation(len(points))]
    return [
        Kill(2 * number, int(rng.integers(workers)), rate, emitted)
        for number, (rate, emitted) in enumerate(drawn)
    ]


def streamed_windows(schedule: Sequence[Kill]) -> int:
    """Return how many windows a schedule needs: one without a kill follows the last."""
    return schedule[-1].window + 2


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


def replay_query(case: Case) -> ReplayQuery:
    """Return D2's query.

    Its model is one of steps: the mean of `width` independent ones has the case's covariance. So
    windows have the case's model, even if the real steps depend on each other.
    """
    width = case.windows.width
    model = case.model
    step = GaussianModel(model.mean, model.covariance * width, model.names)
    budget = max(model.size, int(case.budget * width * model.size))
    return ReplayQuery(step, width, case.requirement, SAMPLES, budget)


def recover_partially(
    case: Case, directory: Path, schedule: Sequence[Kill], *, replays_all: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by D2's process under a schedule of kills; the frames of `recover_workers`.

    It is killed in the interval with most samples to read again, when the interval is read but not
    committed, or after the commit. Each process but the first recovers from the kill of the one
    before it, at that kill's rate. It reads its replay set, or all sensors if `replays_all`.
    """
    query = replay_query(case)
    width = case.windows.width
    log = case.write_log(directory / "log")
    state = directory / "state"
    worst = query.first_plan.times[int(np.argmax(query.first_plan.tuples))]
    runs = list[DriverRun]()
    rate = np.inf
    for kill in schedule:
        point = "committed" if kill.emitted else "replayed"
        place = (point, kill.window * width + worst)
        runs.append(run_driver(state, query, log, place, rate, replays_all=replays_all))
        rate = kill.rate
    runs.append(run_driver(state, query, log, None, rate, replays_all=replays_all))

    with CheckpointStore(state) as store:
        rows = recovery_rows(runs, schedule, store.records())
        results = store.results()
    # a process's first commit ends the recovery
    commits = [batch.committed - batch.estimated for run in runs for batch in run.batches[1:]]
    calm = pd.DataFrame({"rate": np.nan, "emitted": False, "commit_s": commits})
    emitted = results[["value"]].assign(
        window=results["start"] // width,
        sensor=results["key"].map(case.model.names.index),
        estimated=results["half_width"] > 0,
        writes=1,
    )
    return pd.concat([rows, calm], ignore_index=True), emitted


def recovery_rows(
    runs: Sequence[DriverRun], schedule: Sequence[Kill], records: pd.DataFrame
) -> pd.DataFrame:
    """Return one row per kill with its times: the columns of `Coordinator.process`.

    Each process but the first recovers from the kill of the one before it.
    """
    batches = pd.DataFrame([vars(run.first_batch) for run in runs[1:]])
    at = batches.merge(records, on="batch")
    at["killed"] = [run.killed_at for run in runs[:-1]]
    rows = pd.DataFrame(map(vars, schedule))
    rows[PARTS] = np.diff(at[["killed", "restored", "replayed", "estimated", "committed"]])
    rows["seconds"] = at["committed"] - at["killed"]
    rows["again"] = at["tuples"].where(~rows["emitted"], 0)
    return rows
