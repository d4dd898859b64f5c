"""Every way to recover, under kills: D1's worker processes, and D2's process with all sensors.

D1's workers recover nothing, replay exactly, or estimate by D1's model or by the guard. This
process is their coordinator. It lets all workers read one window after the other, notices a crash
because the worker's pipe closes, starts a replacement, and commits each window's results.

D2's replacement reads few sensors again. The exact process takes the same checkpoints, but its
replacement reads all sensors again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import Assignment, assign_spread
from aftlib.approximately_once.worker import FORKS, Worker
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.plan import RecoveryTime
from aftlib.checkpoint_planning.recoveries import Passage, run_driver
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.guard import Guard
from aftlib.guard.known import KnownModel

FORKS.set_forkserver_preload([__name__])
PARTS = ["start_s", "read_s", "estimate_s", "commit_s"]
"""Parts of a recovery: until the replacement works, reading again, estimating, committing."""
NOTHING, EXACT, MODEL, GUARD = "nothing", "exact replay", "D1 by model", "D1 by guard"
EXACT_PROCESS, PARTIAL = "exact replay, D2's checkpoints", "D2"
RECOVERY = 7
"""Passages of D2's process from its start until its first batch is planned."""
SAMPLES = RecoveryTime(0, 1)
"""Counts samples instead of milliseconds: T_SLA is then the number that may be read again."""


@dataclass(frozen=True)
class Kill:
    """One SIGKILL in a window, and the rate at which the replacement reads again."""

    window: int
    worker: int
    rate: float  # samples per second; infinite if reading is not limited
    emitted: bool = False  # whether it hits after the window is emitted, or just before its end


@dataclass(frozen=True, eq=False)
class Case:
    """One stream of sensors, its workers, and the guarantee of its estimates."""

    values: np.ndarray  # samples, shape (steps, n); after the learned windows none is missing
    model: GaussianModel  # of the windows' means
    windows: Windows  # tumbling
    workers: int
    requirement: Requirement
    learned: int  # windows before the first one that is streamed
    budget: float  # share of a window's samples that D2 may read again

    @cached_property
    def assignment(self) -> Assignment:
        """Sensors of each worker."""
        return assign_spread(self.model, self.workers, self.requirement)

    @cached_property
    def history(self) -> np.ndarray:
        """Means of the learned windows, shape (learned, n), NaN where all samples are missing."""
        return self.windows.aggregate(self.values, 0, range(self.learned))[0]

    @cached_property
    def truth(self) -> np.ndarray:
        """Means of the streamed windows, shape (windows, n)."""
        streamed = self.values[self.learned * self.windows.width :]
        return streamed.reshape(-1, self.windows.width, self.model.size).mean(axis=1)

    def write_log(self, directory: Path) -> SensorLog:
        """Write the samples of the streamed windows, from which replacements read again."""
        streamed = self.values[self.learned * self.windows.width :]
        return SensorLog.write(directory, streamed, self.model.names)


def start_estimator(case: Case, scheme: str) -> Guard | KnownModel | None:
    """Return D1's model or a guard, which know the learned windows; None for other schemes."""
    given = case.assignment.workers, case.requirement.epsilon, case.requirement.delta
    if scheme == MODEL:
        return KnownModel(case.model, *given)
    if scheme != GUARD:
        return None
    guard = Guard(*given)
    guard.update(case.history)
    return guard


