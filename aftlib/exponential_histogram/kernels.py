"""The inner loops of bulk updates, compiled.

Import this module only when a bulk update needs it: importing it imports numba. All that its entry
points, `count_blocks`, `apply` and `compact`, call stands in this one file, because a change of an
entry point's own file is what renews numba's cache on disk.

Units are counted from 1: the units that are held first, oldest first, then the chunk's. A *rank*
counts the other way, from the newest unit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aftlib.core.compiling import DOUBLES, LONGS, OCTETS, WORDS, jit

#: A block of bits: 64 words of 8 events, so that the bytes of the words' sum stay below 256.
BLOCK_WORDS = 64
BLOCK_SHIFT = 9

_LOW_BYTES = np.uint64(0x00FF00FF00FF00FF)
_EACH_BYTE = np.uint64(0x0101010101010101)
_EACH_PAIR = np.uint64(0x0001000100010001)
_TOP_BITS = np.uint64(0x8080808080808080)
_NOT_BITS = np.uint64(0xFEFEFEFEFEFEFEFE)
_U7, _U8, _U48, _U56 = np.uint64(7), np.uint64(8), np.uint64(48), np.uint64(56)


class Chunk(NamedTuple):
    """Events to apply: `cum[b]` units stand before block b, a block being 2**shift events.

    With shift 0 every event is its own block, and `bits` and `words` are empty. A word holds eight
    bits, the earliest in its lowest byte; `tail` those that fill no word. Without `times` (count
    windows) the events happen at now + 1, now + 2, ….
    """

    cum: Any
    shift: int
    bits: Any
    words: Any
    tail: Any
    times: Any
    now: int
    size: int


class Held(NamedTuple):
    """The buckets before the chunk, newest first: timestamps, and ranks of their newest units."""

    stamps: Any
    starts: Any
    total: int


@jit()
def top_level(total: int, least: int) -> int:
    """The largest bucket's size is 2**level."""
    level = 0
    while ((least + 1) << (level + 1)) - least <= total:
        level += 1
    return level


@jit()
def bucket_starts(total: int, least: int) -> NDArray[np.int64]:
    """Rank of each bucket's newest unit, newest bucket first."""
    level = top_level(total, least)
    rest = total - least * ((1 << level) - 1)
    starts = np.empty((least + 1) * level + (rest >> level), np.int64)
    rank, first = 1, 0
    for i in range(level + 1):
        count = least + ((rest >> i) & 1) if i < level else rest >> level
        for j in range(count):
            starts[first + j] = rank + (j << i)
        rank, first = rank + (count << i), first + count
    return starts[:first]


@jit()
def ones(word: Any) -> Any:
    """How many of a word's eight bytes are 1."""
    return np.int64((word * _EACH_BYTE) >> _U56)


@jit()
def ones_of_sum(lanes: Any) -> Any:
    """The sum of eight bytes of any value."""
    pairs = (lanes & _LOW_BYTES) + ((lanes >> _U8) & _LOW_BYTES)
    return np.int64((pairs * _EACH_PAIR) >> _U48)


@jit()
def byte_of(word: Any, rank: int) -> Any:
    """Index of the byte that holds the rank-th one of a word."""
    running = word * _EACH_BYTE
    reached = ((running | _TOP_BITS) - np.uint64(rank) * _EACH_BYTE) & _TOP_BITS
    return 8 - ones(reached >> _U7)


@jit()
def units_before(chunk: Chunk, event: int) -> Any:
    """Units of the chunk's first so many events."""
    block = event >> chunk.shift
    units = chunk.cum[block]
    if chunk.shift > 0:
        lanes = np.uint64(0)
        for index in range(block * BLOCK_WORDS, event >> 3):
            lanes += chunk.words[index]
        units += ones_of_sum(lanes)
        for earlier in range(event & ~7, event):
            units += chunk.bits[earlier]
    return units


@jit()
def find(ascending: Any, value: int, low: int) -> int:
    """First index from `low` on whose entry is at least the value: found near `low` the sooner."""
    step, high = 1, low
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
def word_of(words: Any, unit: int, index: int, before: int) -> tuple[int, int]:
    """Index of the word that brings a unit, and the units before it, from a word not after it.

    An index past the last word means the tail.
    """
    while index + 8 <= words.size:
        row = words[index : index + 8]
        here = ones(row[0] + row[1] + row[2] + row[3] + row[4] + row[5] + row[6] + row[7])
        if before + here >= unit:
            break
        before += here
        index += 8
    while index < words.size:
        here = ones(words[index])
        if before + here >= unit:
            break
        before += here
        index += 1
    return index, before


