"""The compiled inner loops: over the lines of a text, and over tuples on their way into sums.

Import this module only where lines are parsed or tuples summed: importing it imports numba.

A line is ``timestamp,key,value``, three whole numbers of 64 bits. Buffers end with a line's end: no
loop over a line looks past it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aftlib.core.compiling import intrinsic, ir, jit, numba

emitted: Any = intrinsic  # mypy knows only the arguments of the decorated function

#: Registers of a partition's reading, an int64 array that outlives the chunk.
POSITION, TUPLES, LATE, WATERMARK, USED, BAD = range(6)
REGISTERS = 6
#: Columns of a table of sums; a row is 32 bytes, half a line of the processor's cache.
SLICE, KEY, VALUE, COUNT = range(4)
#: Count of a row that has gone to a cell of its own.
GONE = -1
#: How a table's values merge.
ADD, MIN, MAX = range(3)
#: What `split`, `add` and `merge` came back for.
DONE, FULL, CROWDED, OVERFLOW = range(4)

DIGITS = 19
"""Of the longest number."""
NO_DELAY = -1
_ZERO, _MINUS, _COMMA, _END = 48, 45, 44, 10
_MIX_KEY = np.uint64(0x9E3779B97F4A7C15)
_MIX_SLICE = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_LINE = 64  # bytes that are looked at together, and so the longest line that is read the quick way
_U1, _U3, _U8, _U16 = np.uint64(1), np.uint64(3), np.uint64(8), np.uint64(16)
_ZEROS, _TOP_BITS = np.uint64(0x3030303030303030), np.uint64(0x8080808080808080)
_TO_TOP = np.uint64(0x7676767676767676)
_HUNDRED, _MYRIAD = np.uint64(100), np.uint64(10_000)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_EIGHT = np.uint64(0xFFFFFFFF)
_TEN, _MOST = np.uint64(10), np.uint64(2**63 - 1)
_AHEAD = 24  # tuples after the next: their cells are on their way meanwhile
_LAST = 2**63 - 2
"""The largest watermark of a partition that has not ended."""


@emitted
def eight_bytes(typing: Any, lines: Any, first: Any) -> Any:
    """The eight bytes from an index on, the first the lowest."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        here = builder.gep(array.data, [args[1]])
        return builder.load(builder.bitcast(here, ir.IntType(64).as_pointer()), align=1)

    return numba.uint64(lines, numba.intp), emit


@emitted
def fetched(typing: Any, cells: Any, place: Any) -> Any:
    """Have a row of cells brought into the cache, while other work goes on; any place is fine."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        flag, cell = ir.IntType(32), builder.mul(args[1], ir.Constant(ir.IntType(64), 2))
        here = builder.bitcast(builder.gep(array.data, [cell]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [here.type, flag, flag, flag])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [here.type], kind)
        builder.call(prefetch, [here, flag(1), flag(3), flag(1)])  # to write, near, data
        return context.get_dummy_value()

    return numba.void(cells, numba.uint64), emit


@emitted
def below(typing: Any, lines: Any, first: Any, limit: Any) -> Any:
    """Mask of the 64 bytes from an index on, lowest bit first: which are below the limit."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        row, word = ir.VectorType(ir.IntType(8), _LINE), ir.IntType(64)
        here = builder.bitcast(builder.gep(array.data, [args[1]]), row.as_pointer())
        one = builder.insert_element(ir.Constant(row, None), args[2], ir.Constant(word, 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), _LINE), None)
        limits = builder.shuffle_vector(one, one, lanes)
        found = builder.icmp_unsigned("<", builder.load(here, align=1), limits)
        return builder.bitcast(found, word)

    return numba.uint64(lines, numba.intp, numba.uint8), emit


@emitted
def zeros_below(typing: Any, word: Any) -> Any:
    """How many zeros stand below a word's lowest 1; 64 where there is none."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return numba.int64(numba.uint64), emit


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
def few_digits(digits: Any, size: int) -> tuple[Any, Any]:
    """The number that a word's first bytes spell, and a word that is 0 if they are digits."""
    digits = (digits ^ _ZEROS) << (np.uint64(8 - size) << _U3)  # zeros go before them
    wrong = ((digits + _TO_TOP) | digits) & _TOP_BITS
    digits = (digits * _TEN + (digits >> _U8)) & _PAIRS  # neighbours are put together
    digits = (digits * _HUNDRED + (digits >> _U16)) & _FOURS
    return np.int64((digits * _MYRIAD + (digits >> _HALF)) & _EIGHT), wrong


@jit()
def short_fields(ends: Any) -> tuple[int, int, int]:
    """Where three numbers end by the mask of a line's bytes below "0"; 64 where one is too long.

    A short one has one to eight bytes. All ends are found at once: the next line need not wait for
    the digits of this one.
    """
    first = zeros_below(ends)
    ends &= ends - _U1
    second = zeros_below(ends)
    last = zeros_below(ends & (ends - _U1))
    sizes = (first - 1) | (second - first - 2) | (last - second - 2)
    return (first, second, last) if 0 <= sizes < 8 else (_LINE, _LINE, _LINE)


