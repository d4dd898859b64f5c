"""Number, mean and spread of sets of values: joining them, and merging a row of neighbours.

The spread is the sum of squared deviations from the mean. Import this module only when it is
needed: it compiles where numba is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aftlib.core.compiling import DOUBLES, LONGS, jit


@jit()
def joined(one: Any, other: Any) -> tuple[int, float, float]:
    """(number, mean, spread) of two sets together."""
    n, mean, spread = one
    m, other_mean, other_spread = other
    share = m / (n + m)
    gap = other_mean - mean
    return n + m, mean + gap * share, spread + other_spread + gap * gap * n * share


@jit(
    "Tuple((int64[::1], int64[::1], float64[::1], float64[::1]))"
    f"({LONGS}, {LONGS}, {DOUBLES}, {DOUBLES}, float64)"
)
def compact(stamps: Any, counts: Any, means: Any, spreads: Any, slack: float) -> Any:
    """Merge neighbours whose joint spread is at most `slack` times that of all newer values.

    Buckets stand oldest first, in arrays of one length; a merged one keeps the newer timestamp. One
    pass from the newest on leaves no such pair.
    """
    size = stamps.size
    at, number = np.empty(size, np.int64), np.empty(size, np.int64)
    mean, spread = np.empty(size, np.float64), np.empty(size, np.float64)
    newer = (0, 0.0, 0.0)
    kept = size
    for i in range(size - 1, -1, -1):
        bucket = (counts[i], means[i], spreads[i])
        if kept < size:
            last = (number[kept], mean[kept], spread[kept])
            both = joined(bucket, last)
            if both[2] <= slack * newer[2]:
                number[kept], mean[kept], spread[kept] = both
                continue
            newer = joined(newer, last)
        kept -= 1
        at[kept] = stamps[i]
        number[kept], mean[kept], spread[kept] = bucket
    return at[kept:].copy(), number[kept:].copy(), mean[kept:].copy(), spread[kept:].copy()
