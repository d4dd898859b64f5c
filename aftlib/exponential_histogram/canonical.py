"""The canonical form: how many buckets of which size hold a total.

With `least` = ⌈k/2⌉ and k = ⌈1/ε⌉, every size but the largest has `least` or `least` + 1 buckets,
and the largest has 1 … `least` + 1. Exactly one such list sums to a given total, so the sizes need
not be stored: a histogram is its total and one timestamp a bucket (Datar, Gionis, Indyk, Motwani).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: Totals stay below this, so that no sum of two of them leaves 64 bits.
MAX_UNITS = 2**61


def least_buckets(epsilon: float) -> int:
    """⌈k/2⌉ for k = ⌈1/ε⌉; buckets of one size merge when there are two more than that."""
    # Below 1e-18 nothing would merge before the total reaches its limit.
    return (math.ceil(1 / max(epsilon, 1e-18)) + 1) // 2


def top_level(total: int, least: int) -> int:
    """The largest bucket's size is 2**level; 0 for an empty histogram as well."""
    return ((total + least) // (least + 1)).bit_length() - 1 if total else 0


def bucket_counts(total: int, least: int) -> list[int]:
    """Number of buckets of size 1, 2, 4, …; empty when the total is 0."""
    if total == 0:
        return []
    level = top_level(total, least)
    rest = total - least * ((1 << level) - 1)
    return [least + (rest >> i & 1) for i in range(level)] + [rest >> level]


def bucket_sizes(total: int, least: int) -> NDArray[np.int64]:
    """Sizes of the buckets, newest first."""
    counts = bucket_counts(total, least)
    return np.repeat(1 << np.arange(len(counts), dtype=np.int64), counts)
