"""Units: checked events and times, and the rule which buckets a number of units has.

Bits or integers become units, counted by blocks or one by one. Other inputs are refused by a
ValueError that names the position.

With k = ⌈1/ε⌉ and `least` = ⌈k/2⌉, every size but the largest has `least` or `least` + 1 buckets,
and the largest has 1 … `least` + 1. So a bucket of size 2**i exists from a total of
least · (2**i - 1) + 2**i on. Exactly one such list sums to a given total. So sizes need not
be stored: a histogram is its total and one timestamp per bucket (Datar, Gionis, Indyk, Motwani).
`kernels` compiles the same functions (core.compiling).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Totals stay below this, so that no sum of two of them leaves 64 bits.
MAX_UNITS = 2**61


class Units(NamedTuple):
    """The units that `size` events bring.

    `cum` counts those before each block of 2**shift events, and at last those of all events. `bits`
    are empty when shift is 0.
    """

    size: int
    cum: NDArray[np.int64]
    shift: int = 0
    bits: NDArray[np.uint8] = np.empty(0, np.uint8)


def running(units: NDArray[np.integer]) -> Units:
    """Return units in which every event is a block of its own."""
    cum = np.zeros(units.size + 1, np.int64)
    np.cumsum(units, out=cum[1:])
    return Units(units.size, cum)


def refuse(bad: NDArray[np.bool_], array: NDArray[Any], wanted: str, fix: str) -> None:
    """Raise ValueError for the first bad entry, if there is one."""
    if bad.any():
        place = int(np.argmax(bad))
        raise ValueError(f"{wanted}, got {array[place]} at position {place}: {fix}")


def check_total(total: int, events: NDArray[Any], scale: int) -> None:
    """Raise ValueError unless total and events, in units of 1/scale, together stay below 2**61."""
    if events.size == 0 or int(events.max()) * events.size * scale < MAX_UNITS - total:
        return
    added = sum(events.tolist())
    if total + added * scale >= MAX_UNITS:
        raise ValueError(
            f"events sum to {added}, which with the window's {total / scale:g} overflows the limit "
            f"of {MAX_UNITS // scale}: use a coarser unit, or shorter calls"
        )


def as_times(timestamps: ArrayLike, size: int, now: int) -> NDArray[np.int64]:
    """Timestamps as 64-bit integers, one per event, in order and not before `now`."""
    array = as_row("timestamps", timestamps, "integers, such as milliseconds")
    if array.size != size:
        raise ValueError(
            f"timestamps must be one per event, got {array.size} timestamps for {size} events"
        )
    if size and (int(array.min()) <= -MAX_UNITS or int(array.max()) >= MAX_UNITS):
        raise ValueError(f"timestamps must lie within ±2**61, got {array.min()} … {array.max()}")
    times = np.ascontiguousarray(array, dtype=np.int64)
    before = np.append(now, times[:-1])[:size]
    if (back := times < before).any():
        place = int(np.argmax(back))
        raise ValueError(
            f"timestamps must not go back, got {times[place]} after {before[place]}: sort the "
            "events, or keep late ones in a second histogram and merge"
        )
    return times


def as_row(name: str, values: ArrayLike, wanted: str) -> NDArray[Any]:
    """One value or a row of booleans or integers as an array."""
    array = np.atleast_1d(np.asarray(values))
    if array.ndim > 1:
        raise ValueError(f"{name} must be one value or a row, got shape {array.shape}: ravel it")
    if array.size == 0:
        return array.astype(np.uint8)
    if array.dtype.kind not in "biu":
        raise ValueError(f"{name} must be {wanted}, got type {array.dtype}: convert them first")
    return array


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


def bucket_sizes(total: int, least: int, level: int) -> NDArray[np.int64]:
    """Size of each bucket, newest first, when the largest is at `level`; none if the total is 0."""
    levels = np.arange(level + 1)
    rest = total - least * ((1 << level) - 1)
    counts = least + ((rest >> levels) & 1)
    counts[-1] = rest >> level
    return np.repeat(1 << levels, counts)
