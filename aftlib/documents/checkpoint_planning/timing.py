"""Times that are measured in one process: of recoveries (fig. 5), and of undisturbed windows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from aftlib.core.sensorlog import ROW_GROUP, SensorLog
from aftlib.documents.checkpoint_planning.operator import (
    Read,
    ReplayQuery,
    bare_read,
    open_operator,
)
from aftlib.documents.checkpoint_planning.state import Checkpoint, CheckpointStore, PreparedReplay

MOST_READINGS = 10_000_000
"""Most samples of a log for fig. 5; the document's 10⁵ rows are read up to 100 sensors."""
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of the sensors that are replayed, besides 1."""
FEWER_TURNS_ABOVE = 1_000
"""With more sensors, a tenth of the turns is measured, because a turn takes many seconds."""
READS = 3
"""With more than `FEWER_TURNS_ABOVE` sensors, T_rep of a turn is the median of so many reads."""
CORRELATION = 0.5


def wide_steps(sensors: int, rows: int) -> int:
    """Return how many rows a `wide_log` has; T_rep is scaled to `rows`."""
    return max(min(rows, MOST_READINGS // sensors), ROW_GROUP)


def wide_log(directory: Path, sensors: int, rows: int, seed: int) -> SensorLog:
    """Return a log of independent standard normal samples, because times do not depend on values.

    It has `rows` rows, or fewer so that it has `MOST_READINGS` samples. It is stored under a name
    made of its parameters, and used again.
    """
    steps = wide_steps(sensors, rows)
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
    `wide_log`; it is scaled to `rows` rows if the log has fewer. `est_ms` estimates the others by
    the prepared gain, and `solve_ms` solves (6) at recovery instead. Sizes take turns, so that
    other work on the machine slows all of them; up to `FEWER_TURNS_ABOVE` sensors one more turn
    warms up. One thread does all of it, as in the document. 10⁴ sensors take 1 GB.

    One row per recovery: n, sensors: |O|, tuples: |O| · rows, turn, state_ms, gain_ms, rep_ms,
    est_ms, solve_ms; total_ms: T_rec with the gain prepared, and solved_ms: T_rec with (6) solved
    at recovery. |O| = n is a full replay without estimates.
    """
    measured = list[dict[str, float]]()
    scratch.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(limits=1, user_api="blas"):
        for n in sorted(set(ns)):
            log = wide_log(directory, n, rows, seed)
            with TemporaryDirectory(dir=scratch) as folder:  # gains of 10⁴ sensors take 700 MB
                measured += _measure_turns(log, Path(folder), turns, rows)
    frame = pd.DataFrame(measured)
    frame["total_ms"] = frame[["state_ms", "gain_ms", "rep_ms", "est_ms"]].sum(axis=1)
    frame["solved_ms"] = frame[["state_ms", "rep_ms", "solve_ms"]].sum(axis=1)
    return frame[frame["turn"] >= 0].reset_index(drop=True)


def partial_medians(times: pd.DataFrame) -> pd.DataFrame:
    """Return the medians over turns of `recovery_times`, one row per n and |O| < n.

    Added columns: share, |O|/n; full_ms, the time of a full replay of n sensors.
    """
    median = times.groupby(["n", "sensors"]).median().reset_index()
    full = median[median["sensors"] == median["n"]].set_index("n")["total_ms"]
    partial = median[median["sensors"] < median["n"]]
    share = (partial["sensors"] / partial["n"]).round(1)
    return partial.assign(share=share, full_ms=partial["n"].map(full))


