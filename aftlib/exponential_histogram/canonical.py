"""The rule which buckets a total has; `kernels` compiles the same functions (core.compiling).

With `least` = ⌈k/2⌉ and k = ⌈1/ε⌉, every size but the largest has `least` or `least` + 1 buckets,
and the largest has 1 … `least` + 1. Exactly one such list sums to a given total. So sizes need not
be stored: a histogram is its total and one timestamp per bucket (Datar, Gionis, Indyk, Motwani).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def least_buckets(epsilon: float) -> int:
    """⌈k/2⌉ for k = ⌈1/ε⌉; two buckets of one size merge when there are ⌈k/2⌉ + 2 of them."""
    # Below 1e-18 nothing would merge before the total reaches its limit.
    return (math.ceil(1 / max(epsilon, 1e-18)) + 1) // 2


def top_level(total: int, least: int, level: int = 0) -> int:
    """Level of the largest bucket, whose size is 2**level; the search starts at `level`."""
    while level > 0 and ((least + 1) << level) - least > total:
        level -= 1
    while ((least + 1) << (level + 1)) - least <= total:
        level += 1
    return level


def bucket_sizes(total: int, least: int) -> NDArray[np.int64]:
    """Size of each bucket, newest first; empty when the total is 0."""
    if total == 0:
        return np.empty(0, np.int64)
    level = 0
    while ((least + 1) << (level + 1)) - least <= total:
        level += 1
    rest = total - least * ((1 << level) - 1)
    sizes = np.empty((least + 1) * level + (rest >> level), np.int64)
    first = 0
    for i in range(level + 1):
        count = least + ((rest >> i) & 1) if i < level else rest >> level
        sizes[first : first + count] = 1 << i
        first += count
    return sizes[:first]
