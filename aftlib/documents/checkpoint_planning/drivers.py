"""Driver processes that are killed by SIGKILL, and the recovery time fitted to such kills (D2)."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.intervals import LEVELS
from aftlib.core.processes import ChildProcess, preload
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import results_of
from aftlib.documents.checkpoint_planning.operator import ReplayQuery, bare_read, driver
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.documents.checkpoint_planning.state import CheckpointStore

IN_TIME = 0.95
"""Share of the recoveries that the factor of D2-8 shall cover."""
LEAST_KILLS = math.ceil(math.log(LEVELS[0]) / math.log(IN_TIME))
"""The slowest of so many recoveries exceeds `IN_TIME` of them with a confidence of 97.5 %."""
MARGIN = 1.5
"""T_SLA of killed drivers, as a multiple of the fitted recovery time."""
PILOT_TUPLES = (10_000, 100_000)
"""Tuples that T_SLA permits in pilot kills."""
PILOTS = 10
"""Pilot kills for each of `PILOT_TUPLES`."""
LEAST_MS = 1e-7
"""Least time of one tuple in a fitted recovery time: ten tuples per nanosecond."""
preload(__name__)


CRASH_POINTS = ("begun", "restored", "replayed", "estimated")
"""Points of a batch before its commit, at each of which a crash makes the batch fail."""


@dataclass(frozen=True)
class CommittedBatch:
    """A batch that a driver committed, with the times at which it passed its points.

    Times are seconds of the monotonic clock.
    """

    batch: int
    restored: float
    replayed: float
    estimated: float
    committed: float


@dataclass(frozen=True)
class DriverRun:
    """The batches that a driver process committed, and the time of its kill, NaN without one."""

    batches: tuple[CommittedBatch, ...]
    killed_at: float

    @property
    def first_batch(self) -> CommittedBatch:
        """The first batch, which the driver before may have lost; ValueError without one."""
        if not self.batches:
            raise ValueError("a driver must commit a batch, got none: kill it later")
        return self.batches[0]


def drive(
    pipe: Connection,
    directory: Path,
    query: ReplayQuery,
    log: SensorLog,
    kill: tuple[str, int] | None,
    rate: float,
    replays_all: bool,
) -> None:
    """Be a driver process: recover, stream the rest of the log, and send each committed batch.

    The arguments are those of `run_driver`. Where the process shall be killed, it sends the time
    and waits.
    """
    read = bare_read(log)
    times = dict[str, float]()

    def read_at_rate(
        sensors: Sequence[int], start: int, stop: int
    ) -> tuple[np.ndarray, np.ndarray]:
        sums = read(sensors, start, stop)
        time.sleep(len(sensors) * (stop - start) / rate)
        return sums

    def passes(point: str, batch: int) -> None:
        # no point is passed before `operator` is open
        if point in ("restored", "replayed", "estimated", "committed"):
            times[point] = time.monotonic()
        if point == "committed":
            pipe.send(CommittedBatch(batch, **times))
        if kill is not None:
            kill_point, kill_step = kill
            if point == kill_point and kill_step in range(*operator.batch_steps):
                pipe.send(time.monotonic())
                pipe.recv()

    with driver(query, log, directory, passes, replays_all=replays_all) as operator:
        operator.recover(read_at_rate)
        operator.finish(read)


def run_driver(
    directory: Path,
    query: ReplayQuery,
    log: SensorLog,
    kill: tuple[str, int] | None,
    rate: float = np.inf,
    *,
    replays_all: bool = False,
) -> DriverRun:
    """Run a driver process, which recovers the batch of the last one, until SIGKILL or its end.

    `kill` is a point of a batch and one of the batch's steps; without it the driver finishes the
    log. It recovers by reading `rate` samples per second, of all sensors if `replays_all`; both
    serve `aftlib.recovery_comparison`. It is forked from a process that has loaded all imports, as
    a standby process would be. RuntimeError when the driver ends otherwise.
    """
    batches = list[CommittedBatch]()
    killed_at = np.nan
    with ChildProcess(drive, directory, query, log, kill, rate, replays_all) as child:
        with suppress(EOFError):  # it has ended
            while np.isnan(killed_at):
                message = child.receive()
                if isinstance(message, CommittedBatch):
                    batches.append(message)
                else:
                    killed_at = message
                    child.kill()
        status = child.wait_for_end()
    expected = 0 if kill is None else -signal.SIGKILL
    if status != expected:
        raise RuntimeError(
            f"driver must end with exit status {expected} (kill at {kill}), got {status}: see its "
            "error above"
        )
    return DriverRun(tuple(batches), killed_at)


def kill_drivers(
    query: ReplayQuery, log: SensorLog, scratch: Path, count: int, seed: int
) -> pd.DataFrame:
    """Kill drivers by SIGKILL in the middle of a batch; time the processes that recover the batch.

    A driver is killed after it has read the samples of an interval and before it commits them. The
    next driver starts at once, so the time to detect a failure is not measured. It recovers the
    interval, continues and is killed in the next window. After the log's last window a new stream
    begins. Only intervals are hit in which the plan estimates some sensors (0 < |O| < n), and
    which are not the last of their window; without such an interval the frame is empty.

    One row per kill, about the batch that the replacement process recovers: the columns of
    `CheckpointStore.records`; t_sla_ms; and fitted_ms, the time that `query_from_pilots` fitted for
    its tuples, which has no meaning in a pilot. RuntimeError when a process does not end by its
    SIGKILL.
    """
    plan = query.first_plan
    rng = np.random.default_rng(seed)
    last = len(plan.replay) - 1
    partial = [plan.times[k] for k in plan.estimating if k < last and plan.replay[k].sensors]
    windows = log.steps // query.window
    left = count
    frames = list[pd.DataFrame]()
    if not partial:
        left = 0
        with CheckpointStore(scratch / "no kills") as store:
            frames.append(store.records().astype(float))
    while left:
        directory = scratch / str(len(frames))
        taus = rng.choice(partial, min(windows, left)).tolist()
        kills = [("replayed", query.window * number + tau) for number, tau in enumerate(taus)]
        # the last process is killed when it has recovered the last interval that was hit
        kills.append(("planned", kills[-1][1]))
        for kill in kills:
            run_driver(directory, query, log, kill)
        with CheckpointStore(directory) as store:
            frames.append(store.records().query("recovered"))
        left -= len(taus)
    killed = pd.concat(frames, ignore_index=True)
    cost = query.recovery_time
    planned = cost.fixed_ms + cost.per_tuple_ms * killed["tuples"]
    return killed.assign(t_sla_ms=query.t_sla_ms, fitted_ms=planned / MARGIN)


KILLS_PER_WINDOW = 3
"""Kills at random in each window, on average, so that many windows fail more than once."""


def kill_at_random(
    query: ReplayQuery, log: SensorLog, scratch: Path, count: int, seed: int
) -> pd.DataFrame:
    """Kill drivers by SIGKILL at random steps and points, in one window also repeatedly.

    Each replacement process recovers, continues, and is killed at the next step; a step in an
    interval that has just failed kills its recovery. After the log's last window a new stream
    begins; the last stream is only as long as its kills need. Return the rows of `window_outcomes`
    of all streams, with the columns stream and kills, the number of kills in it. RuntimeError when
    a process does not end by its SIGKILL.
    """
    rng = np.random.default_rng(seed)
    most = KILLS_PER_WINDOW * (log.steps // query.window)
    frames = list[pd.DataFrame]()
    left = count
    while left:
        directory = scratch / str(len(frames))
        kills = min(left, most)
        windows = -(-kills // KILLS_PER_WINDOW)
        part = replace(log, steps=windows * query.window)
        for step in np.sort(rng.integers(0, part.steps, kills)).tolist():
            run_driver(directory, query, part, (str(rng.choice(CRASH_POINTS)), step))
        run_driver(directory, query, part, None)
        with CheckpointStore(directory) as store:
            outcomes = window_outcomes(query, part, store)
        frames.append(outcomes.assign(stream=len(frames), kills=kills))
        left -= kills
    return pd.concat(frames, ignore_index=True)


def window_outcomes(query: ReplayQuery, log: SensorLog, store: CheckpointStore) -> pd.DataFrame:
    """Compare the windows of a stream with its log.

    One row per window of the log: start; recoveries: intervals that were recovered in it;
    error_probability: the largest probability of any sensor's result to err by more than ε, from
    the variance that the operator stored; z: the largest error in standard deviations, infinite if
    an exact or lost result is wrong; largest: the largest error; outside: the share of the sensors
    whose result errs by more than ε.
    """
    windows = log.steps // query.window
    starts = pd.RangeIndex(0, windows * query.window, query.window, name="start")
    samples = log.read(None, 0, windows * query.window).reshape(windows, query.window, -1)
    truth = results_of(query.query, samples.sum(axis=1), np.array(query.window))
    results = store.results().pivot_table(index="start", columns="key").reindex(starts)
    half_widths = results["half_width"].fillna(np.inf)[[*log.names]].to_numpy()
    deviation = half_widths / query.requirement.z
    error = np.abs(results["value"][[*log.names]].to_numpy() - truth)
    error[np.isnan(error)] = np.inf  # lost
    rounding = 1e-9 * (1 + np.abs(truth))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(error <= rounding, 0.0, error / deviation)
    z[np.isnan(z)] = np.inf
    within = query.requirement.reliability(deviation**2)
    recovered = store.records().query("recovered")["start"] // query.window
    return pd.DataFrame(
        {
            "start": starts,
            "recoveries": recovered.value_counts().reindex(range(windows), fill_value=0),
            "error_probability": (1 - within).max(axis=1),
            "z": z.max(axis=1),
            "largest": error.max(axis=1),
            "outside": (error > query.requirement.epsilon).mean(axis=1),
        }
    )


def query_from_pilots(query: ReplayQuery, log: SensorLog, scratch: Path, seed: int) -> ReplayQuery:
    """Return the query with a recovery time fitted to pilot kills, and its T_SLA.

    T_SLA is `MARGIN` times the fitted time to replay the fewest `PILOT_TUPLES`, or fewer in a short
    window, so that it has several checkpoints. It is fixed before the kills that are judged. The
    query is returned as it is if no interval can be hit.
    """
    frames = []
    n = query.model.size
    shortest, longest = PILOT_TUPLES
    part = query.window * n // 4
    few = max(n, min(shortest, part // 4))
    many = max(n, min(longest, part))
    for tuples in (few, many):
        pilot = replace(query, t_sla_ms=query.recovery_time(tuples))
        frames.append(kill_drivers(pilot, log, scratch / str(tuples), PILOTS, seed))
    pilots = pd.concat(frames)
    if pilots.empty:
        return query
    line = fit_recovery_time(pilots)
    cost = RecoveryTime(MARGIN * line.fixed_ms, MARGIN * line.per_tuple_ms)
    return replace(query, recovery_time=cost, t_sla_ms=cost(few))


def fit_recovery_time(times: pd.DataFrame) -> RecoveryTime:
    """Fit (24) to measured recoveries, by Theil and Sen's line, which is robust to stragglers.

    `times` has tuples and total_ms, one row per recovery. A tuple takes at least `LEAST_MS`,
    because a smaller cost cannot be measured. ValueError without recoveries.
    """
    from scipy.stats import theilslopes  # imported here: it takes 0.4 s to load

    if times.empty:
        raise ValueError("times must hold recoveries, got none; choose a smaller epsilon")
    slope = LEAST_MS
    if np.ptp(times["tuples"]):
        slope = max(slope, float(theilslopes(times["total_ms"], times["tuples"]).slope))
    fixed = float((times["total_ms"] - slope * times["tuples"]).median())
    return RecoveryTime(max(0.0, fixed), slope)
