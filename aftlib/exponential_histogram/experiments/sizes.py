"""Memory: buckets and bytes of a full histogram, and of the exact ring of bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.exponential_histogram.experiments.ring import BitRing


def sizes(epsilons: Sequence[float], windows: Sequence[int]) -> pd.DataFrame:
    """Fill windows with ones and weigh the state.

    Returns
    -------
    DataFrame
        epsilon, window, buckets, bytes: of `to_bytes`; ring_bytes; bound: the most buckets that
        (k/2 + 1)(log₂(2N/k + 1) + 1) + 1 allows, k = ⌈1/ε⌉.
    """
    found = []
    for window in windows:
        ring_bytes = BitRing(window).nbytes
        for epsilon in epsilons:
            histogram = filled(window, epsilon)
            half = np.ceil(np.ceil(1 / epsilon) / 2)
            found.append(
                {
                    "epsilon": epsilon,
                    "window": window,
                    "buckets": len(histogram.buckets),
                    "bytes": len(histogram.to_bytes()),
                    "ring_bytes": ring_bytes,
                    "bound": (half + 1) * (np.log2(window / half + 1) + 1) + 1,
                }
            )
    return pd.DataFrame(found)


def filled(window: int, epsilon: float) -> ExponentialHistogram:
    """A histogram of a window full of ones.

    Sums go in at once: a one at each of the last events, and before them what fills the window.
    """
    histogram = ExponentialHistogram(window, epsilon, timed=True, values="integers")
    singles = min(window, 10**6)
    if window > singles:
        histogram.update([window - singles], [0])
    histogram.update(np.ones(singles, np.int64), np.arange(1, singles + 1))
    return histogram


def break_even(table: pd.DataFrame) -> pd.DataFrame:
    """For each ε the smallest window of the table at which the histogram is smaller than the ring.

    Returns
    -------
    DataFrame
        epsilon, window (missing if at none).
    """
    smaller = table[table["bytes"] < table["ring_bytes"]].groupby("epsilon")["window"].min()
    return smaller.reindex(sorted(table["epsilon"].unique())).rename("window").reset_index()
