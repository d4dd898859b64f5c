"""Windows that a scheme lost, doubled and estimated, and the time until its latency is normal.

The recovery metrics are those of Vogel et al., "A Comprehensive Benchmarking Analysis of Fault
Recovery in Stream Processing Frameworks" (DEBS 2024): time until latency and throughput are normal
again, the latency until then, and whether it stays normal. There the input comes at a constant
rate. Here it is replayed at full speed, and Lindley's recursion over the measured times of the
micro-batches gives the latency at a constant rate.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.intervals import bootstrap_share, share_interval, t_interval
from aftlib.failure_drill.schedule import Drill
from aftlib.upstream_backup.routes import lindley

LOAD = 0.7
"""Rate of the input, as a share of the throughput while nothing fails."""
WARM = 2
"""Number of first micro-batches, which are slow and do not count as normal."""
NORMAL = 1.1
"""A latency or micro-batch time is normal up to this factor of the longest undisturbed one."""


@dataclass(frozen=True)
class Run:
    """Results of a scheme under a drill."""

    # emitted values, one row each: window, sensor (indices), value, estimated; None: only counted
    emitted: pd.DataFrame | None
    read_again: int  # samples read a second time
    faults: int  # injected
    stored_bytes: float  # on disk at the end; NaN where not known
    measures: dict[str, float]  # further columns of the scheme's row
    # step reached and seconds since the epoch for each micro-batch, beginning with step 0
    progress: list[tuple[int, float]] = field(default_factory=list)
    # one row per kill: restart_ms until a process works in place of the failed one, and rework_ms
    # from there until the lost results are emitted
    recoveries: pd.DataFrame = field(default_factory=pd.DataFrame)
    drill: Drill | None = None  # the part of the drill that was run, if not all of it


@dataclass(frozen=True)
class Score:
    """Emitted values compared with the truth, window by window and sensor by sensor.

    `share_low` … `share_high` is the 95 % interval of the share within ε. It is resampled by whole
    windows, because the errors of one window are correlated. If all estimates are within ε, it is
    the interval of Clopper and Pearson over windows.
    """

    due: int
    lost: int
    doubled: int
    estimated: int
    estimated_windows: int
    wrong: int  # not marked as estimated, and not the truth
    within: float  # share of the estimates off by at most ε; NaN without estimates
    share_low: float
    share_high: float
    largest_error: float  # of all values, in ε


def score_emitted(drill: Drill, emitted: pd.DataFrame, rng: np.random.Generator) -> Score:
    """Compare emitted values with the truth; a pair (window, sensor) counts as doubled once."""
    counts = np.zeros(drill.truth.shape, int)
    at = emitted["window"].to_numpy(int), emitted["sensor"].to_numpy(int)
    np.add.at(counts, at, 1)
    off = np.abs(emitted["value"].to_numpy(float) - drill.truth[at])
    estimated, epsilon = emitted["estimated"].to_numpy(bool), drill.requirement.epsilon
    good = off[estimated] <= epsilon
    low = high = float("nan")
    windows, number = np.unique(at[0][estimated], return_inverse=True)
    if estimated.any() and good.all():
        low, high = share_interval(len(windows), len(windows))
    elif estimated.any():
        hits = np.bincount(number, good, len(windows))
        totals = np.bincount(number, minlength=len(windows))
        low, high = bootstrap_share(hits, totals, rng)
    return Score(
        due=counts.size,
        lost=int((counts == 0).sum()),
        doubled=int((counts > 1).sum()),
        estimated=int(estimated.sum()),
        estimated_windows=len(windows),
        wrong=int((~(off[~estimated] <= 1e-9)).sum()),
        within=float(good.mean()) if estimated.any() else float("nan"),
        share_low=low,
        share_high=high,
        largest_error=float(off.max(initial=0) / epsilon),
    )


def score_run(drill: Drill, run: Run, rng: np.random.Generator) -> dict[str, object]:
    """Columns of a scheme's row in the table, except the columns of `recovery_metrics`."""
    drill = run.drill or drill
    row = {"basis": "measured", "faults": run.faults, "rows": drill.rows}
    row |= {"again": run.read_again, "stored_bytes": run.stored_bytes}
    if run.emitted is not None:
        row |= asdict(score_emitted(drill, run.emitted, rng))
    if len(run.recoveries):
        medians = run.recoveries[["restart_ms", "rework_ms"]].median()
        row |= {**medians, "recovery_ms": float(medians.sum())}
    return row | run.measures


