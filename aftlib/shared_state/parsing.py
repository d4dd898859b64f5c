"""Parse lines of text into tuples; malformed lines are stored, late tuples counted and left out.

A line is ``timestamp,key,value``, three whole numbers of 64 bits. A buffer ends with a line end, so
that no loop over a line reads beyond the buffer. Importing this module imports numba.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from aftlib.core.compiling import byte_mask, eight_bytes, jit, zeros_below
from aftlib.core.windows import Windows
from aftlib.shared_state.stores.tables import Progress
from aftlib.shared_state.tuplelog import CHUNK, whole_lines

FIELDS = ("timestamp", "key", "value")
BLOCK = 32_768
"""Tuples of a block: few enough that its columns fit the cache, many enough to make calls cheap."""
NO_END = "the file ends before the line does"

_MOST = 2**63 - 1
_NUMBER = re.compile(rb"-?[0-9]+")


#: Indices of `at`, the int64 array in which `parse_lines` keeps its state between calls.
POSITION, TUPLES, LATE, WATERMARK, USED, BAD = range(6)
REGISTERS = 6
DIGITS = 19
"""Most digits of a number."""
NO_DELAY = -1

_ZERO, _MINUS, _COMMA, _END = 48, 45, 44, 10
_LINE = 64  # bytes compared at once: the longest line for fast parsing
_HALF = np.uint64(32)
_U1, _U3, _U8, _U16 = np.uint64(1), np.uint64(3), np.uint64(8), np.uint64(16)
_ZEROS, _TOP_BITS = np.uint64(0x3030303030303030), np.uint64(0x8080808080808080)
_TO_TOP = np.uint64(0x7676767676767676)
_HUNDRED, _MYRIAD = np.uint64(100), np.uint64(10_000)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_EIGHT = np.uint64(0xFFFFFFFF)
_TEN, _LARGEST = np.uint64(10), np.uint64(_MOST)
_LAST = _MOST - 1
"""The largest watermark of a partition that has not ended."""


#: Mask of the 64 bytes from an index on, lowest bit first: 1 for a byte below a limit.
bytes_below = byte_mask("<")


@jit()
def number(lines: Any, i: int, ending: int) -> tuple[Any, int]:
    """Return the number at i, and the index after the byte `ending` behind it; zeros if none."""
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
    if value > _LARGEST + np.uint64(negative):
        return 0, 0
    return (-np.int64(value) if negative else np.int64(value)), i + 1


@jit()
def few_digits(digits: Any, size: int) -> tuple[Any, Any]:
    """Return the number in a word's first `size` bytes, and a check: 0 if all these are digits."""
    digits = (digits ^ _ZEROS) << (np.uint64(8 - size) << _U3)  # pad with leading zeros
    wrong = ((digits + _TO_TOP) | digits) & _TOP_BITS
    digits = (digits * _TEN + (digits >> _U8)) & _PAIRS  # merge neighbours
    digits = (digits * _HUNDRED + (digits >> _U16)) & _FOURS
    return np.int64((digits * _MYRIAD + (digits >> _HALF)) & _EIGHT), wrong


@jit()
def short_fields(ends: Any) -> tuple[int, int, int]:
    """Return the ends of a line's three numbers from the mask of its bytes below "0", or 64s.

    They are 64 if a number is empty or longer than eight bytes. All ends are computed before any
    digit is parsed, so that the next line need not wait for the digits of this one.
    """
    first = zeros_below(ends)
    ends &= ends - _U1
    second = zeros_below(ends)
    last = zeros_below(ends & (ends - _U1))
    sizes = (first - 1) | (second - first - 2) | (last - second - 2)
    return (first, second, last) if 0 <= sizes < 8 else (_LINE, _LINE, _LINE)


@jit()
def parse_lines(
    lines: Any, stop: int, pane: int, delay: int, at: Any, columns: Any, bad: Any
) -> None:
    """Parse the lines into columns slice, key, value, up to `stop` or as far as there is space.

    `at[POSITION]` is the offset to continue at. `columns`, shape (3, rows), has `at[USED]` rows.
    `bad` gets begin and end of malformed lines. The watermark is `delay` behind the largest
    timestamp so far (`NO_DELAY`: it stays). A tuple is late if its slice ends at or before it.
    """
    i, tuples, late, watermark, used = at[POSITION], at[TUPLES], at[LATE], at[WATERMARK], at[USED]
    capacity, begin, part = columns.shape[1], -pane, -1
    stamp, stamp_size, stamped = np.uint64(0), 0, 0
    while i < stop and used < capacity:
        after = time = key = value = 0
        if i + _LINE + 8 <= len(lines):  # inline: a call would count references to `lines`
            first, second, last = short_fields(bytes_below(lines, i, _ZERO))
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


