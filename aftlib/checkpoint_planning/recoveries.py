"""Measured recoveries: fig. 1, their times (fig. 5), killed drivers, and throughput."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve

from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read, driver, open_operator
from aftlib.checkpoint_planning.plan import RecoveryTime
from aftlib.checkpoint_planning.state import Checkpoint, CheckpointStore, PreparedReplay
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import ROW_GROUP, SensorLog

FIGURE_1 = pd.DataFrame(
    {
        "X1": [21, 22, 22, 22, 23, 23, 23],
        "X2": [21, 21, 22, 22, 22, 23, 23],
        "X3": [19, 20, 20, 20, 19, 20, 21],
    },
    index=pd.Index(range(1, 8), name="step"),
    dtype=float,
)
"""Sensor values of D2 fig. 1."""
FAILURE = 5
"""Step of the failure in fig. 1."""
FIGURE_1_QUERY = ReplayQuery(
    GaussianModel([22, 22, 20], [[1.0, 0.85, 0.40], [0.85, 0.90, 0.30], [0.40, 0.30, 0.60]]),
    window=len(FIGURE_1),
    requirement=Requirement(0.44, 0.05),
    recovery_time=RecoveryTime(0, 1),
    t_sla_ms=6,
)
"""Our choice, as fig. 1 has no model: X1 and X2 correlate strongly (.90), X3 weakly (.52, .41). At
1 ms per replayed tuple these give the document's plan."""

MOST_READINGS = 10_000_000
"""Most samples of a log for fig. 5; the document's 10⁵ rows are read up to 100 sensors."""
SHARES = (0.1, 0.25, 0.5, 0.75)
"""Shares of the sensors that are replayed, besides 1."""
CORRELATION = 0.5
MARGIN = 1.5
"""T_SLA of killed drivers, as a multiple of the fitted recovery time."""
PILOT_TUPLES, PILOTS = (10_000, 100_000), 10
"""Tuples that T_SLA permits in pilot kills, and the number of kills for each."""
LEAST_MS = 1e-7
"""Least time of one tuple in a fitted recovery time: ten tuples per nanosecond."""
FORKS = get_context("forkserver")
# drivers are forked from a process that has the imports
FORKS.set_forkserver_preload([__name__])