class Sink:
    """The emitted results in an SQLite file: one transaction per window, flushed to the disk."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        columns = "window INTEGER, sensor INTEGER, value REAL, estimated INTEGER"
        self.connection.execute(f"CREATE TABLE results ({columns})")

    def commit(self, window: int, values: np.ndarray, estimated: np.ndarray) -> None:
        """Commit the results of a window, shape (n,); NaN is no result."""
        rows = [
            (window, int(sensor), float(values[sensor]), bool(estimated[sensor]))
            for sensor in np.flatnonzero(np.isfinite(values))
        ]
        self.connection.execute("BEGIN")
        self.connection.executemany("INSERT INTO results VALUES (?, ?, ?, ?)", rows)
        self.connection.execute("COMMIT")

    def results(self) -> pd.DataFrame:
        """Return all results: window, sensor, value, estimated."""
        frame = pd.read_sql_query("SELECT * FROM results", self.connection)
        return frame.astype({"estimated": bool})


@dataclass
class Coordinator:
    """The coordinator of D1's worker processes.

    A lost sensor is estimated if the `estimator` has certified it. Any other one is read again if
    `replays`, and else stays lost.
    """

    case: Case
    log: SensorLog
    sink: Sink
    replays: bool = True
    estimator: Guard | KnownModel | None = None

    def __post_init__(self) -> None:
        self.workers = [
            Worker(self.log, sensors, self.case.windows) for sensors in self.case.assignment.workers
        ]
        for worker in self.workers:
            worker.wait()

    def process(self, window: int, kill: Kill | None) -> dict[str, float]:
        """Process a window, in which one worker may be killed; return the times of a recovery.

        A kill hits before the window's last step, or after the window is emitted: then nothing is
        lost, but the worker must be replaced.

        seconds: from the kill, or from the begin of a window without one, until the results are
        committed and all workers work. It is the sum of `PARTS`. again: samples read again.
        """
        width = self.case.windows.width
        begin, end = window * width, (window + 1) * width
        clock = [time.monotonic()]
        if kill and not kill.emitted:
            self._advance(end - 1)
            self._receive()
            clock = [self.workers[kill.worker].kill()]  # the times of a recovery begin here
        self._advance(end)
        values, crashed = self._receive()
        if kill and kill.emitted:
            clock = [self.workers[kill.worker].kill()]
            crashed = [kill.worker]

        again, failed = 0, [self.workers[index] for index in crashed]
        replacement, reader = self._replace(crashed, begin, end, np.isnan(values))
        clock.append(time.monotonic())
        if reader is not None:
            reader.advance(end, kill.rate if kill else np.inf)
            values[reader.sensors] = reader.receive()[1][0]
            again = width * len(reader.sensors)
        clock.append(time.monotonic())
        estimated = np.zeros(values.size, bool)
        if self.estimator is not None:
            estimated = np.isnan(values)  # `_replace` had all others read again
            values = np.where(estimated, self.estimator.update(values).estimate[0], values)
        clock.append(time.monotonic())
        self.sink.commit(window, values, estimated)
        clock.append(time.monotonic())

        for worker in failed:
            worker.stop()
        if reader is not None and reader is not replacement:
            reader.stop()
        parts = dict(zip(PARTS, np.diff(clock).tolist(), strict=True))
        return {"seconds": clock[-1] - clock[0], **parts, "again": again}

    def stop(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.stop()

    def _advance(self, step: int) -> None:
        for worker in self.workers:
            with suppress(BrokenPipeError):  # it crashed, which `_receive` notices
                worker.advance(step)

    def _receive(self) -> tuple[np.ndarray, list[int]]:
        """Return a finished window's values, NaN where a worker crashed, and crashed workers."""
        values, crashed = np.full(self.case.model.size, np.nan), list[int]()
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
    ) -> tuple[Worker | None, Worker | None]:
        """Start the replacement of a crashed worker, and a reader of the sensors to read again.

        The reader is the replacement itself if all of its sensors are read again. Else the
        replacement goes on at the present, and the reader is a process of its own.
        """
        replacement = reader = None
        for index in crashed:
            sensors = self.workers[index].sensors
            certified = np.zeros(lost.size, bool)
            if self.estimator is not None:
                certified = self.estimator.recoverable[0]
            replayed = [s for s in sensors if lost[s] and not certified[s] and self.replays]
            windows, whole = self.case.windows, replayed == sensors
            replacement = Worker(self.log, sensors, windows, begin if whole else end)
            if whole:
                reader = replacement
            elif replayed:
                reader = Worker(self.log, replayed, windows, begin)
                reader.wait()
            replacement.wait()
            self.workers[index] = replacement
        return replacement, reader