@dataclass(frozen=True)
class RecoveryMetrics:
    """Latency of each micro-batch, from its last input to its results, and columns of the table.

    The columns are medians over the faults. latency_s and throughput_s are times from the failed
    micro-batch's input until latency or throughput is normal again. worst is the longest latency
    until the next fault, divided by the normal one. unsteady counts later slow micro-batches.
    """

    latency_s: np.ndarray  # (batches,)
    columns: dict[str, float]


def latencies(service_s: np.ndarray, every_s: float) -> np.ndarray:
    """Lindley's recursion: the input of micro-batch i is complete at (i + 1)·T.

    A micro-batch waits for those before it. With completion C_i = max((i + 1)·T, C_{i−1}) + S_i,
    its latency is C_i − (i + 1)·T.
    """
    complete = every_s * np.arange(1, len(service_s) + 1)
    return lindley(complete, service_s) - complete


def recovery_metrics(
    progress: Sequence[tuple[int, float]], events: Sequence[tuple[int, int]]
) -> RecoveryMetrics:
    """Compute when latency and throughput are normal again after each event.

    `progress` has the step and the time in seconds at which each micro-batch was done, beginning
    with step 0. `events` has the first and the last micro-batch with a fault of each event, in
    order. ValueError if fewer than `WARM` + 2 micro-batches were done before the first event.
    """
    service = np.diff([at for _, at in progress])
    calm = service[WARM : events[0][0]]
    if len(calm) < 2:
        raise ValueError(
            f"events must begin after {WARM + 2} micro-batches, got one in micro-batch "
            f"{events[0][0]}: let more pass before the first"
        )
    every = float(np.median(calm)) / LOAD
    latency = latencies(service, every)
    usual = latency[WARM : WARM + len(calm)]
    normal = latency <= NORMAL * usual.max()
    quick = service <= NORMAL * calm.max()
    again, rate, worst = list[float](), list[float](), list[float]()
    unsteady = 0
    ends = [*(first for first, _ in events[1:]), len(service)]
    for (first, last), until in zip(events, ends, strict=True):
        for ok, times in ((normal, again), (quick, rate)):
            end = next((i for i in range(last, until) if ok[i]), until - 1)
            times.append((end - first) * every + latency[end])
        worst.append(latency[first:until].max())
        settled = next((i for i in range(last, until) if normal[i]), until)
        unsteady += int((~normal[settled:until]).sum())
    columns = {
        "latency_s": float(np.median(again)),
        "throughput_s": float(np.median(rate)),
        "worst": float(np.median(worst) / np.median(usual)),
        "unsteady": unsteady,
    }
    return RecoveryMetrics(latency, columns)


def overhead(own_s: np.ndarray, base_s: np.ndarray) -> dict[str, float]:
    """Mean share by which runs take longer than their paired baselines, with its t interval."""
    centre, low, high = np.expm1(t_interval(np.log(own_s / base_s)))
    return {"overhead": float(centre), "overhead_low": float(low), "overhead_high": float(high)}


def folder_bytes(paths: Iterable[Path]) -> int:
    """Bytes of files, and of all files in folders; files that vanish meanwhile are not counted."""
    total = 0
    for path in paths:
        inside = (Path(top, name) for top, _, names in os.walk(path) for name in names)
        for file in [path] if path.is_file() else inside:
            with suppress(FileNotFoundError):
                total += file.stat().st_size
    return total
