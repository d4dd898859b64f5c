"""How many estimates are within ε, over all complete windows of the data.

A schedule of kills gives some ten estimated windows, too few for a share. Here every second window
is lost, without processes: once for each worker.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from aftlib.core.intervals import bootstrap_share
from aftlib.recovery_comparison.cases import Case
from aftlib.recovery_comparison.schemes import SCHEMES, SchemeEstimator

BLOCK_STEPS = 240
"""Steps of a block that is resampled as a whole: neighbouring windows fail together."""
FEWEST_BLOCKS = 5


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
