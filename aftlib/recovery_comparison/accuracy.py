"""How many results are within ε, without processes: of the schemes' estimates, and of AF-Stream's.

A schedule of kills gives some ten estimated windows, too few for a share. `score_schemes` loses
every second window of the data, once for each worker.

`score_thresholds` applies AF-Stream's thresholds under the kills. AF-Stream (Huang and Lee, PVLDB
2016; Cheng, Huang and Lee, VLDB Journal 2019) stores a state when it differs by more than Θ from
its last backup, and bounds the items that a failure loses. Here the state is the running mean of a
sensor's window, and an item is a sample. A replacement restores the last backup m_b of the mean
after w − 1 of w samples, and processes the last sample:

    result = ((w − 1) m_b + x_w) / w,    |result − exact result| ≤ Θ (w − 1) / w    for any data.

If the last sample is lost, too, the result is m_b, and the bound grows by |x_w − m_{w−1}| / w,
which no threshold limits. A window that is wholly lost during the outage has m_b as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from aftlib.core.intervals import bootstrap_share
from aftlib.recovery_comparison.recoveries import Kill
from aftlib.recovery_comparison.schemes import SCHEMES, Case, SchemeEstimator

BLOCK_STEPS = 240
"""Steps of a block that is resampled as a whole: neighbouring windows fail together."""
FEWEST_BLOCKS = 5
THRESHOLDS = (0.5, 1.0)
"""AF-Stream's Θ, in ε."""


def score_schemes(case: Case, seed: int) -> pd.DataFrame:
    """Return one row per scheme of D1's workers that estimates.

    Columns: scheme; width, steps; lost: results of the lost windows; estimated: the share of them
    that the scheme certified; within: the share of the estimates with an error of at most ε; low,
    high: its 95 % interval, from blocks of `BLOCK_STEPS`, NaN below `FEWEST_BLOCKS`.
    """
    rows = []
    for scheme, make_estimator in SCHEMES.items():
        certified, within = lose_windows(case, make_estimator)
        blocks = np.arange(len(certified)) * 2 * case.windows.width // BLOCK_STEPS
        hits = np.bincount(blocks, within.sum(axis=1))
        totals = np.bincount(blocks, certified.sum(axis=1))
        used = totals > 0
        low = high = np.nan
        if used.sum() >= FEWEST_BLOCKS:
            low, high = bootstrap_share(hits[used], totals[used], np.random.default_rng(seed))
        rows.append(
            {
                "scheme": scheme,
                "width": case.windows.width,
                "lost": certified.size,
                "estimated": certified.mean(),
                "within": hits.sum() / totals.sum() if used.any() else np.nan,
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows)


def lose_windows(
    case: Case, make_estimator: Callable[[Case], SchemeEstimator]
) -> tuple[np.ndarray, np.ndarray]:
    """Return which lost results are certified, and which of these are within ε.

    `make_estimator` is a value of `SCHEMES`. Both have shape (lost windows, n). Every second window
    is lost, by one worker after the other in streams of their own. A sensor that is not certified
    is read again, so the estimator learns it.
    """
    shape = len(case.truth) // 2, case.model.size
    certified = np.zeros(shape, bool)
    within = np.zeros(shape, bool)
    for worker in case.assignment.workers:
        estimator = make_estimator(case)
        sensors = np.asarray(worker)
        for lost, (before, now) in enumerate(zip(case.truth[::2], case.truth[1::2], strict=False)):
            estimator.update(before)
            gone = sensors[np.asarray(estimator.recoverable)[0, sensors]]
            seen = now.copy()
            seen[gone] = np.nan
            error = np.abs(np.asarray(estimator.update(seen).estimate)[0] - now)
            certified[lost, gone] = True
            within[lost, gone] = error[gone] <= case.requirement.epsilon
    return certified, within


def score_thresholds(case: Case, schedule: Sequence[Kill]) -> pd.DataFrame:
    """Restore the killed workers' running means from backups; one row per threshold.

    Each kill before a window's end counts alone. Columns: width, steps; threshold: Θ in ε; backups:
    per sensor and window; again: samples read again; largest: the largest error of a result whose
    last sample is processed, in ε; and the shares of results within ε: restored: of these;
    item_lost: without the last sample; outage: of the next window if it is wholly lost.
    """
    width = case.windows.width
    epsilon = case.requirement.epsilon
    states = running_means(case.streamed, width)
    killed = [kill for kill in schedule if not kill.emitted]
    rows = []
    for share in THRESHOLDS:
        stored, backups = back_up(states, share * epsilon)
        errors = [restoration_errors(case, stored, kill) / epsilon for kill in killed]
        restored, item_lost, outage = np.concatenate(errors, axis=1)
        rows.append(
            {
                "width": width,
                "threshold": share,
                "backups": backups.mean() / len(case.truth),
                "again": 0,
                "largest": restored.max(),
                "restored": (restored <= 1).mean(),
                "item_lost": (item_lost <= 1).mean(),
                "outage": (outage <= 1).mean(),
            }
        )
    return pd.DataFrame(rows)


def running_means(samples: np.ndarray, width: int) -> np.ndarray:
    """Return each sensor's mean since its window began, after every step: shape (steps, n)."""
    windows = samples.reshape(-1, width, samples.shape[1])
    counts = np.arange(1, width + 1)[:, None]
    return np.reshape(windows.cumsum(axis=1) / counts, samples.shape)


def back_up(states: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Store each sensor's state whenever it differs by more than `threshold` from the last backup.

    Return the last backup after every step, shape (steps, n), and the number of backups, shape
    (n,). The first state is a backup.
    """
    stored = np.empty_like(states)
    stored[0] = states[0]
    backups = np.ones(states.shape[1], dtype=np.int64)
    for step in range(1, len(states)):
        due = np.abs(states[step] - stored[step - 1]) > threshold
        stored[step] = np.where(due, states[step], stored[step - 1])
        backups += due
    return stored, backups


def restoration_errors(case: Case, stored: np.ndarray, kill: Kill) -> np.ndarray:
    """Return the errors after a kill just before a window's end, shape (3, sensors of the worker).

    The rows are: the last sample is processed; it is lost; the next window, which is wholly lost.
    """
    width = case.windows.width
    sensors = np.asarray(case.assignment.workers[kill.worker])
    end = (kill.window + 1) * width
    backup = stored[end - 2, sensors]
    result = ((width - 1) * backup + case.streamed[end - 1, sensors]) / width
    exact = case.truth[kill.window, sensors]
    following = case.truth[kill.window + 1, sensors]
    return np.abs([result - exact, backup - exact, backup - following])