@jit()
def event_of(chunk: Chunk, unit: int, earliest: int) -> Any:
    """The chunk's event that brings its unit-th unit; it is none before `earliest`."""
    block = find(chunk.cum, unit, (earliest >> chunk.shift) + 1) - 1
    if chunk.shift == 0:
        return block
    index, before = word_of(chunk.words, unit, block * BLOCK_WORDS, chunk.cum[block])
    word = chunk.words[index] if index < chunk.words.size else chunk.tail
    return index * 8 + byte_of(word, unit - before)


@jit()
def time_of(chunk: Chunk, event: int) -> Any:
    """When an event happens."""
    return chunk.times[event] if chunk.times.size else chunk.now + 1 + event


@jit()
def first_at(chunk: Chunk, time: int, earliest: int) -> Any:
    """The first event, `earliest` or later, at or after a time; the size if there is none."""
    if chunk.times.size:
        return find(chunk.times, time, earliest)
    return min(max(time - chunk.now - 1, earliest), chunk.size)


@jit()
def write(out: Any, chunk: Chunk, first: int, after: int, units: int, deducted: int) -> None:
    """Answer events first … after - 1: the chunk's units so far, less half of what is deducted.

    `units` came before event `first`. Doubled integers are halved last, which keeps all digits.
    """
    if chunk.shift == 0:
        for event in range(first, after):
            out[event] = 0.5 * (2 * chunk.cum[event + 1] - deducted)
    else:
        doubled: Any = 2 * units - deducted
        for event in range(first, after):
            doubled += 2 * np.int64(chunk.bits[event])
            out[event] = 0.5 * doubled


@jit()
def answer(
    out: Any, chunk: Chunk, first: int, after: int, ends: Any, base: int, least: int, article: bool
) -> None:
    """Estimates after each of some events between which nothing expires.

    The largest bucket's size changes only where the total, base + units, crosses a threshold.
    `ends` are the units before event `first` and before event `after`.
    """
    units, all_units = ends
    total = base + units
    while first < after:
        level = top_level(total, least)
        limit = ((least + 1) << (level + 1)) - least
        until = after
        if base + all_units >= limit:
            until = event_of(chunk, limit - base, first)
        largest = 1 << level
        deducted = largest - (largest & 1) if article else largest - 1
        write(out, chunk, first, until, units, deducted - 2 * base)
        if until < after:
            units, total = units_before(chunk, until), base + units_before(chunk, until + 1)
        first = until


@jit()
def sweep(
    held: Held, chunk: Chunk, window: int, least: int, out: Any, sure: int, article: bool
) -> int:
    """Units that expire during the chunk: hop from one expiry of the oldest bucket to the next.

    What expires first is settled by the total at that moment: had the oldest bucket merged with its
    neighbour by then, the merged one lives on. Nothing expires in the first `sure` events.
    """
    expired, event = 0, sure
    units: Any = units_before(chunk, sure)
    oldest, brought = held.starts.size - 1, 0
    write(out, chunk, 0, sure, 0, -2 * held.total)
    while event < chunk.size:
        total = held.total + units - expired
        level = top_level(total, least)
        edge = expired + (1 << level)  # the oldest bucket's newest unit
        if total == 0:
            more = units < chunk.cum[-1]
            until = event_of(chunk, units + 1, event) + 1 if more else chunk.size
        elif edge > held.total:
            brought = event_of(chunk, edge - held.total, brought)
            until = first_at(chunk, time_of(chunk, brought) + window, event)
        else:
            while held.starts[oldest] > held.total - edge + 1:
                oldest -= 1
            until = first_at(chunk, held.stamps[oldest] + window, event)
        ends = units, units_before(chunk, until)
        if out.size:
            answer(out, chunk, event, until, ends, held.total - expired, least, article)
        event, units = until, ends[1]
        if total > 0 and top_level(held.total + units - expired, least) == level:
            # It did not merge with its neighbour in the meantime.
            expired += (1 << level) if event < chunk.size else 0
    return expired


