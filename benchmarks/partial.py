"""Partial replay with the guard on real sensors: what is estimated, and whether that held.

Windows of 30 samples of which the last 20 are lost, ε half a standard deviation of the window's
mean, second half scored. Sets are the wide Parquet files in the folder that ``AFT_SENSORS`` names;
without it only the speed is measured.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.experiments.guarded import guarantee_table, guarded_windows
from aftlib.checkpoint_planning.guarded_replay import replay_guard
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from benchmarks.guard import DELTA, SEASONS

WINDOW, LOST, EPSILON = 30, 20, 0.5


def run() -> dict:
    """Measure windows per second by number of sensors; on each set, with and without the guard."""
    results: dict = {"windows_per_s": {n: speed(n) for n in (15, 100)}}
    folder = os.environ.get("AFT_SENSORS")
    for name, season in SEASONS.items() if folder else ():
        frame = pd.read_parquet(Path(str(folder)) / f"{name}.parquet").astype(float)
        results[name] = back_test(frame.interpolate().bfill().to_numpy(), season)
    return results


def speed(n: int) -> float:
    """Measure windows per second of one interval, choosing O anew after each."""
    rng = np.random.default_rng(1)
    windows = rng.normal(size=(300, WINDOW, 1)) + 0.3 * rng.normal(size=(300, WINDOW, n))
    guard = replay_guard(WINDOW, [0], 0.1, DELTA, n)
    guard.update(windows[:200])
    began = time.perf_counter()
    guard.update(windows[200:])
    return round(100 / (time.perf_counter() - began), 1)


def back_test(values: np.ndarray, season: float) -> dict:
    """Shares of (sensor, window) estimated, and of those within ε, after a checkpoint at τ = 10."""
    cost, seasons = RecoveryTime(0, 1), [season, season / 2]
    n = values.shape[1]
    common = WINDOW, (0, WINDOW - LOST), EPSILON, DELTA, cost, n * WINDOW
    guarantees, _ = guarded_windows(values, *common, seasons=seasons)
    table = guarantee_table(guarantees[guarantees["tau"] > 0], DELTA).set_index("method")
    columns = ["estimated", "within", "worst_sensor", "windows"]
    rounded = table[columns].round(4).astype(object)
    return rounded.where(rounded.notna(), None).to_dict(orient="index")
