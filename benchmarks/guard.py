"""The guard on real sensors: what it certifies, whether that held, and windows per second.

Sets are the wide Parquet files in the folder that ``AFT_SENSORS`` names; without it only the speed
and the effect of gaps are measured, on generated windows.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.guard import Guard

SEASONS = {  # steps
    "gefcom12_temp": 24,
    "beijing_pm25": 24,
    "irish_wind": 365.25,
    "chicago_ridership": 7,
    "simbench_load": 96,
}
WIDTH, WORKERS, DELTA = 10, 4, 0.05
WEIGHTS = np.array([5, 4, 3, 2, 1]) / 15
"""Of the horizons 1 … 5."""


def run() -> dict:
    """Measure sensor-windows per second by number of sensors; back-test the guard on each set."""
    results: dict = {"sensor_windows_per_s": {n: speed(n) for n in (15, 100, 1000)}}
    results["estimated_by_share_of_gaps"] = {
        n: {share: gaps(n, share) for share in (0.0, 0.01, 0.05, 0.2)} for n in (10, 50)
    }
    folder = os.environ.get("AFT_SENSORS")
    for name, season in SEASONS.items() if folder else ():
        frame = pd.read_parquet(Path(str(folder)) / f"{name}.parquet").astype(float)
        values = frame.interpolate().bfill().to_numpy()
        results[name] = {
            f"{epsilon} sd, slide {slide}": back_test(values, season, epsilon, slide)
            for epsilon, slide in ((0.5, 10), (0.75, 10), (0.75, 5))
        }
    return results


def speed(n: int) -> int:
    """Measure sensor-windows per second, for all five horizons on one core."""
    rng = np.random.default_rng(1)
    windows = rng.normal(size=(max(1000, 100_000 // n), 1)) + rng.normal(size=(1, n))
    windows = windows + 0.3 * rng.normal(size=(len(windows), n))
    workers = np.array_split(np.arange(n), WORKERS)
    guard = Guard(workers, 0.5, DELTA)
    guard.update(windows[:10])
    began = time.perf_counter()
    guard.update(windows[10:])
    return int((len(windows) - 10) * n / (time.perf_counter() - began))


def gaps(n: int, share: float, epsilon: float = 0.9, rounds: int = 2000) -> dict:
    """Outages of one worker for three windows, while a share of all windows is missing at random.

    Sensors share an AR(1); each has a worker of its own.
    """
    rng, common, lost = np.random.default_rng(1), np.zeros((rounds, 1)), np.zeros((rounds, n), bool)
    for t in range(1, rounds):
        common[t] = 0.9 * common[t - 1] + rng.normal()
    truth = common + 0.3 * rng.normal(size=(rounds, n))
    windows = np.where(rng.random(truth.shape) < share, np.nan, truth)
    for number, start in enumerate(range(600, rounds - 3, 11)):
        lost[start : start + 3, number % n] = True
    windows[lost] = np.nan
    guard = Guard([[i] for i in range(n)], epsilon, DELTA)
    began = time.perf_counter()
    recovered = guard.update(windows)
    took = time.perf_counter() - began
    certified = recovered.declared & lost
    wrong = np.abs(recovered.estimate - truth)[certified] > epsilon
    return {
        "estimated": round(float(certified.sum() / lost.sum()), 3),
        "wrong": round(float(wrong.mean()), 4),
        "ms_per_window": round(1e3 * took / rounds, 2),
    }


def back_test(values: np.ndarray, season: float, epsilon: float, slide: int) -> dict:
    """Feed the first half, score the second; epsilon in standard deviations of the first."""
    starts, n = np.arange(0, len(values) - WIDTH + 1, slide), values.shape[1]
    sums = np.vstack([np.zeros(n), np.cumsum(values, axis=0)])
    windows = (sums[starts + WIDTH] - sums[starts]) / WIDTH
    half = len(windows) // 2
    limits = epsilon * windows[:half].std(axis=0)
    workers = [list(range(first, n, WORKERS)) for first in range(WORKERS)]
    guard = Guard(workers, limits, DELTA, seasons=[season / slide, season / slide / 2])
    guard.update(windows[:half])
    history = guard.replay(windows[half:])
    certified = history.decisions == 2
    wrong = np.abs(windows[half:, None] - history.estimate) > limits
    number, errors = certified.sum(axis=0), (certified & wrong).sum(axis=0)
    sensors, bad = WEIGHTS @ number, WEIGHTS @ errors
    many = number.sum(axis=0) >= 400
    return {
        "declared": round(float(WEIGHTS @ certified.mean(axis=(0, 2))), 3),
        "within": round(float(1 - bad.sum() / max(sensors.sum(), 1e-9)), 4),
        "worst_sensor": round(float(1 - (bad / np.maximum(sensors, 1e-9))[many].max(initial=0)), 3),
        "pairs": int(number.sum()),
        "all_within": round(float(1 - WEIGHTS @ wrong.mean(axis=(0, 2))), 3),
    }
