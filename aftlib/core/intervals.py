"""Confidence intervals for measured rates, means and ratios."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, stdtrit

CONFIDENCE = 0.95
LEVELS = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
RESAMPLES = 1000


def bootstrap_share(
    hits: np.ndarray, totals: np.ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    """Percentile interval of Σ hits / Σ totals, resampling whole units.

    Both have shape (units,); errors within a unit may depend on each other. No total may be 0. If
    each is 1, the share is the mean of `hits`.
    """
    units = len(totals)
    weights = rng.multinomial(units, np.full(units, 1 / units), size=RESAMPLES)
    low, high = np.quantile(weights @ hits / (weights @ totals), LEVELS)
    return float(low), float(high)


def t_interval(means: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre, low and high (...) of t intervals at level `CONFIDENCE`.

    `means` (..., parts) come from two or more independent parts.
    """
    parts = means.shape[-1]
    if parts < 2:
        raise ValueError(f"means must come from at least 2 parts, got {parts}; replicate more")
    centre = means.mean(axis=-1)
    quantile = stdtrit(parts - 1, 1 - LEVELS[0])
    half = means.std(axis=-1, ddof=1) / np.sqrt(parts) * quantile
    return centre, centre - half, centre + half


def share_interval(count: int, n: int) -> tuple[float, float]:
    """Exact interval (Clopper and Pearson) of a share at level `CONFIDENCE`: `count` of `n`."""
    from scipy.stats import binomtest  # imported here: it takes 0.4 s to load

    interval = binomtest(count, n).proportion_ci(CONFIDENCE)
    return float(interval.low), float(interval.high)


def clustered_share_interval(hits: np.ndarray, trials: np.ndarray) -> tuple[float, float]:
    """Interval of Σ hits / Σ trials at level `CONFIDENCE`, however alike the trials of a unit are.

    Both have shape (units,), and units are independent. If all trials t of a unit have one outcome,
    their effective number is (Σ t)² / Σ t² (Kish); the interval is Clopper and Pearson's of so many
    (Korn and Graubard, 1998). It is too wide where trials of a unit are less alike.
    """
    number = trials.sum() ** 2 / (trials**2).sum()
    share = hits.sum() / trials.sum()
    count = number * share
    low = betaincinv(count, number - count + 1, LEVELS[0]) if share > 0 else 0.0
    high = betaincinv(count + 1, number - count, LEVELS[1]) if share < 1 else 1.0
    return float(low), float(high)


def ratio_interval(
    x: np.ndarray, y: np.ndarray, paired: bool = False, family: int = 1
) -> tuple[float, tuple[float, float]]:
    """Ratio of the means of `x` and `y`, shape (trials,) each, and its t interval.

    The delta method gives the interval. If `paired`, x[i] and y[i] have the same conditions. If
    `family` is above 1, that many such intervals hold jointly at level `CONFIDENCE` (Bonferroni).
    ValueError with fewer than two trials or a mean of 0 in `y`.
    """
    x = np.asarray(x, dtype=float)
    y = np.asarray(y, dtype=float)
    least = min(len(x), len(y))
    if least < 2 or y.mean() == 0:
        raise ValueError(
            f"x and y must have 2 trials or more, and y a mean other than 0, got {x!r} and {y!r}"
        )
    ratio = float(x.mean() / y.mean())
    if paired:
        error = (x - ratio * y).std(ddof=1) / np.sqrt(least)
    else:
        error = np.hypot(x.std(ddof=1) / np.sqrt(len(x)), ratio * y.std(ddof=1) / np.sqrt(len(y)))
    half = stdtrit(least - 1, 1 - LEVELS[0] / family) * error / abs(y.mean())
    return ratio, (float(ratio - half), float(ratio + half))