@dataclass(frozen=True)
class Rules:
    """Rules by which a partition's lines become tuples.

    Tuples are summed by the common slices of the windows (`windows.pane` ticks). The watermark is
    `delay` ticks behind the partition's newest tuple. A tuple whose slice ends at or before the
    watermark is late; with None no tuple is late. More than `most_rejected` malformed lines in a
    partition stop the run.
    """

    windows: Windows
    delay: int | None = None
    most_rejected: int = 100

    def __post_init__(self) -> None:
        for name in ("delay", "most_rejected"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")
        if self.delay is not None and self.delay > _MOST:
            raise ValueError(
                f"delay must be at most 2⁶³ − 1, got {self.delay!r}; with None no tuple is late"
            )


@dataclass(frozen=True)
class Rejected:
    """A malformed line: its first byte's offset in the file, the reason, and the text.

    `line` has no line end, and its bytes that are not ASCII are escaped.
    """

    offset: int
    reason: str
    line: str


@dataclass
class PartitionReader:
    """Reads the tuples of one partition block by block, from the offset in `progress`.

    Each block updates `progress`. `rejects` has the malformed lines since the last `take_rejects`;
    `read_s` and `parse_s` are the seconds spent on reading and parsing.
    """

    path: Path
    rules: Rules
    progress: Progress = field(default_factory=Progress)
    chunk: int = CHUNK
    rejects: list[Rejected] = field(default_factory=list)
    read_s: float = 0.0
    parse_s: float = 0.0

    def blocks(self, rows: int = BLOCK) -> Iterator[np.ndarray]:
        """Yield slice number, key and value of tuples that are not late, shape (3, at most `rows`).

        A block is valid until the next one is read. ValueError if too many lines are malformed,
        OverflowError if a value does not fit into 64 bits.
        """
        columns, before = np.empty((3, rows), np.int64), time.perf_counter()
        for lines, stop, offset in whole_lines(self.path, self.progress.offset, self.chunk):
            self.read_s += time.perf_counter() - before
            if lines[stop - 1] == ord("\n"):
                yield from self._parsed(lines, stop, offset, columns)
            else:
                self._reject(offset, bytes(lines[:stop]), NO_END)
                self.progress = replace(self.progress, offset=offset + stop)
            before = time.perf_counter()

    def _parsed(
        self, lines: np.ndarray, stop: int, offset: int, columns: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Yield the blocks of a chunk of whole lines."""
        pane = self.rules.windows.pane
        delay = NO_DELAY if self.rules.delay is None else self.rules.delay
        at, bad = np.zeros(REGISTERS, np.int64), np.empty((64, 2), np.int64)
        while at[POSITION] < stop:
            before, now = time.perf_counter(), self.progress
            at[1:] = now.tuples, now.late, now.watermark, 0, 0
            parse_lines(lines, stop, pane, delay, at, columns, bad)
            position, tuples, late, watermark, used, malformed = at.tolist()
            for first, end in bad[:malformed].tolist():
                self._reject(offset + first, bytes(lines[first:end]))
            rejected = now.rejected + malformed
            self.progress = Progress(offset + position, watermark, late, tuples, rejected)
            self.parse_s += time.perf_counter() - before
            if used:
                yield columns[:, :used]

    def take_rejects(self) -> list[Rejected]:
        """Return the rejects since the last call."""
        rejects, self.rejects = self.rejects, []
        return rejects

    def _reject(self, offset: int, line: bytes, reason: str = "") -> None:
        text = line.rstrip(b"\n")
        reason = reason or reason_against(text)
        self.rejects.append(Rejected(offset, reason, text.decode("ascii", "backslashreplace")))
        rejected = self.progress.rejected + 1
        self.progress = replace(self.progress, rejected=rejected)
        if rejected > self.rules.most_rejected:
            raise ValueError(
                f"{self.path.name} has more than most_rejected = {self.rules.most_rejected} "
                f"malformed lines, the last at byte {offset} ({reason}): mend the input, "
                "or allow more"
            )
        if reason.startswith("value does not fit"):
            raise OverflowError(
                f"value at byte {offset} of {self.path.name} does not fit into 64 bits, "
                f"{text[:80]!r}: sums are of 64 bits; scale the values down or remove the line"
            )


def reason_against(line: bytes) -> str:
    """Return why a line, given without line end, is malformed; empty if the line is a tuple."""
    fields = line.split(b",")
    if len(fields) != len(FIELDS):
        return f"{len(fields)} fields instead of {len(FIELDS)}"
    for name, text in zip(FIELDS, fields, strict=True):
        if not _NUMBER.fullmatch(text) or (name == "timestamp" and text.startswith(b"-")):
            return f"{name} is no whole number" + (" from 0 on" if name == "timestamp" else "")
        long = len(text.lstrip(b"-")) > DIGITS
        if long or not -_MOST - 1 <= int(text) <= _MOST:
            return f"{name} does not fit into 64 bits"
    return ""
