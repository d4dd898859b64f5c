"""Parse lines of text into tuples; count and leave out late ones; refuse a bad line.

A line is ``timestamp,key,value``, three whole numbers of 64 bits. A buffer ends with a line end, so
that no loop over a line reads beyond the buffer. Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from aftlib.core.compiling import OCTETS, jit
from aftlib.core.intrinsics import bytes_above, eight_bytes, ones
from aftlib.core.windows import Windows
from aftlib.documents.shared_state.tuples import TupleLog

#: Tuples of a block: few enough that its columns fit the cache, many enough to make calls cheap.
BLOCK = 32_768
#: Bytes read at once, few enough for the cache; no line may be longer.
CHUNK = 2**20
#: Watermark of a partition of which nothing was read.
NEVER = np.iinfo(np.int64).min
#: Watermark of a partition that was read to its end.
END = np.iinfo(np.int64).max
#: Most digits of a number.
DIGITS = 19
NO_DELAY = -1

_LARGEST = np.uint64(2**63 - 1)
_LAST = 2**63 - 2  # the largest watermark of a partition that has not ended
_ZERO = ord("0")
_MINUS = ord("-")
_COMMA = ord(",")
_LINE_END = ord("\n")
_LINE = 64  # bytes compared at once: the longest line for fast parsing


@jit()
def number(lines: Any, i: int, ending: int) -> tuple[Any, int]:
    """Return the number at i, and the index after the byte `ending` behind it; zeros if none."""
    negative = lines[i] == _MINUS
    if negative:
        i += 1
    first = i
    value = np.uint64(0)
    digit = np.int64(lines[i]) - _ZERO
    while 0 <= digit <= 9:
        value = value * np.uint64(10) + np.uint64(digit)
        i += 1
        digit = np.int64(lines[i]) - _ZERO
    if lines[i] != ending or i == first or i - first > DIGITS:
        return 0, 0
    if value > _LARGEST + np.uint64(negative):
        return 0, 0
    return (-np.int64(value) if negative else np.int64(value)), i + 1


@jit()
def zeros_below(mask: Any) -> Any:
    """Return the number of zeros below a mask's lowest 1; 64 if there is none."""
    return ones(~mask & (mask - np.uint64(1)))


