"""The compiled inner loops: over the lines of a text, and over tuples on their way into sums.

Import this module only where lines are parsed or tuples summed: importing it imports numba.

A line is ``timestamp,key,value``, three whole numbers of 64 bits. Buffers end with a line's end: no
loop over a line looks past it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aftlib.core.compiling import jit

#: Registers of a partition's reading, an int64 array that outlives the chunk.
POSITION, TUPLES, LATE, WATERMARK, USED, BAD = range(6)
REGISTERS = 6
#: Columns of a table of sums; a row is 32 bytes, half a line of the processor's cache.
SLICE, KEY, VALUE, COUNT = range(4)
#: Count of a row that has gone to a cell of its own.
GONE = -1
#: How a table's values merge.
MERGES = ADD, MIN, MAX = range(3)
#: What `split`, `add` and `merge` came back for.
DONE, FULL, CROWDED, OVERFLOW = range(4)

DIGITS = 19
"""Of the longest number."""
NO_DELAY = -1
_ZERO, _MINUS, _COMMA, _END = 48, 45, 44, 10
_MIX_KEY = np.uint64(0x9E3779B97F4A7C15)
_MIX_SLICE = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_TEN, _MOST = np.uint64(10), np.uint64(2**63 - 1)
_LAST = 2**63 - 2
"""The largest watermark of a partition that has not ended."""


@jit()
def number(lines: Any, i: int, ending: int) -> tuple[Any, int]:
    """The whole number at i and the index after the byte that ends it; 0 where none fits."""
    negative = lines[i] == _MINUS
    if negative:
        i += 1
    first, value = i, np.uint64(0)
    digit = np.int64(lines[i]) - _ZERO
    while 0 <= digit <= 9:
        value = value * _TEN + np.uint64(digit)
        i += 1
        digit = np.int64(lines[i]) - _ZERO
    if lines[i] != ending or i == first or i - first > DIGITS:
        return 0, 0
    if value > _MOST + np.uint64(negative):
        return 0, 0
    return (-np.int64(value) if negative else np.int64(value)), i + 1


@jit()
def split(lines: Any, stop: int, pane: int, delay: int, at: Any, columns: Any, bad: Any) -> int:
    """Put slice, key and value of the lines up to `stop` into columns; returns why it stopped.

    `at` says where to go on; `columns`, shape (3, rows), has `USED` rows filled; `bad` takes where
    malformed lines begin and end. A tuple of a slice that ended at or before the watermark, which
    is `delay` behind the newest tuple before it, is counted late and left out. A delay of
    `NO_DELAY` leaves the watermark where it is.
    """
    i, tuples, late, watermark, used = at[POSITION], at[TUPLES], at[LATE], at[WATERMARK], at[USED]
    room, status = columns.shape[1], DONE
    begin, part = -pane, -1
    while i < stop:
        if used >= room:
            status = FULL
            break
        time, after = number(lines, i, _COMMA) if lines[i] != _MINUS else (0, 0)
        key, after = number(lines, after, _COMMA) if after else (0, 0)
        value, after = number(lines, after, _END) if after else (0, 0)
        if after == 0:
            if at[BAD] == len(bad):
                status = CROWDED
                break
            after = i
            while lines[after] != _END:
                after += 1
            bad[at[BAD], 0], bad[at[BAD], 1] = i, after + 1
            at[BAD] += 1
            i = after + 1
            continue
        if not 0 <= time - begin < pane:
            part = time // pane
            begin = part * pane
        if watermark > begin and watermark - begin >= pane:
            late += 1
        else:
            if delay != NO_DELAY:
                watermark = max(watermark, min(time - delay, _LAST))
            columns[0, used], columns[1, used], columns[2, used] = part, key, value
            used += 1
        tuples += 1
        i = after
    at[POSITION], at[TUPLES], at[LATE], at[WATERMARK], at[USED] = i, tuples, late, watermark, used
    return status


@jit()
def slot_of(table: Any, mask: int, part: int, key: int) -> Any:
    """Row that holds the slice's key, or the free row where it belongs."""
    mixed = np.uint64(key) * _MIX_KEY + np.uint64(part) * _MIX_SLICE
    slot = np.int64(mixed >> _HALF) & mask
    while table[slot, COUNT] != 0 and (table[slot, KEY] != key or table[slot, SLICE] != part):
        slot = (slot + 1) & mask
    return slot


@jit()
def moved(table: Any, larger: Any) -> None:
    """Enter every row of a table into a larger empty one."""
    mask = len(larger) - 1
    for row in range(len(table)):
        if table[row, COUNT] > 0:
            slot = slot_of(larger, mask, table[row, SLICE], table[row, KEY])
            larger[slot] = table[row]


@jit()
def met(one: Any, other: Any, how: int) -> tuple[Any, bool]:
    """Two values merged, and whether their sum left the 64 bits."""
    if how == ADD:
        total = one + other
        return total, (one ^ total) & (other ^ total) < 0
    return (other if (other < one) == (how == MIN) else one), False


@jit()
def merge(
    parts: Any,
    keys: Any,
    values: Any,
    counts: Any,
    how: int,
    row: int,
    table: Any,
    used: int,
    dense: Any,
) -> tuple[int, int, int]:
    """Merge values by (slice, key) from `row` on, and add up their counts.

    Where `counts` is empty each value counts 1: it is a tuple's. `dense` are a slice, a key, and
    the cells (value, count) of that slice's keys from there on, shape (keys, 2). What has no cell
    goes into the table; a cell begins with what the table had of its key.

    Returns why it stopped, the row to go on with, and how many rows of the table are in use: at
    most half of them, so that a free one is never far.
    """
    here, low, cells = dense
    mask, room, status, single = len(table) - 1, len(table) // 2, DONE, len(counts) == 0
    while row < len(keys):
        part, key, value = parts[row], keys[row], values[row]
        count = 1 if single else counts[row]
        place = np.uint64(key) - np.uint64(low)  # a key before the first wraps to a large one
        if part == here and place < np.uint64(len(cells)):
            cell = np.int64(place)
            if cells[cell, 1] == 0:
                slot = slot_of(table, mask, part, key)
                if table[slot, COUNT] > 0:
                    cells[cell, 0], cells[cell, 1] = table[slot, VALUE], table[slot, COUNT]
                    table[slot, COUNT] = GONE
            if cells[cell, 1] > 0:
                value, wrapped = met(cells[cell, 0], value, how)
                if wrapped:
                    status = OVERFLOW
                    break
            cells[cell, 0] = value
            cells[cell, 1] += count
        else:
            slot = slot_of(table, mask, part, key)
            held = table[slot, COUNT]
            if held > 0:
                value, wrapped = met(table[slot, VALUE], value, how)
                if wrapped:
                    status = OVERFLOW
                    break
            elif held == 0:
                if used == room:
                    status = FULL
                    break
                table[slot, SLICE], table[slot, KEY] = part, key
                used += 1
            table[slot, VALUE] = value
            table[slot, COUNT] = max(held, 0) + count
        row += 1
    return status, row, used