@jit()
def regroup(held: Held, chunk: Chunk, total: int, least: int) -> NDArray[np.int64]:
    """Timestamps of the buckets after the chunk, newest first: sizes depend on the total alone."""
    starts = bucket_starts(total, least)
    brought = chunk.cum[-1]
    fresh = find(starts, brought + 1, 0)
    stamps = np.empty(starts.size, np.int64)
    events = stamps[:fresh]
    if chunk.shift == 0:
        for bucket in range(fresh):
            events[bucket] = find(chunk.cum, brought + 1 - starts[bucket], 0) - 1
    else:
        pick_bits(events, starts, chunk.cum, chunk.words, chunk.tail)
    for bucket in range(fresh):
        stamps[bucket] = time_of(chunk, stamps[bucket])
    old = 0
    for bucket in range(fresh, starts.size):
        while held.starts[old] < starts[bucket] - brought:
            old += 1
        stamps[bucket] = held.stamps[old]
    return stamps


@jit()
def pick_bits(events: Any, starts: Any, cum: Any, words: Any, tail: Any) -> None:
    """Events of the units at the first ranks: few arguments, or LLVM copies them in the loop."""
    block, index, before = 0, 0, 0
    brought = cum[-1]
    for bucket in range(events.size - 1, -1, -1):
        unit = brought + 1 - starts[bucket]
        if cum[block + 1] < unit:
            while cum[block + 1] < unit:
                block += 1
            index, before = block * BLOCK_WORDS, cum[block]
        index, before = word_of(words, unit, index, before)
        word = words[index] if index < words.size else tail
        events[bucket] = index * 8 + byte_of(word, unit - before)


@jit(f"Tuple((int64[::1], boolean))({OCTETS}, {WORDS}, int64)")
def count_blocks(bits: Any, words: Any, width: int) -> tuple[NDArray[np.int64], bool]:
    """Ones before each block of `width` words and in all; whether all the bytes are 0 or 1.

    `width` is BLOCK_WORDS: known only at run time, or LLVM unrolls the loop and uses no vectors.
    """
    blocks = words.size // width
    cum = np.zeros(blocks + 1 + (bits.size > blocks * width * 8), np.int64)
    seen = np.uint64(0)
    for block in range(blocks):
        lanes, either = np.uint64(0), np.uint64(0)
        row = words[block * width : (block + 1) * width]
        for index in range(width):
            lanes += row[index]
            either |= row[index]
        seen |= either
        cum[block + 1] = cum[block] + ones_of_sum(lanes)
    for bit in bits[blocks * width * 8 :]:
        cum[-1] += bit
        seen |= np.uint64(bit)
    if cum.size > blocks + 1:
        cum[-1] += cum[blocks]
    return cum, (seen & _NOT_BITS) == 0


@jit(
    "Tuple((int64[::1], int64))("
    f"Tuple((int64, {LONGS}, int64, {OCTETS}, {WORDS})), Tuple(({LONGS}, int64)), "
    f"Tuple(({LONGS}, int64)), UniTuple(int64, 2), Tuple((float64[::1], int64, boolean)))"
)
def apply(
    units: Any, clock: Any, buckets: Any, rules: Any, answers: Any
) -> tuple[NDArray[np.int64], int]:
    """Timestamps and total after a chunk.

    `units` is an `events.Units`, `buckets` those before the chunk; all are plain tuples. If `out`
    has room, it gets the estimate after each event, the exact total for the first `sure`.
    """
    size, cum, shift, bits, words = units
    (times, now), (stamps, total), (window, least) = clock, buckets, rules
    tail = np.uint64(0)
    for event in range(bits.size - 1, (bits.size & ~7) - 1, -1):
        tail = (tail << _U8) | np.uint64(bits[event])
    chunk = Chunk(cum, shift, bits, words, tail, times, now, size)
    held = Held(stamps, bucket_starts(total, least), total)
    out, sure, article = answers
    expired = sweep(held, chunk, window, least, out, sure, article)
    total += cum[-1] - expired
    return regroup(held, chunk, total, least), total


@jit()
def joined(one: Any, other: Any) -> tuple[int, float, float]:
    """(number, mean, sum of squared deviations from it) of two sets together."""
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
