"""From lines of text to tuples: malformed lines are kept, late tuples counted, neither dropped."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from aftlib.core.compiling import COMPILED
from aftlib.core.windows import Windows
from aftlib.shared_state.stream.tuplelog import CHUNK, whole_lines

FIELDS = ("timestamp", "key", "value")
DIGITS = 18
"""Longest number: nothing of so many digits can leave 64 bits."""
BLOCK = 8_192
"""Tuples handed on at once: their columns stay in the processor's cache."""
NO_END = "the file ends before the line does"

_NEVER = 2**61
_LEAST = -(2**62)
_NUMBER = re.compile(rb"-?[0-9]+")
_LINE = re.compile(rb"[0-9]{1,18},-?[0-9]{1,18},-?[0-9]{1,18}")
_ALLOWED = np.isin(np.arange(256), np.frombuffer(b"0123456789,-\n", np.uint8))


@dataclass(frozen=True)
class Rules:
    """How a partition's lines become tuples of slices.

    Parameters
    ----------
    windows : Windows
        Their common slices (`windows.pane` ticks) are what tuples are summed by.
    delay : int or None
        The watermark is so many ticks behind the partition's newest tuple; a tuple whose slice
        ends at or before it is late. None: no tuple is ever late.
    most_rejected : int
        Malformed lines that a partition may have; one more stops the run.

    Raises
    ------
    ValueError
        When delay or most_rejected is negative.
    """

    windows: Windows
    delay: int | None = None
    most_rejected: int = 100

    def __post_init__(self) -> None:
        for name in ("delay", "most_rejected"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")


@dataclass(frozen=True)
class Rejected:
    """A line that is no tuple.

    Attributes
    ----------
    offset : int
        Byte of the file at which it begins.
    reason : str
    line : str
        Without its end; bytes that are not ASCII are escaped.
    """

    offset: int
    reason: str
    line: str


@dataclass(frozen=True)
class Reading:
    """How far a partition has been read, and what was seen since its beginning.

    Attributes
    ----------
    offset : int
        Bytes read: where to go on.
    high : int
        Largest timestamp seen, from which the watermark follows; −2⁶² before the first.
    tuples, late, rejected : int
        Lines that are tuples, those of them that came too late and were left out, and malformed
        lines.
    """

    offset: int = 0
    high: int = _LEAST
    tuples: int = 0
    late: int = 0
    rejected: int = 0


@dataclass
class PartitionReader:
    """Tuples of one partition, block by block, from where `reading` says.

    Attributes
    ----------
    path : Path
    rules : Rules
    reading : Reading
        Renewed with every block.
    rejects : list of Rejected
        Malformed lines since the list was last taken away.
    read_s, parse_s : float
        Seconds spent on reading and on parsing.
    """

    path: Path
    rules: Rules
    reading: Reading = field(default_factory=Reading)
    chunk: int = CHUNK
    rejects: list[Rejected] = field(default_factory=list)
    read_s: float = 0.0
    parse_s: float = 0.0

    def blocks(self) -> Iterator[np.ndarray]:
        """Slice number, key and value of the tuples that are not late, shape (3, rows).

        Each is valid until the next one is asked for.

        Raises
        ------
        ValueError
            When more than `rules.most_rejected` lines are malformed.
        OverflowError
            When a value has more than 18 digits.
        """
        split = _compiled if COMPILED else _by_arrow
        before = time.perf_counter()
        for lines, stop, offset in whole_lines(self.path, self.reading.offset, self.chunk):
            self.read_s += time.perf_counter() - before
            if lines[stop - 1] != ord("\n"):
                self._reject(offset, bytes(lines[:stop]), NO_END)
                self.reading = replace(self.reading, offset=offset + stop)
            else:
                yield from split(self, lines, stop, offset)
            before = time.perf_counter()

    def take_rejects(self) -> list[Rejected]:
        """The rejects so far, which are then forgotten."""
        taken, self.rejects = self.rejects, []
        return taken

    def _reject(self, offset: int, line: bytes, reason: str = "") -> None:
        text = line.rstrip(b"\n")
        reason = reason or reason_against(text)
        self.rejects.append(Rejected(offset, reason, text.decode("ascii", "backslashreplace")))
        rejected = self.reading.rejected + 1
        self.reading = replace(self.reading, rejected=rejected)
        if rejected > self.rules.most_rejected:
            raise ValueError(
                f"{self.path.name} has more than most_rejected = {self.rules.most_rejected} "
                f"malformed lines, the last at byte {offset} ({reason}): mend the input, "
                "or allow more"
            )
        if reason.startswith("value has more"):
            raise OverflowError(
                f"value at byte {offset} of {self.path.name} has more than {DIGITS} digits, "
                f"{text[:80]!r}: sums are of 64 bits; scale the values down or remove the line"
            )


def reason_against(line: bytes) -> str:
    """Why a line, without its end, is no tuple; empty when it is one."""
    fields = line.split(b",")
    if len(fields) != len(FIELDS):
        return f"{len(fields)} fields instead of {len(FIELDS)}"
    for name, text in zip(FIELDS, fields, strict=True):
        if not _NUMBER.fullmatch(text) or (name == "timestamp" and text.startswith(b"-")):
            return f"{name} is no whole number" + (" from 0 on" if name == "timestamp" else "")
        if len(text.lstrip(b"-")) > DIGITS:
            return f"{name} has more than {DIGITS} digits"
    return ""


def _compiled(
    reader: PartitionReader, lines: np.ndarray, stop: int, offset: int
) -> Iterator[np.ndarray]:
    """Blocks of a chunk by the compiled parser."""
    from aftlib.shared_state.stream import kernels

    rules, columns = reader.rules, np.empty((3, BLOCK), np.int64)
    delay = _NEVER if rules.delay is None else rules.delay
    at, bad = np.zeros(kernels.REGISTERS, np.int64), np.empty((64, 2), np.int64)
    while at[kernels.POSITION] < stop:
        before, done = time.perf_counter(), reader.reading
        at[kernels.TUPLES], at[kernels.LATE], at[kernels.HIGH] = done.tuples, done.late, done.high
        at[kernels.USED] = at[kernels.BAD] = 0
        kernels.split(lines, stop, rules.windows.pane, delay, at, columns, bad)
        _, tuples, late, high, used, crowded = at.tolist()
        for first, end in bad[:crowded].tolist():
            reader._reject(offset + first, bytes(lines[first:end]))
        position = offset + int(at[kernels.POSITION])
        reader.reading = Reading(position, high, tuples, late, reader.reading.rejected)
        reader.parse_s += time.perf_counter() - before
        if used:
            yield columns[:, :used]


def _by_arrow(
    reader: PartitionReader, lines: np.ndarray, stop: int, offset: int
) -> Iterator[np.ndarray]:
    """One block a chunk by pyarrow; lines that are no tuples are sorted out in Python first."""
    before, rules = time.perf_counter(), reader.rules
    text = lines[:stop].tobytes()
    columns = _plain(text) if _looks_plain(text, lines[:stop]) else None
    if columns is None:
        columns = _plain(_sorted_out(reader, text, offset))
    times, keys, values = np.empty((3, 0), np.int64) if columns is None else columns
    done = reader.reading
    parts = times // rules.windows.pane
    late = np.zeros(len(times), bool)
    if rules.delay is not None and len(times):
        late = _late(times, (parts + 1) * rules.windows.pane, done.high, rules.delay)
    high = max(done.high, int(times.max(initial=_LEAST)))
    reader.reading = Reading(
        offset + stop,
        high,
        done.tuples + len(times),
        done.late + int(late.sum()),
        reader.reading.rejected,
    )
    block = np.stack([parts, keys, values])[:, ~late]
    reader.parse_s += time.perf_counter() - before
    if block.size:
        yield block


def _late(times: np.ndarray, ends: np.ndarray, high: int, delay: int) -> np.ndarray:
    """Whether each tuple's slice had ended by the watermark before it; late ones never move it.

    A late tuple is older than the newest one, so that the running maximum needs no exception.
    """
    before = np.maximum.accumulate(np.concatenate([[high], times[:-1]]))
    return ends <= before - delay


def _looks_plain(text: bytes, lines: np.ndarray) -> bool:
    """Whether pyarrow would take no line that is none here: a long number, spaces, a minus."""
    if not _ALLOWED[lines].all() or b"\n-" in text or text.startswith(b"-"):
        return False
    ends = np.flatnonzero((lines == ord(",")) | (lines == ord("\n")))
    return bool(np.diff(ends, prepend=-1).max() <= DIGITS + 1)


def _plain(text: bytes) -> np.ndarray | None:
    """Three columns of a text, shape (3, lines), or None where a line may be malformed."""
    if not text:
        return None
    try:
        table = pc.read_csv(
            pa.py_buffer(text),
            pc.ReadOptions(column_names=list(FIELDS), block_size=2 * len(text)),
            pc.ParseOptions(ignore_empty_lines=False),
            pc.ConvertOptions(column_types=dict.fromkeys(FIELDS, pa.int64()), null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    return np.stack([column.to_numpy() for column in table.columns])


def _sorted_out(reader: PartitionReader, text: bytes, offset: int) -> bytes:
    """The lines that are tuples."""
    good = []
    for line in text[:-1].split(b"\n"):
        if _LINE.fullmatch(line):
            good.append(line + b"\n")
        else:
            reader._reject(offset, line)
        offset += len(line) + 1
    return b"".join(good)
