"""D2 fig. 5: what restoring, replaying and estimating take, and the line fitted to their sum."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import theilslopes

from aftlib.checkpoint_planning.operator import Preparation, PreparedReplay, Read
from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.replay import ReplaySet
from aftlib.checkpoint_planning.sqlite import SqliteCheckpoints
from aftlib.checkpoint_planning.state import Checkpoint, IntervalRecord
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import ROW_GROUP, SensorLog

PARTS = ("res_ms", "rep_ms", "est_ms")
CORRELATION = 0.5


def wide_log(directory: Path, sensors: int, tuples: int, seed: int) -> SensorLog:
    """A log of independent standard normal samples: timing does not look at values.

    Parameters
    ----------
    directory : path
        The log is kept there, keyed by its parameters, and reused when it is there.
    sensors : int
    tuples : int
        Length of the log, all sensors together, but at least a row group (1,024 steps): a shorter
        one takes as long to read.
    seed : int
    """
    steps = max(-(-tuples // sensors), ROW_GROUP)
    path = directory / f"wide-n{sensors}-steps{steps}-seed{seed}"
    if path.exists():
        return SensorLog.open(path)
    values = np.random.default_rng(seed).standard_normal((steps, sensors))
    return SensorLog.write(path, values, [f"X{i}" for i in range(1, sensors + 1)])


def equally_correlated(sensors: int, size: int, correlation: float = CORRELATION) -> ReplaySet:
    """The first `size` of n equally correlated sensors, variance 1, without an n × n matrix.

    Below the diagonal every column of their Cholesky factor holds one number, so the factor has a
    closed form; `select_replay` would need Σ of n².
    """
    factor, explained = np.zeros((size, sensors)), 0.0
    for row in range(size):
        pivot = np.sqrt(1 - explained)
        below = (correlation - explained) / pivot
        factor[row, row], factor[row, row + 1 :] = pivot, below
        explained += below**2
    variance = np.full(sensors, 1 - explained)
    variance[:size] = 0
    return ReplaySet(tuple(range(size)), variance, factor, np.ones(size + 1))


def recovery_times(
    reader: Callable[[SensorLog], Read],
    directory: Path,
    scratch: Path,
    ns: Sequence[int],
    shares: Sequence[float],
    repeats: int,
    tuples: int = 100_000,
    seed: int = 1,
) -> pd.DataFrame:
    """T_res, T_rep and T_est of real recoveries for n sensors of which |O| are replayed (fig. 5).

    Restores a checkpoint of n sensors from the store and loads the gain matrix, whose preparation
    belongs to the plan (T_res); reads and adds up O over the whole of a `wide_log` (T_rep);
    estimates the others (T_est). The gain is that of `equally_correlated` sensors.

    Parameters
    ----------
    reader : callable
        `bare_read`, or a Spark job's `spark_read`.
    directory, scratch : path
        Where logs are kept, and a new one for the state and the gains.
    ns : sequence of int
    shares : sequence of float
        |O| / n; 1, everything replayed and nothing estimated, is always added.
    repeats : int
        Recoveries measured for each (n, |O|), after one that warms up.
    tuples, seed : int
        As `wide_log`.

    Returns
    -------
    DataFrame
        n, sensors: |O|, steps, tuples: |O| · steps, repeat, res_ms, rep_ms, est_ms, total_ms.

    Raises
    ------
    ValueError
        When a share is outside (0, 1].
    """
    if any(not 0 < share <= 1 for share in shares):
        raise ValueError(f"shares must lie inside (0, 1], got {list(shares)!r}; give |O| / n")
    rows = []
    scratch.mkdir(parents=True, exist_ok=True)
    for n in ns:
        log = wide_log(directory, n, tuples, seed)
        read, store = reader(log), _store(scratch / f"{n}.sqlite", log)
        sizes = sorted({max(1, round(s * n)) for s in shares} | {n})
        ready = {m: _prepared(scratch / f"{n}-{m}", log, m) if m < n else None for m in sizes}
        # sizes take turns, which spreads what else the machine does; the first turn warms up
        for repeat, m in [(r, m) for r in range(-1, repeats) for m in sizes]:
            lap = _recover(store, ready[m], read, log)
            at = {"n": n, "sensors": m, "steps": log.steps, "tuples": m * log.steps}
            rows += [at | {"repeat": repeat} | lap] if repeat >= 0 else []
    return pd.DataFrame(rows).assign(total_ms=lambda t: t[list(PARTS)].sum(axis=1))


def fastest(times: pd.DataFrame) -> pd.DataFrame:
    """Shortest of each part over the repeats, which other work on the machine disturbs least.

    Returns
    -------
    DataFrame
        n, sensors, tuples, res_ms, rep_ms, est_ms, total_ms.
    """
    columns = ["tuples", *PARTS, "total_ms"]
    return times.groupby(["n", "sensors"])[columns].min().reset_index()


def _store(path: Path, log: SensorLog) -> SqliteCheckpoints:
    """Store with a checkpoint of every sensor in it."""
    store, n = SqliteCheckpoints(path, "recovery times"), len(log.names)
    zeros = np.zeros(n)
    checkpoint = Checkpoint(0, 0, zeros, zeros.astype(np.int64), zeros, (0, log.steps))
    store.commit(checkpoint, [], IntervalRecord(0, 0, 0, False, n, 0, 0, 0))
    return store


def _prepared(directory: Path, log: SensorLog, size: int) -> Preparation:
    n, preparation = len(log.names), Preparation(directory)
    replay = (equally_correlated(n, size),)
    plan = CheckpointPlan((0, log.steps), replay, Requirement(1, 0.5), "mean", np.zeros(n))
    preparation.keep(0, plan)
    return preparation


def _recover(
    store: SqliteCheckpoints, ready: Preparation | None, read: Read, log: SensorLog
) -> dict[str, float]:
    """One recovery, in milliseconds; full replay neither loads a gain nor estimates."""
    n, prepared, laps = len(log.names), None, [time.perf_counter()]
    store.restore()
    if ready is not None:
        sensors, gain, variance = ready.load(0, 0, 0)
        prepared = PreparedReplay(sensors.tolist(), gain, variance, np.zeros(n))
    laps.append(time.perf_counter())
    sums, counts = read(list(range(n)) if prepared is None else prepared.sensors, 0, log.steps)
    laps.append(time.perf_counter())
    if prepared is not None:
        prepared.complete(sums, counts, log.steps)
    laps.append(time.perf_counter())
    return dict(zip(PARTS, (np.diff(laps) * 1e3).tolist(), strict=True))


@dataclass(frozen=True)
class Fit:
    """T_rec = fixed + per tuple · |o| as measured, with its residuals.

    Attributes
    ----------
    line : RecoveryTime
        Robust line through the measurements: half of them take longer.
    reserve : float
        Quantile of measured over fitted, at least 1: what disturbs a recovery slows all of it.
    points : DataFrame
        tuples, total_ms, fitted_ms, residual_ms.
    """

    line: RecoveryTime
    reserve: float
    points: pd.DataFrame

    @property
    def recovery_time(self) -> RecoveryTime:
        """What a plan can count on: the line times the reserve."""
        return RecoveryTime(
            self.reserve * self.line.fixed_ms, self.reserve * self.line.per_tuple_ms
        )


def fit_recovery_time(times: pd.DataFrame, quantile: float = 0.99) -> Fit:
    """Fit (24) to measured recoveries (Theil and Sen's line, which stragglers do not bend).

    Parameters
    ----------
    times : DataFrame
        tuples and total_ms, one row a recovery.
    quantile : float
        Share of these recoveries that the line with its reserve covers.

    Raises
    ------
    ValueError
        When more tuples do not take longer in these measurements.
    """
    x, y = times["tuples"].to_numpy(float), times["total_ms"].to_numpy(float)
    slope = float(theilslopes(y, x).slope) if len(np.unique(x)) > 1 else 0.0
    if not slope > 0:
        raise ValueError(
            f"times must show that replaying more tuples takes longer, got {slope:.3g} ms a tuple "
            f"from {len(x)} recoveries of {x.min():.0f} … {x.max():.0f} tuples; measure more "
            "recoveries, further apart in size"
        )
    line = RecoveryTime(max(0.0, float(np.median(y - slope * x))), slope)
    fitted = line.fixed_ms + slope * x
    points = pd.DataFrame({"tuples": x, "total_ms": y, "fitted_ms": fitted})
    points = points.assign(residual_ms=points["total_ms"] - points["fitted_ms"])
    above = (points["total_ms"] / points["fitted_ms"])[points["fitted_ms"] > 0]
    return Fit(line, max(1.0, float(above.quantile(quantile))), points)


def compare_models(models: dict[str, RecoveryTime], tuples: Sequence[int]) -> pd.DataFrame:
    """Recovery-time models side by side: their two parts and T_rec at some numbers of tuples."""
    rows = {
        name: {"fixed_ms": m.fixed_ms, "per_tuple_ms": m.per_tuple_ms}
        | {f"T_rec of {count:,}": m(count) for count in tuples}
        for name, m in models.items()
    }
    return pd.DataFrame(rows).T