def recover_workers(
    case: Case, scheme: str, directory: Path, schedule: Sequence[Kill]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by D1's worker processes under a schedule of kills.

    `scheme` is `NOTHING`, `EXACT`, `MODEL` or `GUARD`; `directory` must be new.

    Return two frames. One row per window: window, rate (NaN without a kill), emitted, and the
    columns of `Coordinator.process`. One row per result: window, sensor, value, estimated.
    """
    directory.mkdir(parents=True)
    log, sink = case.write_log(directory / "log"), Sink(directory / "results.sqlite")
    coordinator = Coordinator(case, log, sink, scheme != NOTHING, start_estimator(case, scheme))
    kills, rows = {kill.window: kill for kill in schedule}, []
    try:
        for window in range(len(case.truth)):
            kill = kills.get(window)
            times = coordinator.process(window, kill)
            about = {"window": window, "rate": kill.rate if kill else np.nan}
            rows.append(about | {"emitted": bool(kill and kill.emitted)} | times)
    finally:
        coordinator.stop()
    return pd.DataFrame(rows), sink.results()


def replay_query(case: Case) -> ReplayQuery:
    """Return D2's query.

    Its model is one of steps: the mean of `width` independent ones has the case's covariance. So
    windows have the case's model, even if the real steps depend on each other.
    """
    width, model = case.windows.width, case.model
    step = GaussianModel(model.mean, model.covariance * width, model.names)
    budget = max(model.size, int(case.budget * width * model.size))
    return ReplayQuery(step, width, case.requirement, SAMPLES, budget)


def recover_partially(
    case: Case, scheme: str, directory: Path, schedule: Sequence[Kill]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by D2's process under a schedule of kills; the frames of `recover_workers`.

    It is killed in the interval with most samples to read again, when the interval is read but not
    committed, or after the commit. Each process but the first recovers from the kill of the one
    before it, at that kill's rate. `scheme` is `PARTIAL` or `EXACT_PROCESS`.
    """
    query, width = replay_query(case), case.windows.width
    log, state = case.write_log(directory / "log"), directory / "state"
    worst = query.first_plan.times[int(np.argmax(query.first_plan.tuples))]
    processes, rate = list[list[Passage]](), np.inf
    for kill in schedule:
        point = "committed" if kill.emitted else "replayed", kill.window * width + worst
        processes.append(run_driver(state, query, log, point, rate, scheme == EXACT_PROCESS))
        rate = kill.rate
    processes.append(run_driver(state, query, log, None, rate, scheme == EXACT_PROCESS))

    store = CheckpointStore(state)
    at = pd.DataFrame({p.point: p.at for p in passages[:RECOVERY]} for passages in processes[1:])
    at["batch"] = [passages[1].batch for passages in processes[1:]]
    at = at.merge(store.records(), on="batch")
    at["killed"] = [passages[-1].at for passages in processes[:-1]]
    rows = pd.DataFrame(map(vars, schedule))
    rows[PARTS] = np.diff(at[["killed", "restored", "replayed", "estimated", "committed"]])
    rows["seconds"] = at["committed"] - at["killed"]
    rows["again"] = at["tuples"].where(~rows["emitted"], 0)
    undisturbed = [
        {"rate": np.nan, "emitted": False, "commit_s": committed.at - estimated.at}
        for passages in processes
        for estimated, committed in pairwise(passages[RECOVERY:])
        if committed.point == "committed"
    ]
    results = store.results()
    number = {name: i for i, name in enumerate(case.model.names)}
    emitted = results[["value"]].assign(
        window=results["start"] // width,
        sensor=results["key"].map(number),
        estimated=results["half_width"] > 0,
    )
    return pd.concat([rows, pd.DataFrame(undisturbed)], ignore_index=True), emitted
