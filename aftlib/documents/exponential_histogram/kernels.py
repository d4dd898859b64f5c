"""The inner loops of bulk updates, compiled.

Import this module only when a bulk update needs it, because it imports numba, where installed. The
entry points are `count_blocks`, `apply` and `answer`.

Units are numbered from 1: first the held units, oldest first, then the chunk's units. A *rank*
numbers units from the newest one back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aftlib.core.compiling import LONGS, OCTETS, jit
from aftlib.core.intrinsics import bytes_above, ones
from aftlib.documents.exponential_histogram.units import bucket_sizes as sizes_of
from aftlib.documents.exponential_histogram.units import top_level as level_of

#: A block of bits: 64 events, which are compared at once and make one machine word, its mask.
BLOCK = 64
BLOCK_SHIFT = 6
_STRIDE = 8  # blocks that a search skips at once

_U1 = np.uint64(1)


class Chunk(NamedTuple):
    """Events to apply; `cum[b]` counts the units before block b, which has 2**shift events.

    With shift 0 every event is its own block, and `bits` is empty. `tail` is the mask of the last
    events, which fill no whole block. Without `times` (count windows) the events happen at now + 1,
    now + 2, ….
    """

    cum: Any
    shift: int
    bits: Any
    tail: Any
    times: Any
    now: int
    size: int


class Held(NamedTuple):
    """The buckets before the chunk, newest first: timestamps, and ranks of their newest units."""

    stamps: Any
    starts: Any
    total: int


top_level = jit()(level_of)
bucket_sizes = jit()(sizes_of)


@jit()
def bucket_starts(total: int, least: int) -> Any:
    """Rank of each bucket's newest unit, newest bucket first."""
    sizes = bucket_sizes(total, least, top_level(total, least))
    return np.cumsum(sizes) - sizes + 1


@jit()
def place_of(mask: Any, unit: int) -> Any:
    """Index of the unit-th 1 of a mask, the lowest being the first: halve the mask six times."""
    place = 0
    for step in range(6):
        width = np.uint64(32 >> step)
        below = ones(mask & ((_U1 << width) - _U1))
        upper = below < unit
        unit -= below * upper
        mask >>= width * np.uint64(upper)
        place += (32 >> step) * upper
    return place


@jit()
def mask_of(bits: Any, tail: Any, block: int) -> Any:
    """Mask of a block of bits; behind the last whole block, the mask of the tail."""
    first = block << BLOCK_SHIFT
    return bytes_above(bits, first, 0) if first + BLOCK <= bits.size else tail


@jit()
def units_before(chunk: Chunk, event: int) -> Any:
    """Units of the chunk's first `event` events."""
    block = event >> chunk.shift
    units = chunk.cum[block]
    if chunk.shift > 0 and event & (BLOCK - 1):
        earlier = (_U1 << np.uint64(event & (BLOCK - 1))) - _U1
        units += ones(mask_of(chunk.bits, chunk.tail, block) & earlier)
    return units


@jit()
def find(ascending: Any, value: int, low: int) -> int:
    """First index from `low` on whose entry is at least the value; fastest near `low`."""
    step = 1
    high = low
    while high < ascending.size and ascending[high] < value:
        low = high + 1
        high += step
        step *= 2
    high = min(high, ascending.size)
    while low < high:
        middle = (low + high) >> 1
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@jit()
def event_of(chunk: Chunk, unit: int, earliest: int) -> Any:
    """Event that adds unit number `unit` of the chunk; it must not be before event `earliest`."""
    block = find(chunk.cum, unit, (earliest >> chunk.shift) + 1) - 1
    if chunk.shift == 0:
        return block
    mask = mask_of(chunk.bits, chunk.tail, block)
    return (block << BLOCK_SHIFT) + place_of(mask, unit - chunk.cum[block])


@jit()
def time_of(chunk: Chunk, event: int) -> Any:
    """Time of an event."""
    return chunk.times[event] if chunk.times.size else chunk.now + 1 + event


@jit()
def first_at(chunk: Chunk, time: int, earliest: int) -> Any:
    """First event, `earliest` or later, at or after a time; without one, the number of events."""
    if chunk.times.size:
        return find(chunk.times, time, earliest)
    return min(max(time - chunk.now - 1, earliest), chunk.size)


@jit()
def record(totals: Any, chunk: Chunk, first: int, after: int, total: Any) -> None:
    """Write the totals after the events `first` … `after` - 1, during which nothing expires."""
    for event in range(first, after):
        if chunk.shift == 0:
            total += chunk.cum[event + 1] - chunk.cum[event]
        else:
            total += np.int64(chunk.bits[event])
        totals[event] = total


@jit()
def expired_units(held: Held, chunk: Chunk, window: int, least: int, totals: Any) -> int:
    """Units that expire during the chunk: hop from one expiry of the oldest bucket to the next.

    The total at that moment decides whether a bucket expires. If the oldest bucket has merged with
    its neighbour by then, the merged bucket stays.
    """
    expired = 0
    event = 0
    level = 0
    units: Any = 0
    oldest = held.starts.size - 1
    brought = 0
    while event < chunk.size:
        total = held.total + units - expired
        level = top_level(total, least, level)
        edge = expired + (1 << level)  # the oldest bucket's newest unit
        if total == 0:
            more = units < chunk.cum[-1]
            until = event_of(chunk, units + 1, event) + 1 if more else chunk.size
        elif edge > held.total:
            brought = event_of(chunk, edge - held.total, brought)
            until = first_at(chunk, time_of(chunk, brought) + window, event)
        else:
            while held.starts[oldest] > held.total - edge + 1:  # the rank of unit `edge`
                oldest -= 1
            until = first_at(chunk, held.stamps[oldest] + window, event)
        if totals.size:
            record(totals, chunk, event, until, total)
        event = until
        units = units_before(chunk, until)
        if total > 0 and top_level(held.total + units - expired, least, level) == level:
            # It did not merge with its neighbour in the meantime.
            expired += (1 << level) if event < chunk.size else 0
    return expired


