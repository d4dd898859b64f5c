"""From lines of text to tuples: malformed lines are kept, late tuples counted, neither dropped."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from aftlib.core.windows import Windows
from aftlib.shared_state import loops
from aftlib.shared_state.stores.tables import Progress
from aftlib.shared_state.tuplelog import CHUNK, whole_lines

FIELDS = ("timestamp", "key", "value")
BLOCK = 32_768
"""Tuples handed on at once: few enough for the cache to hold their columns, and calls are few."""
NO_END = "the file ends before the line does"

_MOST = 2**63 - 1
_NUMBER = re.compile(rb"-?[0-9]+")


@dataclass(frozen=True)
class Rules:
    """How a partition's lines become tuples of slices.

    Tuples are summed by the common slices of the windows (`windows.pane` ticks). The watermark is
    `delay` ticks behind the partition's newest tuple; a tuple whose slice ends at or before it is
    late, and with None none ever is. One malformed line more than `most_rejected` in a partition
    stops the run.
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
    """A line that is no tuple: the byte of the file at which it begins, why, and the line itself.

    The line is without its end; bytes that are not ASCII are escaped.
    """

    offset: int
    reason: str
    line: str


@dataclass
class PartitionReader:
    """Tuples of one partition, block by block, from where `progress` says.

    `progress` is renewed with every block, `rejects` are the malformed lines since they were last
    taken away, `read_s` and `parse_s` seconds spent.
    """

    path: Path
    rules: Rules
    progress: Progress = field(default_factory=Progress)
    chunk: int = CHUNK
    rejects: list[Rejected] = field(default_factory=list)
    read_s: float = 0.0
    parse_s: float = 0.0

    def blocks(self, rows: int = BLOCK) -> Iterator[np.ndarray]:
        """Slice number, key and value of the tuples that are not late, shape (3, at most `rows`).

        Each is valid until the next one is asked for. A ValueError stops them when too many lines
        are malformed, an OverflowError when a value does not fit into 64 bits.
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
        """Blocks of a chunk of whole lines."""
        pane = self.rules.windows.pane
        delay = loops.NO_DELAY if self.rules.delay is None else self.rules.delay
        at, bad = np.zeros(loops.REGISTERS, np.int64), np.empty((64, 2), np.int64)
        while at[loops.POSITION] < stop:
            before, now = time.perf_counter(), self.progress
            at[1:] = now.tuples, now.late, now.watermark, 0, 0
            loops.split(lines, stop, pane, delay, at, columns, bad)
            position, tuples, late, watermark, used, malformed = at.tolist()
            for first, end in bad[:malformed].tolist():
                self._reject(offset + first, bytes(lines[first:end]))
            rejected = now.rejected + malformed
            self.progress = Progress(offset + position, watermark, late, tuples, rejected)
            self.parse_s += time.perf_counter() - before
            if used:
                yield columns[:, :used]

    def take_rejects(self) -> list[Rejected]:
        """The rejects so far, which are then forgotten."""
        taken, self.rejects = self.rejects, []
        return taken

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
    """Why a line, without its end, is no tuple; empty when it is one."""
    fields = line.split(b",")
    if len(fields) != len(FIELDS):
        return f"{len(fields)} fields instead of {len(FIELDS)}"
    for name, text in zip(FIELDS, fields, strict=True):
        if not _NUMBER.fullmatch(text) or (name == "timestamp" and text.startswith(b"-")):
            return f"{name} is no whole number" + (" from 0 on" if name == "timestamp" else "")
        long = len(text.lstrip(b"-")) > loops.DIGITS
        if long or not -_MOST - 1 <= int(text) <= _MOST:
            return f"{name} does not fit into 64 bits"
    return ""
