"""D2 fig. 5: times of restoring, replaying and estimating, and a line fitted to their sum."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.operator import Read, ReplayQuery, bare_read, prepare
from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.replay import ReplaySet
from aftlib.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
    Preparation,
)
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import ROW_GROUP, SensorLog

PARTS = ("res_ms", "rep_ms", "est_ms")
CORRELATION = 0.5
SHARES = (0.1, 0.25, 0.5, 0.75)
"""Shares of the sensors that are replayed."""
LARGEST_N = 1000
"""Largest n for which D2-6 claims that recovery beats full replay."""
SMALLEST_N = 100
"""Smallest n for which D2-7 is judged: with fewer, opening the log is most of T_rep."""
RESOLUTION = 0.01
"""Smallest share of a recovery's time that the cost of its tuples must have to be measurable."""


def wide_log(directory: Path, sensors: int, tuples: int, seed: int) -> SensorLog:
    """A log of independent standard normal samples, because times do not depend on values.

    It has `tuples` tuples in all, but at least one row group (1,024 steps), because a shorter one
    takes as long to read. It is stored under a name made of its parameters, and used again.
    """
    steps = max(-(-tuples // sensors), ROW_GROUP)
    path = directory / f"wide-n{sensors}-steps{steps}-seed{seed}"
    if path.exists():
        return SensorLog.open(path)
    values = np.random.default_rng(seed).standard_normal((steps, sensors))
    return SensorLog.write(path, values, [f"X{i}" for i in range(1, sensors + 1)])


def equally_correlated(sensors: int, size: int) -> ReplaySet:
    """Replay set of the first `size` of n equally correlated sensors of variance 1.

    Below the diagonal, each column of the Cholesky factor is constant, so the factor has a closed
    form. `select_replay` would need Σ, an n × n matrix.
    """
    factor, explained = np.zeros((size, sensors)), 0.0
    for row in range(size):
        pivot = np.sqrt(1 - explained)
        below = (CORRELATION - explained) / pivot
        factor[row, row], factor[row, row + 1 :] = pivot, below
        explained += below**2
    variance = np.full(sensors, 1 - explained)
    variance[:size] = 0
    return ReplaySet(tuple(range(size)), variance, factor, np.ones(size + 1))


def replayed_sizes(n: int, shares: Sequence[float]) -> list[int]:
    """Numbers |O| of sensors to replay, ascending; the last one is always n."""
    return sorted({max(1, round(share * n)) for share in shares} | {n})


def require_claim_sizes(ns: Sequence[int]) -> None:
    """Refuse numbers of sensors with which D2-6 and D2-7 cannot be judged."""
    if not any(SMALLEST_N <= n <= LARGEST_N for n in ns):
        raise ValueError(
            f"ns must hold a number of sensors from {SMALLEST_N} to {LARGEST_N}, which the claims "
            f"need, got {list(ns)!r}: add one"
        )


def recovery_times(
    reader: Callable[[SensorLog], Read],
    directory: Path,
    scratch: Path,
    ns: Sequence[int],
    repeats: int,
    shares: Sequence[float] = SHARES,
    tuples: int = 100_000,
    seed: int = 1,
) -> pd.DataFrame:
    """T_res, T_rep and T_est of real recoveries for n sensors of which |O| are replayed (fig. 5).

    T_res: restore a checkpoint of n sensors from the store, and load the gain matrix, which was
    prepared with the plan. T_rep: read and add up O over a whole `wide_log`. T_est: estimate the
    others. The gain is that of `equally_correlated` sensors.

    `reader` makes a log's reader, such as `bare_read`. Logs of `tuples` tuples are stored under
    `directory`; `scratch` is a new folder for state and gains. `shares` are |O| / n in (0, 1]; the
    share 1, a full replay without estimates, is always added. `repeats` recoveries are measured for
    each (n, |O|), after one as a warm-up.

    One row per recovery: n, sensors: |O|, steps, tuples: |O| · steps, repeat, res_ms, rep_ms,
    est_ms, total_ms.
    """
    rows = []
    scratch.mkdir(parents=True, exist_ok=True)
    for n in sorted(set(ns)):
        log = wide_log(directory, n, tuples, seed)
        read, sizes = reader(log), replayed_sizes(n, shares)
        zeros = np.zeros(n)
        counts = zeros.astype(np.int64)
        checkpoint = Checkpoint(0, 0, zeros, counts, zeros, (0, log.steps), plan="")
        store = CheckpointStore(scratch / f"{n}.sqlite", "recovery times")
        store.commit(checkpoint, [], IntervalRecord(0, 0, 0, False, n, 0, 0, 0))
        preparation, plans = Preparation(scratch / "prepared"), {}
        for size in (size for size in sizes if size < n):
            replay, requirement = (equally_correlated(n, size),), Requirement(1, 0.5)
            plan = CheckpointPlan((0, log.steps), replay, requirement, "mean", zeros)
            plans[size] = preparation.keep(f"{n} equally correlated", plan)
        # sizes take turns, so that other work on the machine slows all; the first turn warms up
        for repeat, size in product(range(-1, repeats), sizes):
            timings = [time.perf_counter()]
            store.restore()
            prepared = preparation.load(plans[size], 0) if size < n else None
            timings.append(time.perf_counter())
            keys = prepared.sensors if prepared else list(range(n))
            sums, _ = read(keys, 0, log.steps)
            timings.append(time.perf_counter())
            if prepared:
                prepared.complete(zeros, sums, log.steps)
            timings.append(time.perf_counter())
            about = {"n": n, "sensors": size, "steps": log.steps, "tuples": size * log.steps}
            parts = zip(PARTS, (np.diff(timings) * 1e3).tolist(), strict=True)
            rows += [about | {"repeat": repeat} | dict(parts)] if repeat >= 0 else []
    return pd.DataFrame(rows).assign(total_ms=lambda t: t[list(PARTS)].sum(axis=1))


def stream_rates(
    queries: Mapping[str, ReplayQuery],
    log: SensorLog,
    scratch: Path,
    windows: int = 1,
    repeats: int = 6,
) -> pd.DataFrame:
    """Throughput of an undisturbed stream in one process under each query.

    Queries take turns; the first turn warms up. One row per (repeat, query), with
    the columns repeat; plan: the query's name; checkpoints: their number per window; seconds; rate:
    tuples per second.
    """
    rows, read = [], bare_read(log)
    for repeat, (name, query) in product(range(-1, repeats), queries.items()):
        operator = prepare(query, log, scratch / f"{name}-{repeat}")
        batches = windows * len(query.first_plan.replay)
        start = time.perf_counter()
        for batch in range(batches):
            operator.process(batch, read)
        seconds = time.perf_counter() - start
        about = {"checkpoints": len(query.first_plan.checkpoints), "seconds": seconds}
        tuples = windows * query.window * query.model.size
        row = {"repeat": repeat, "plan": name} | about | {"rate": tuples / seconds}
        rows += [row] if repeat >= 0 else []
    return pd.DataFrame(rows)


def fastest(times: pd.DataFrame) -> pd.DataFrame:
    """Shortest time of each part over the repeats: it is the one that other work disturbs least."""
    columns = ["tuples", *PARTS, "total_ms"]
    return times.groupby(["n", "sensors"])[columns].min().reset_index()


@dataclass(frozen=True)
class Fit:
    """T_rec = fixed + per tuple · |o| as measured."""

    line: RecoveryTime  # robust line through the measurements: half of them take longer
    reserve: float  # quantile of measured over fitted time, ≥ 1; a disturbance slows all parts
    points: pd.DataFrame  # tuples, total_ms, fitted_ms

    @property
    def recovery_time(self) -> RecoveryTime:
        """Recovery time that plans use: the line times the reserve."""
        return RecoveryTime(
            self.reserve * self.line.fixed_ms, self.reserve * self.line.per_tuple_ms
        )


def fit_recovery_time(times: pd.DataFrame, quantile: float = 0.99) -> Fit:
    """Fit (24) to measured recoveries (Theil and Sen's line, which is robust to stragglers).

    `times` has tuples and total_ms, one row per recovery. The line with its reserve covers the
    share `quantile` of them. Up to the largest number of tuples the line rises by at least
    `RESOLUTION` of the median time, because a smaller cost cannot be measured.
    """
    from scipy.stats import theilslopes  # imported here: it takes 0.4 s to load

    x, y = times["tuples"].to_numpy(float), times["total_ms"].to_numpy(float)
    if not x.any():
        raise ValueError(
            f"times must hold recoveries that replay tuples, got {len(x)} that replay none; "
            "choose a smaller epsilon"
        )
    slope = float(theilslopes(y, x).slope) if len(np.unique(x)) > 1 else 0.0
    slope = max(slope, RESOLUTION * float(np.median(y)) / x.max())
    line = RecoveryTime(max(0.0, float(np.median(y - slope * x))), slope)
    fitted = line.fixed_ms + slope * x
    points = pd.DataFrame({"tuples": x, "total_ms": y, "fitted_ms": fitted})
    above = (points["total_ms"] / points["fitted_ms"])[points["fitted_ms"] > 0]
    return Fit(line, max(1.0, float(above.quantile(quantile))), points)
