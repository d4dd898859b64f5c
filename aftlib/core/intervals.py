"""Confidence intervals for measured rates, so that a promise is judged by more than one number."""

from __future__ import annotations

import numpy as np
from scipy.stats import t

CONFIDENCE = 0.95
RESAMPLES = 1000


def bootstrap_interval(
    rates: np.ndarray, block: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile intervals of mean rates, resampling blocks of whole windows.

    Windows that overlap share samples, and keys of a window err together, so neither may be
    resampled alone: `block` consecutive windows of `rates` (..., windows) go together. Bounds
    (...) are at level `CONFIDENCE`, from `RESAMPLES` resamples, the same ones for every row.
    """
    windows = rates.shape[-1]
    if block < 1 or windows < 1:
        raise ValueError(f"block and windows must be at least 1, got {block!r} and {windows!r}")
    count = max(1, windows // block)
    edges = np.linspace(0, windows, count + 1).astype(int)[:-1]
    means = np.add.reduceat(rates, edges, axis=-1) / np.diff([*edges, windows])
    weights = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES) / count
    levels = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(means @ weights.T, levels, axis=-1)
    return low, high


def t_interval(means: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre, low and high (...) of t intervals at level `CONFIDENCE`.

    `means` (..., parts) come from two or more independent parts.
    """
    parts = means.shape[-1]
    if parts < 2:
        raise ValueError(f"means must come from at least 2 parts, got {parts}; replicate more")
    centre = means.mean(axis=-1)
    half = means.std(axis=-1, ddof=1) / np.sqrt(parts) * t.ppf((1 + CONFIDENCE) / 2, parts - 1)
    return centre, centre - half, centre + half