@jit()
def split(lines: Any, stop: int, pane: int, delay: int, at: Any, columns: Any, bad: Any) -> int:
    """Put slice, key and value of the lines up to `stop` into columns; returns why it stopped.

    `at` says where to go on; `columns`, shape (3, rows), has `USED` rows filled; `bad` takes where
    malformed lines begin and end. A tuple whose slice had ended by the watermark, `delay` behind
    the newest before it (`NO_DELAY`: it stays), is counted late and left out.
    """
    i, tuples, late, watermark, used = at[POSITION], at[TUPLES], at[LATE], at[WATERMARK], at[USED]
    room, status, begin, part = columns.shape[1], DONE, -pane, -1
    stamp, stamp_size, stamped = np.uint64(0), 0, 0
    while i < stop:
        if used >= room:
            status = FULL
            break
        after = time = key = value = 0
        if i + _LINE + 8 <= len(lines):  # in place: handed on, `lines` is counted at every line
            first, second, last = short_fields(below(lines, i, _ZERO))
            commas = last < _LINE and lines[i + first] == _COMMA and lines[i + second] == _COMMA
            if commas and lines[i + last] == _END:
                word = eight_bytes(lines, i)
                no_time = (word ^ stamp) << (np.uint64(8 - first) << _U3)
                if first == stamp_size and no_time == 0:  # as in the line before
                    time = stamped
                else:
                    time, no_time = few_digits(word, first)
                    if no_time == 0:
                        stamp, stamp_size, stamped = word, first, time
                key, no_key = few_digits(eight_bytes(lines, i + first + 1), second - first - 1)
                value, no_value = few_digits(eight_bytes(lines, i + second + 1), last - second - 1)
                after = i + last + 1 if no_time | no_key | no_value == 0 else 0
        if after == 0:
            time, after = number(lines, i, _COMMA) if lines[i] != _MINUS else (0, 0)
            key, after = number(lines, after, _COMMA) if after else (0, 0)
            value, after = number(lines, after, _END) if after else (0, 0)
        if after == 0:
            if at[BAD] == len(bad):
                status = CROWDED
                break
            bad[at[BAD], 0] = i
            while lines[i] != _END:
                i += 1
            bad[at[BAD], 1] = i + 1
            at[BAD], i = at[BAD] + 1, i + 1
            continue
        if not 0 <= time - begin < pane:
            part, begin = time // pane, time // pane * pane
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
def spread(table: Any, dense: Any) -> None:
    """Move what a table has of a slice whose keys get cells into these."""
    here, low, cells = dense
    for row in range(len(table)):
        place = np.uint64(table[row, KEY]) - np.uint64(low)
        if table[row, COUNT] > 0 and table[row, SLICE] == here and place < np.uint64(len(cells)):
            cells[place, 0], cells[place, 1] = table[row, VALUE], table[row, COUNT]
            table[row, COUNT] = GONE


@jit()
def filled(parts: Any, keys: Any, values: Any, row: int, dense: Any) -> int:
    """Add tuples to the cells of their keys from `row` on; the first row that has to go elsewhere.

    It has no cell, or its sum leaves the 64 bits: `merge` sees to it. By far the most tuples are
    not of that kind, and for them alone the loop is short.
    """
    here, low, cells = dense
    size, first = np.uint64(len(cells)), np.uint64(low)
    while row < len(keys):
        if row + _AHEAD < len(keys):
            fetched(cells, np.uint64(keys[row + _AHEAD]) - first)
        place = np.uint64(keys[row]) - first  # a key before the first wraps to a large one
        if parts[row] != here or place >= size:
            break
        held, value = cells[place, 0], values[row]
        total = held + value
        if (held ^ total) & (value ^ total) < 0:
            break
        cells[place, 0] = total
        cells[place, 1] += 1
        row += 1
    return row


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
    goes into the table; what has one is not there (`spread`).

    Returns why it stopped, the row to go on with, and how many rows of the table are in use: at
    most half of them, so that a free one is never far.
    """
    here, low, cells = dense
    mask, room, status, single = len(table) - 1, len(table) // 2, DONE, len(counts) == 0
    tuples = single and how == ADD and len(cells) > 0
    row = filled(parts, keys, values, row, dense) if tuples else row
    while row < len(keys):
        part, key, value = parts[row], keys[row], values[row]
        count = 1 if single else counts[row]
        place = np.uint64(key) - np.uint64(low)  # a key before the first wraps to a large one
        if part == here and place < np.uint64(len(cells)):
            cell = np.int64(place)
            if cells[cell, 1] > 0:
                value, wrapped = met(cells[cell, 0], value, how)
                if wrapped:
                    status = OVERFLOW
                    break
            cells[cell, 0] = value
            cells[cell, 1] += count
            if tuples:
                row = filled(parts, keys, values, row + 1, dense)
                continue
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