@jit()
def regroup(held: Held, chunk: Chunk, total: int, least: int) -> NDArray[np.int64]:
    """Timestamps of the buckets after the chunk, newest first; sizes follow from the total."""
    starts = bucket_starts(total, least)
    brought = chunk.cum[-1]
    fresh = find(starts, brought + 1, 0)
    stamps = np.empty(starts.size, np.int64)
    events = stamps[:fresh]
    if chunk.shift == 0:
        for bucket in range(fresh):
            events[bucket] = find(chunk.cum, brought + 1 - starts[bucket], 0) - 1
    else:
        pick_bits(events, starts, chunk.cum, chunk.bits, chunk.tail)
    for bucket in range(fresh):
        stamps[bucket] = time_of(chunk, stamps[bucket])
    old = 0
    for bucket in range(fresh, starts.size):
        while held.starts[old] < starts[bucket] - brought:
            old += 1
        stamps[bucket] = held.stamps[old]
    return stamps


@jit()
def pick_bits(events: Any, starts: Any, cum: Any, bits: Any, tail: Any) -> None:
    """Fill `events` with the events of the units at the first ranks of `starts`.

    It has few arguments, because LLVM would copy more of them in the loop.
    """
    block = 0
    brought = cum[-1]
    for bucket in range(events.size - 1, -1, -1):
        unit = brought + 1 - starts[bucket]
        while block + _STRIDE < cum.size and cum[block + _STRIDE] < unit:
            block += _STRIDE
        if block + _STRIDE < cum.size:  # without branches, as they would be mispredicted
            block += 4 * (cum[block + 4] < unit)
            block += 2 * (cum[block + 2] < unit)
            block += cum[block + 1] < unit
        while cum[block + 1] < unit:
            block += 1
        place = place_of(mask_of(bits, tail, block), unit - cum[block])
        events[bucket] = (block << BLOCK_SHIFT) + place


@jit(f"int64[::1]({OCTETS})")
def count_blocks(bits: Any) -> NDArray[np.int64]:
    """Return the ones before each block and in all."""
    blocks = bits.size >> BLOCK_SHIFT
    rest = bits[blocks << BLOCK_SHIFT :]
    cum = np.empty(blocks + 1 + (rest.size > 0), np.int64)
    units = 0
    cum[0] = units
    for block in range(blocks):
        units += ones(bytes_above(bits, block << BLOCK_SHIFT, 0))
        cum[block + 1] = units
    for bit in rest:
        units += int(bit)
    cum[-1] = units
    return cum


@jit(
    "Tuple((int64[::1], int64))("
    f"Tuple((int64, {LONGS}, int64, {OCTETS})), Tuple(({LONGS}, int64)), "
    f"Tuple(({LONGS}, int64)), UniTuple(int64, 2), int64[::1])"
)
def apply(
    units: Any, clock: Any, buckets: Any, rules: Any, totals: Any
) -> tuple[NDArray[np.int64], int]:
    """Return the timestamps and the total after a chunk.

    `units` is an `units.Units` as a plain tuple. `buckets` are those before the chunk. If `totals`
    is not empty, it gets the total after each event.
    """
    size, cum, shift, bits = units
    times, now = clock
    stamps, total = buckets
    window, least = rules
    tail = np.uint64(0)
    for event in range(bits.size - 1, (bits.size & -BLOCK) - 1, -1):
        tail = (tail << _U1) | np.uint64(bits[event])
    chunk = Chunk(cum, shift, bits, tail, times, now, size)
    held = Held(stamps, bucket_starts(total, least), total)
    total += cum[-1] - expired_units(held, chunk, window, least, totals)
    return regroup(held, chunk, total, least), total


@jit("void(float64[::1], int64[::1], UniTuple(int64, 2), int64, boolean)")
def answer(answers: Any, totals: Any, rules: Any, exact: int, article: bool) -> None:
    """Write the estimate after each event, whose total is given; the first `exact` are exact.

    With `article` write the article's estimates. `rules` are `least` and `scale`. The largest
    bucket's size changes only where the total leaves its level's range.
    """
    least, scale = rules
    level = 0
    begin = 0  # totals begin … end - 1 have this level
    end = 0
    for event in range(totals.size):
        total = totals[event]
        if total < begin or total >= end:
            level = top_level(total, least, level)
            begin = ((least + 1) << level) - least
            end = ((least + 1) << (level + 1)) - least
        largest = (1 << level) if total > 0 else 0
        if article:
            answers[event] = np.ceil((2 * total - largest) / (2 * scale))
        else:
            doubt = max(largest - 1, 0) if event >= exact else 0
            answers[event] = (2 * total - doubt) / (2 * scale)
