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
NO_BITS = "events must be bits", 'a sum of non-negative integers needs values="integers"'


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


def as_bits(events: ArrayLike) -> NDArray[np.uint8]:
    """Events as one byte each; the caller must refuse unsigned bytes that are not 0 or 1."""
    array = _row(events, "bits (booleans, 0 or 1)")
    if array.dtype.itemsize > 1 or array.dtype == np.int8:  # the view would show -1 as 255
        refuse((array < 0) | (array > 1), array, *NO_BITS)
        return array.astype(np.uint8)
    return np.ascontiguousarray(array).view(np.uint8)


def refuse(bad: NDArray[np.bool_], array: NDArray[Any], wanted: str, fix: str) -> None:
    """Raise ValueError for the first bad entry, if there is one."""
    if bad.any():
        place = int(np.argmax(bad))
        raise ValueError(f"{wanted}, got {array[place]} at position {place}: {fix}")


def as_integers(events: ArrayLike) -> NDArray[np.int64]:
    """Non-negative events as 64-bit integers."""
    array = _row(events, "non-negative integers")
    fix = "an exponential histogram can only add; keep negative parts in a second one"
    refuse(array < 0, array, "events must not be negative", fix)
    if array.dtype == np.uint64 and array.size and array.max() >= MAX_UNITS:
        raise ValueError(f"events must stay below 2**61, got {array.max()}: use a coarser unit")
    return array.astype(np.int64)


def check_total(total: int, units: NDArray[np.integer], scale: int) -> None:
    """Raise ValueError unless total and events, in units of 1/scale, together stay below 2**61."""
    if units.size == 0 or int(units.max()) * units.size * scale < MAX_UNITS - total:
        return
    added = (int((units >> 32).sum()) << 32) + int((units & 0xFFFFFFFF).sum())
    if total + added * scale >= MAX_UNITS:
        raise ValueError(
            f"events sum to {added}, which with the window's {total / scale:g} overflows the limit "
            f"of {MAX_UNITS // scale}: use a coarser unit, or shorter calls"
        )


def as_times(timestamps: ArrayLike, size: int, now: int) -> NDArray[np.int64]:
    """Timestamps as 64-bit integers, one per event, in order and not before `now`."""
    array = _row(timestamps, "integers, such as milliseconds", "timestamps")
    if array.size != size:
        raise ValueError(
            f"timestamps must be one per event, got {array.size} timestamps for {size} events"
        )
    if size == 0:
        return np.empty(0, np.int64)
    if int(array.min()) <= -MAX_UNITS or int(array.max()) >= MAX_UNITS:
        raise ValueError(f"timestamps must lie within ±2**61, got {array.min()} … {array.max()}")
    times = np.ascontiguousarray(array, dtype=np.int64)
    back = times[1:] < times[:-1]
    if times[0] < now or back.any():
        place = 0 if times[0] < now else int(np.argmax(back)) + 1
        before = now if place == 0 else times[place - 1]
        raise ValueError(
            f"timestamps must not go back, got {times[place]} after {before}: sort the events, "
            "or keep late ones in a second histogram and merge"
        )
    return times


def _row(values: ArrayLike, wanted: str, name: str = "events") -> NDArray[Any]:
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


def bucket_sizes(total: int, least: int) -> NDArray[np.int64]:
    """Size of each bucket, newest first; empty when the total is 0."""
    if total == 0:
        return np.empty(0, np.int64)
    level = 0  # as `top_level`, which the compiled copy of this function cannot call
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