@jit()
def few_digits(digits: Any, size: int) -> tuple[Any, Any]:
    """Return the number in a word's first `size` bytes, and a check: 0 if all these are digits.

    Neighbours merge: digits to pairs, pairs to fours, and fours to the number.
    """
    digits = (digits ^ np.uint64(0x3030303030303030)) << (np.uint64(8 - size) << np.uint64(3))
    wrong = ((digits + np.uint64(0x7676767676767676)) | digits) & np.uint64(0x8080808080808080)
    digits = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    digits = (digits * np.uint64(100) + (digits >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    digits = (digits * np.uint64(10_000) + (digits >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return np.int64(digits), wrong


@jit()
def short_fields(ends: Any) -> tuple[int, int, int]:
    """Return the ends of a line's three numbers from the mask of its bytes below "0", or 64s.

    They are 64 if a number is empty or longer than eight bytes. All ends are computed before any
    digit is parsed, so that the next line need not wait for the digits of this one.
    """
    first = zeros_below(ends)
    ends &= ends - np.uint64(1)
    second = zeros_below(ends)
    last = zeros_below(ends & (ends - np.uint64(1)))
    sizes = (first - 1) | (second - first - 2) | (last - second - 2)
    return (first, second, last) if 0 <= sizes < 8 else (_LINE, _LINE, _LINE)


@jit(f"UniTuple(int64, 5)({OCTETS}, int64, int64, int64, int64, int64, int64[:, ::1])")
def parse_lines(
    lines: Any, i: int, stop: int, pane: int, delay: int, watermark: int, columns: Any
) -> tuple[int, int, int, int, int]:
    """Parse lines from `i` on into columns slice, key, value, up to `stop` or the columns' end.

    The watermark is `delay` behind the largest timestamp so far (`NO_DELAY`: it stays). A tuple is
    late if its slice ends at or before it. Return the index after the last line, the number of its
    tuples, those of them that are late, the watermark, and 1 before a bad line, else 0.
    """
    used = 0
    late = 0
    part = -1
    begin = -pane  # of the slice `part`
    stamp = np.uint64(0)  # the text of the last short timestamp, its length, and its number
    stamp_size = 0
    stamped = 0
    while i < stop and used < columns.shape[1]:
        after = time = key = value = 0
        if i + _LINE + 8 <= len(lines):  # inline: a call would count references to `lines`
            first, second, last = short_fields(~bytes_above(lines, i, _ZERO - 1))
            commas = last < _LINE and lines[i + first] == _COMMA and lines[i + second] == _COMMA
            if commas and lines[i + last] == _LINE_END:
                word = eight_bytes(lines, i)
                no_time = (word ^ stamp) << (np.uint64(8 - first) << np.uint64(3))
                if first == stamp_size and no_time == 0:  # as in the line before
                    time = stamped
                else:
                    time, no_time = few_digits(word, first)
                    if no_time == 0:
                        stamp = word
                        stamp_size = first
                        stamped = time
                key, no_key = few_digits(eight_bytes(lines, i + first + 1), second - first - 1)
                value, no_value = few_digits(eight_bytes(lines, i + second + 1), last - second - 1)
                after = i + last + 1 if no_time | no_key | no_value == 0 else 0
        if after == 0:
            time, after = number(lines, i, _COMMA) if lines[i] != _MINUS else (0, 0)
            key, after = number(lines, after, _COMMA) if after else (0, 0)
            value, after = number(lines, after, _LINE_END) if after else (0, 0)
            if after == 0:
                return i, used + late, late, watermark, 1
        if not 0 <= time - begin < pane:
            part = time // pane
            begin = part * pane
        if watermark > begin and watermark - begin >= pane:
            late += 1
        else:
            if delay != NO_DELAY:
                watermark = max(watermark, min(time - delay, _LAST))
            columns[0, used] = part
            columns[1, used] = key
            columns[2, used] = value
            used += 1
        i = after
    return i, used + late, late, watermark, 0


@dataclass(frozen=True)
class Progress:
    """Progress of one partition, as read or as merged into a table; no field ever decreases."""

    offset: int = 0  # bytes: where the next batch begins
    watermark: int = NEVER  # no earlier tuple is expected; `END` at the partition's end
    tuples: int = 0  # all since the partition's beginning
    late: int = 0  # tuples that came after their slice was complete, and were left out


@dataclass(frozen=True)
class TupleSource:
    """A log, and how its tuples are read: windows, and how late tuples may be.

    Tuples are summed by the common slices of the windows (`windows.pane` ticks). The watermark is
    `delay` ticks behind the partition's newest tuple. A tuple whose slice ends at or before the
    watermark is late; with None no tuple is late.
    """

    log: TupleLog
    windows: Windows
    delay: int | None = None

    def partitions(self, task: int, tasks: int) -> range:
        """Partitions that one of `tasks` tasks reads: task, task + tasks, …."""
        return range(task, self.log.partitions, tasks)

    def readers(
        self, task: int, tasks: int, begin: Mapping[int, Progress] | None = None
    ) -> dict[int, PartitionReader]:
        """Return a reader of each partition of a task that is not yet at its end."""
        readers = {}
        for partition in self.partitions(task, tasks):
            now = (begin or {}).get(partition, Progress())
            if now.watermark != END:
                path = self.log.part(partition)
                readers[partition] = PartitionReader(path, self.windows.pane, self.delay, now)
        return readers


@dataclass
class PartitionReader:
    """Reads the tuples of one partition block by block, from the offset in `progress` on."""

    path: Path
    pane: int
    delay: int | None = None
    progress: Progress = field(default_factory=Progress)
    chunk: int = CHUNK

    def blocks(self, rows: int = BLOCK) -> Iterator[np.ndarray]:
        """Yield slice number, key and value of tuples that are not late, shape (3, at most `rows`).

        Each block updates `progress`. A block is valid until the next one is read. ValueError for a
        bad line, with its text and offset.
        """
        columns = np.empty((3, rows), np.int64)
        delay = NO_DELAY if self.delay is None else self.delay
        for lines, stop, offset in whole_lines(self.path, self.progress.offset, self.chunk):
            at = 0
            while at < stop:
                now = self.progress
                at, tuples, late, watermark, bad = parse_lines(
                    lines, at, stop, self.pane, delay, now.watermark, columns
                )
                if bad:
                    raise bad_line(self.path, offset + at, bytes(lines[at:stop]))
                total = now.tuples + tuples
                self.progress = Progress(offset + at, watermark, total, now.late + late)
                if tuples > late:
                    yield columns[:, : tuples - late]
        self.progress = replace(self.progress, watermark=END)


def bad_line(path: Path, offset: int, text: bytes) -> ValueError:
    """Return the error about a bad line, the first one of `text`."""
    line = text.partition(b"\n")[0][:80].decode("ascii", "backslashreplace")
    return ValueError(
        f"line at byte {offset} of {path.name} must be timestamp,key,value, whole numbers of 64 "
        f"bits and no timestamp below 0, got {line!r}: correct or remove the line"
    )


def whole_lines(
    path: Path, offset: int = 0, size: int = CHUNK
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield the bytes of a file from `offset` on, cut after line ends.

    Each item is an array of bytes, the number of its bytes to use, and their offset in the file. An
    array is valid until the next one is read. ValueError for a line longer than `size`, for a last
    line without end, and for a file shorter than `offset`.
    """
    buffer = bytearray(size)
    view = memoryview(buffer)
    lines = np.frombuffer(buffer, np.uint8)
    fill = 0
    with path.open("rb", buffering=0) as file:
        length = file.seek(0, 2)
        if offset > length:
            raise ValueError(
                f"offset must be at most {length}, the bytes of {path.name}, got {offset}: "
                "this offset is of another log; use a new table"
            )
        file.seek(offset)
        while read := file.readinto(view[fill:]):
            fill += read
            stop = buffer.rfind(b"\n", 0, fill) + 1
            if stop:
                yield lines, stop, offset
                buffer[: fill - stop] = buffer[stop:fill]
                offset += stop
                fill -= stop
            elif fill == size:
                raise ValueError(
                    f"line at byte {offset} of {path.name} must be shorter than {size} bytes: "
                    "this is no log of tuples; give another folder"
                )
    if fill:
        raise ValueError(
            f"line at byte {offset} of {path.name} must end with a line end, got "
            f"{bytes(buffer[: min(fill, 80)])!r}: the file was cut off; write it again"
        )