def three_sensors(directory: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Aggregate fig. 1's window, fail, restore the checkpoint and replay the plan's sensors.

    The failure is at step `FAILURE`. `directory` must be new; it gets the log and the state.

    Return two frames. One row per sample: step, sensor, value, state: checkpointed, replayed or
    estimated. One row per sensor, as the operator emitted it: sensor, checkpoint: mean in c¹,
    restored, half_width, truth, error.
    """
    query, plan = FIGURE_1_QUERY, FIGURE_1_QUERY.first_plan
    log = SensorLog.write(directory / "log", FIGURE_1.to_numpy(), FIGURE_1.columns.tolist())
    _, begin, end = plan.times  # the failure is in the second interval
    operator = open_operator(query, log, directory / "state")
    operator.store.begin(begin, "the process that crashed")
    operator.finish(bare_read(log))

    replayed = [query.model.names[i] for i in plan.replay[1].sensors]
    cells = FIGURE_1.reset_index().melt("step", var_name="sensor")
    states = np.where(cells["sensor"].isin(replayed), "replayed", "estimated")
    cells["state"] = np.where(cells["step"].between(begin + 1, end), states, "checkpointed")

    results = operator.store.results().set_index("key")
    table = pd.DataFrame({"checkpoint": FIGURE_1.iloc[:begin].mean(), "restored": results["value"]})
    table = table.assign(half_width=results["half_width"], truth=FIGURE_1.mean())
    table["error"] = (table["restored"] - table["truth"]).abs()
    return cells, table.rename_axis("sensor").reset_index()


def wide_log(directory: Path, sensors: int, rows: int, seed: int) -> SensorLog:
    """Return a log of independent standard normal samples, because times do not depend on values.

    It has `rows` rows, or fewer so that it has `MOST_READINGS` samples. It is stored under a name
    made of its parameters, and used again.
    """
    steps = max(min(rows, MOST_READINGS // sensors), ROW_GROUP)
    path = directory / f"wide-n{sensors}-steps{steps}-seed{seed}"
    if path.exists():
        return SensorLog.open(path)
    values = np.random.default_rng(seed).standard_normal((steps, sensors))
    return SensorLog.write(path, values, [f"X{i}" for i in range(1, sensors + 1)])


def equally_correlated(sensors: int, size: int) -> PreparedReplay:
    """Prepare a replay of the first `size` of n equally correlated sensors of variance 1.

    It has a closed form; `select_replay` would need Σ, an n × n matrix.
    """
    weight = CORRELATION / (1 + (size - 1) * CORRELATION)
    variance = np.full(sensors, 1 - size * CORRELATION * weight)
    variance[:size] = 0
    return PreparedReplay(np.arange(size), np.full((sensors - size, size), weight), variance)


def recovery_times(
    directory: Path,
    scratch: Path,
    ns: Sequence[int],
    turns: int,
    rows: int = 100_000,
    seed: int = 1,
) -> pd.DataFrame:
    """Measure T_res, T_rep and T_est for n sensors of which |O| are replayed, in turns (fig. 5).

    T_res is split: `state_ms` restores a checkpoint of n sensors from the store, `gain_ms` loads
    the gain matrix that was prepared with the plan. T_rep reads and adds up O over a whole
    `wide_log`. T_est estimates the others. Sizes take turns, so that other work on the machine
    slows all of them; one more turn warms up.

    One row per recovery: n, sensors: |O|, tuples: |O| · steps, turn, state_ms, gain_ms, rep_ms,
    est_ms, total_ms. |O| = n is a full replay without estimates.
    """
    measured = []
    scratch.mkdir(parents=True, exist_ok=True)
    for n in sorted(set(ns)):
        log = wide_log(directory, n, rows, seed)
        sizes = sorted({max(1, round(share * n)) for share in SHARES} | {n})
        read, zeros = bare_read(log), np.zeros(n)
        store = CheckpointStore(scratch / str(n))
        store.save(Checkpoint(0, 0, zeros, zeros, zeros, times=(0, log.steps), plan=""))
        for size in sizes:
            equally_correlated(n, size).save(scratch / f"{n}-{size}.npy")
        for turn, size in product(range(-1, turns), sizes):
            replay, clock = PreparedReplay.everything(n), [time.perf_counter()]
            store.restore()
            clock.append(time.perf_counter())
            if size < n:
                replay = PreparedReplay.load(scratch / f"{n}-{size}.npy")
            clock.append(time.perf_counter())
            sums, _ = read(replay.sensors.tolist(), 0, log.steps)
            clock.append(time.perf_counter())
            if size < n:
                replay.estimate(zeros, sums, log.steps)
            clock.append(time.perf_counter())
            measured.append((n, size, size * log.steps, turn, *(1e3 * np.diff(clock))))
    parts = ["state_ms", "gain_ms", "rep_ms", "est_ms"]
    frame = pd.DataFrame(measured, columns=["n", "sensors", "tuples", "turn", *parts])
    frame["total_ms"] = frame[parts].sum(axis=1)
    return frame[frame["turn"] >= 0].reset_index(drop=True)


def solving_times(n: int = 10_000, size: int = 1_000, turns: int = 5) -> pd.DataFrame:
    """Measure T_est if it is solved at recovery, Σ_YO Σ_OO⁻¹ (o − μ_O) with Σ in memory (eq. (6)).

    One row per turn: n, sensors: |O|, solve_ms.
    """
    within = np.full((size, size), CORRELATION)
    np.fill_diagonal(within, 1)
    across, deviation, measured = np.full((n - size, size), CORRELATION), np.ones(size), []
    for _ in range(turns):
        start = time.perf_counter()
        across @ cho_solve(cho_factor(within), deviation)
        measured.append(1e3 * (time.perf_counter() - start))
    return pd.DataFrame({"n": n, "sensors": size, "solve_ms": measured})


def stream_rates(
    queries: Mapping[str, ReplayQuery], log: SensorLog, scratch: Path, turns: int
) -> pd.DataFrame:
    """Measure the throughput of one undisturbed window in one process under each query.

    Queries take turns; one more turn warms up. One row per (turn, query), with the columns turn;
    plan: the query's name; checkpoints: their number per window; rate: tuples per second.
    """
    rows, read = [], bare_read(log)
    for turn, (name, query) in product(range(-1, turns), queries.items()):
        operator = open_operator(query, log, scratch / f"{name}-{turn}")
        intervals = len(query.first_plan.replay)
        start = time.perf_counter()
        for batch in range(intervals):
            operator.process(batch, read)
        rate = query.window * query.model.size / (time.perf_counter() - start)
        rows.append((turn, name, intervals - 1, rate))
    frame = pd.DataFrame(rows, columns=["turn", "plan", "checkpoints", "rate"])
    return frame[frame["turn"] >= 0].reset_index(drop=True)


class Passage(NamedTuple):
    """A point that a driver passed, and when."""

    point: str  # one of `PartialReplay`, or "started" or "killed"
    batch: int
    at: float  # seconds of the monotonic clock


def drive(
    pipe: Connection,
    directory: Path,
    query: ReplayQuery,
    log: SensorLog,
    kill: tuple[str, int] | None,
    rate: float,
    exact: bool,
) -> None:
    """Be a driver process: recover at a read rate, stream the rest, and send each `Passage`.

    At a point and step `kill` it waits to be killed.
    """
    read = bare_read(log)

    def read_slowly(sensors: Sequence[int], start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        sums = read(sensors, start, stop)
        time.sleep(len(sensors) * (stop - start) / rate)
        return sums

    def passes(point: str, batch: int) -> None:
        pipe.send(Passage(point, batch, time.monotonic()))
        if kill is not None and point == kill[0] and kill[1] in range(*operator.batch_steps):
            pipe.send(Passage("killed", batch, time.monotonic()))
            pipe.recv()

    with driver(query, log, directory) as operator:
        operator.passes = passes
        if exact:  # as if the crashed process went on: then nothing failed, and all is read
            operator.process_id = "exact"
        operator.recover(read_slowly)
        operator.finish(read)


def run_driver(
    directory: Path,
    query: ReplayQuery,
    log: SensorLog,
    kill: tuple[str, int] | None,
    rate: float = np.inf,
    exact: bool = False,
) -> list[Passage]:
    """Run a driver process, which recovers the batch of the last one, until SIGKILL or its end.

    `kill` is a point of a batch and one of the batch's steps; without it the driver finishes the
    log. It recovers by reading `rate` samples per second, of all sensors if `exact`. It is forked
    from a process that has loaded all imports, as a standby process would be.

    Return the passed points, between "started" and "killed". RuntimeError when the driver ends
    otherwise.
    """
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=drive, args=(theirs, directory, query, log, kill, rate, exact))
    passed = [Passage("started", -1, time.monotonic())]
    process.start()
    theirs.close()
    with ours:
        with suppress(EOFError):  # it has ended
            while passed[-1].point != "killed":
                passed.append(ours.recv())
        if passed[-1].point == "killed":
            process.kill()
        process.join()
    expected = 0 if kill is None else -signal.SIGKILL
    if process.exitcode != expected:
        raise RuntimeError(
            f"driver must end with exit status {expected} (kill at {kill}), got "
            f"{process.exitcode}: see its error above"
        )
    return passed


def kill_drivers(
    query: ReplayQuery, log: SensorLog, scratch: Path, count: int, seed: int
) -> pd.DataFrame:
    """Kill drivers by SIGKILL in the middle of a batch; time the processes that recover the batch.

    A driver is killed after it has read the samples of an interval and before it commits them. The
    next driver starts at once, so the time to detect a failure is not measured. It recovers the
    interval, continues and is killed in the next window. After the log's last window a new stream
    begins. Only intervals are hit in which the plan estimates some sensors (0 < |O| < n), and
    which T_SLA ends before their window ends; without such an interval the frame is empty.

    One row per kill, about the batch that the replacement process recovers: the columns of
    `CheckpointStore.records`, and t_sla_ms. RuntimeError when a process does not end by its
    SIGKILL.
    """
    plan, rng = query.first_plan, np.random.default_rng(seed)
    partial = [
        tau
        for tau, replay in zip(plan.times, plan.replay[:-1], strict=False)
        if 0 < len(replay.sensors) < query.model.size
    ]
    windows, left = log.steps // query.window, count if partial else 0
    frames = list[pd.DataFrame]()
    while left:
        directory = scratch / str(len(frames))
        taus = rng.choice(partial, min(windows, left)).tolist()
        kills = [("replayed", query.window * window + tau) for window, tau in enumerate(taus)]
        kills.append(("planned", kills[-1][1]))  # the last process recovers the last interval
        for kill in kills:
            run_driver(directory, query, log, kill)
        frames.append(CheckpointStore(directory).records().query("recovered"))
        left -= len(taus)
    killed = pd.concat(frames or [pd.DataFrame()], ignore_index=True)
    return killed.assign(t_sla_ms=query.t_sla_ms)


def query_from_pilots(query: ReplayQuery, log: SensorLog, scratch: Path, seed: int) -> ReplayQuery:
    """Return the query with a recovery time fitted to pilot kills, and its T_SLA.

    T_SLA is `MARGIN` times the fitted time to replay the fewest `PILOT_TUPLES`. It is fixed before
    the kills that are judged.
    """
    frames = []
    for tuples in PILOT_TUPLES:
        pilot = replace(query, t_sla_ms=query.recovery_time(tuples))
        frames.append(kill_drivers(pilot, log, scratch / str(tuples), PILOTS, seed))
    line = fit_recovery_time(pd.concat(frames))
    cost = RecoveryTime(MARGIN * line.fixed_ms, MARGIN * line.per_tuple_ms)
    return replace(query, recovery_time=cost, t_sla_ms=cost(PILOT_TUPLES[0]))


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
