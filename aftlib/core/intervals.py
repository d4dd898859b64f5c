"""Confidence intervals for measured rates, means and ratios."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
LEVELS = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
RESAMPLES = 1000


def bootstrap_interval(
    rates: np.ndarray, block: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile intervals of mean rates, resampling blocks of whole windows.

    Windows that overlap share samples, and keys of a window err together. So `block` consecutive
    windows of `rates` (..., windows) are drawn together. The bounds (...) have level `CONFIDENCE`
    and come from `RESAMPLES` resamples, which are the same for every row of `rates`.
    """
    windows = rates.shape[-1]
    if block < 1 or windows < 1:
        raise ValueError(f"block and windows must be at least 1, got {block!r} and {windows!r}")
    count = max(1, windows // block)
    edges = np.linspace(0, windows, count + 1).astype(int)[:-1]
    means = np.add.reduceat(rates, edges, axis=-1) / np.diff([*edges, windows])
    weights = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES) / count
    low, high = np.quantile(means @ weights.T, LEVELS, axis=-1)
    return low, high


def bootstrap_share(
    hits: np.ndarray, totals: np.ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    """Percentile interval of Σ hits / Σ totals, resampling whole units.

    Both have shape (units,); errors within a unit may depend on each other. No total may be 0.
    """
    units = len(totals)
    weights = rng.multinomial(units, np.full(units, 1 / units), size=RESAMPLES)
    low, high = np.quantile(weights @ hits / (weights @ totals), LEVELS)
    return float(low), float(high)


def t_interval(means: np.ndarray, family: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre, low and high (...) of t intervals at level `CONFIDENCE`.

    `means` (..., parts) come from two or more independent parts. If `family` is above 1, that many
    such intervals hold jointly at this level (Bonferroni).
    """
    parts = means.shape[-1]
    if parts < 2:
        raise ValueError(f"means must come from at least 2 parts, got {parts}; replicate more")
    centre = means.mean(axis=-1)
    quantile = stdtrit(parts - 1, 1 - (1 - CONFIDENCE) / 2 / family)
    half = means.std(axis=-1, ddof=1) / np.sqrt(parts) * quantile
    return centre, centre - half, centre + half


def share_interval(count: int, n: int) -> tuple[float, float]:
    """Exact interval (Clopper and Pearson) of a share at level `CONFIDENCE`: `count` of `n`."""
    from scipy.stats import binomtest  # imported here: it takes 0.4 s to load

    interval = binomtest(count, n).proportion_ci(CONFIDENCE)
    return float(interval.low), float(interval.high)


def ratio_interval(
    x: np.ndarray, y: np.ndarray, paired: bool = False, family: int = 1
) -> tuple[float, tuple[float, float]]:
    """Ratio of the means of `x` and `y`, shape (trials,) each, and its t interval.

    The delta method gives the interval. If `paired`, x[i] and y[i] have the same conditions. If
    `family` is above 1, that many such intervals hold jointly at level `CONFIDENCE` (Bonferroni).
    ValueError with fewer than two trials or a mean of 0 in `y`.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
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
    half = stdtrit(least - 1, 1 - (1 - CONFIDENCE) / 2 / family) * error / abs(y.mean())
    return ratio, (float(ratio - half), float(ratio + half))