def turns_of(n: int, turns: int) -> int:
    """Return how many of the turns are measured with n sensors."""
    return turns if n <= FEWER_TURNS_ABOVE else max(1, turns // 10)


def _measure_turns(
    log: SensorLog, folder: Path, turns: int, rows: int
) -> Iterator[dict[str, float]]:
    """Yield the parts of each recovery of a log's sensors, with files in an empty folder."""
    n = len(log.names)
    sizes = sorted({max(1, round(share * n)) for share in SHARES} | {n})
    read = bare_read(log)
    read(range(n), 0, log.steps)  # from now on the files are in memory
    zeros = np.zeros(n)
    for size in sizes[:-1]:
        equally_correlated(n, size).save(folder / f"{size}.npy")
    counted = range(-1 if n <= FEWER_TURNS_ABOVE else 0, turns_of(n, turns))
    with CheckpointStore(folder) as store:
        store.save(Checkpoint(0, 0, zeros, zeros, zeros, times=(0, log.steps), plan_name=""))
        for turn, size in product(counted, sizes):
            replay = PreparedReplay.everything(n)
            clock = [time.perf_counter()]
            store.restore()
            clock.append(time.perf_counter())
            if size < n:
                replay = PreparedReplay.load(folder / f"{size}.npy")
            clock.append(time.perf_counter())
            sums, _ = read(replay.sensors.tolist(), 0, log.steps)
            clock.append(time.perf_counter())
            if size < n:
                replay.estimate(zeros, sums, log.steps)
            clock.append(time.perf_counter())
            state_ms, gain_ms, rep_ms, est_ms = 1e3 * np.diff(clock)
            if n > FEWER_TURNS_ABOVE:  # there are few turns
                again = [_reading_ms(read, replay, log) for _ in range(READS - 1)]
                rep_ms = np.median([rep_ms, *again])
            yield {
                "n": n,
                "sensors": size,
                "tuples": size * rows,
                "turn": turn,
                "state_ms": state_ms,
                "gain_ms": gain_ms,
                "rep_ms": rep_ms * rows / log.steps,
                "est_ms": est_ms,
                "solve_ms": solving_ms(n, size) if size < n else 0.0,
            }


def _reading_ms(read: Read, replay: PreparedReplay, log: SensorLog) -> float:
    start = time.perf_counter()
    read(replay.sensors.tolist(), 0, log.steps)
    return 1e3 * (time.perf_counter() - start)


def solving_ms(n: int, size: int) -> float:
    """Measure T_est if it is solved at recovery, Σ_YO Σ_OO⁻¹ (o − μ_O) (eq. (6)), in ms.

    Σ_OO and Σ_YO of n equally correlated sensors, of which `size` are in O, stand in memory. One
    right-hand side is solved; the gain matrix is never formed.
    """
    within = np.full((size, size), CORRELATION, order="F")
    np.fill_diagonal(within, 1)
    across = np.full((n - size, size), CORRELATION)
    deviation = np.ones(size)
    start = time.perf_counter()
    factor = cho_factor(within, lower=True, overwrite_a=True, check_finite=False)
    across @ cho_solve(factor, deviation, check_finite=False)
    return 1e3 * (time.perf_counter() - start)


def stream_rates(
    queries: Mapping[str, ReplayQuery], log: SensorLog, scratch: Path, turns: int
) -> pd.DataFrame:
    """Measure the throughput of one undisturbed window in one process under each query.

    Queries take turns; one more turn warms up. One row per (turn, query), with the columns turn;
    plan: the query's name; checkpoints: their number per window; rate: samples per second.
    """
    rows = []
    read = bare_read(log)
    for turn, (name, query) in product(range(-1, turns), queries.items()):
        operator = open_operator(query, log, scratch / f"{name}-{turn}")
        intervals = len(query.first_plan.replay)
        start = time.perf_counter()
        for batch in range(intervals):
            operator.process(batch, read)
        rate = query.window * query.model.size / (time.perf_counter() - start)
        operator.store.close()
        rows.append((turn, name, intervals - 1, rate))
    frame = pd.DataFrame(rows, columns=["turn", "plan", "checkpoints", "rate"])
    return frame[frame["turn"] >= 0].reset_index(drop=True)
