"""A worker: the task that fills windows in its own memory and sends each when it is finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from aftlib.approximately_once.mailbox import Mail, Mailbox
from aftlib.core.windows import Windows
from aftlib.spark.faults import Fault

if TYPE_CHECKING:  # a worker needs no model
    from aftlib.approximately_once.master import Outage

_ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "array<long>": pa.list_(pa.int64()),
    "array<double>": pa.list_(pa.float64()),
}
_ATTEMPT = ("worker", "attempt", "pid", "start", "begin", "stop")
RESULT_SCHEMA = (
    "worker int, attempt int, pid long, start long, begin long, stop long, again long, dead long, "
    "failure long, recovery long, first long, count long, values array<double>, samples array<long>"
)
RESULT = pa.schema(
    [(name, _ARROW[kind]) for name, kind in map(str.split, RESULT_SCHEMA.split(", "))]
)


@dataclass
class Shift(InputPartition):
    """What one worker has to read in one micro-batch: windows ending in (start, stop] are due."""

    worker: int
    keys: list[int]
    begin: int  # first step that its half-filled windows need; later when an outage took them
    start: int
    stop: int
    resume: int | None  # where a substitute goes on; None for one that reads all again


Blocks = Callable[[Sequence[int], int, int], Iterator[np.ndarray]]
"""A worker's input: samples of its keys over the steps [begin, stop), in blocks (steps, keys)."""


@dataclass
class Memory:
    """A worker's half-filled windows: samples from the step `first` on, the next window due."""

    windows: Windows
    first: int
    next: int
    samples: np.ndarray

    @property
    def reached(self) -> int:
        """Step up to which samples have been taken in."""
        return self.first + len(self.samples)

    def take(self, block: np.ndarray) -> tuple[range, np.ndarray, np.ndarray]:
        """Take in samples, shape (steps, keys); return the windows that they finish."""
        samples = np.concatenate([self.samples, block])
        done = self.windows.ending_in(0, self.first + len(samples))
        done = range(self.next, max(self.next, done.stop))
        skip = -self.first % self.windows.pane
        aggregates, counts = self.windows.aggregate(samples[skip:], self.first + skip, done)
        self.next = done.stop
        spent = min(len(samples), max(0, self.next * self.windows.slide - self.first))
        self.first, self.samples = self.first + spent, samples[spent:]
        return done, aggregates, counts


@dataclass(frozen=True)
class Worker:
    """What a task does with its shift: fill windows, and send each when it is finished.

    The first to work on a shift dies when it reaches an outage of its own. A substitute that can
    prove the death of all before it, and may be estimated, goes on where its shift resumes.
    """

    windows: Windows
    outages: tuple[Outage, ...]
    notes: Path
    mail: Path

    def work(self, shift: Shift, attempt: int, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Rows of `RESULT`: runs of finished windows, one of windows lost, one of the shift."""
        box, keys = Mailbox(self.mail), len(shift.keys)
        lost: Mail | None = None
        if attempt and shift.resume is not None:  # the attempts before may be estimated, if dead
            deaths = [box.death(shift.worker, shift.start, i, keys) for i in range(attempt)]
            if None not in deaths and self.gives_up(shift):
                lost = deaths[0]
        begin = min(shift.begin, shift.stop)
        said: dict[str, Any] = {"dead": None, "failure": None, "recovery": None, "again": 0}
        if lost is not None:
            recovery = cast("int", shift.resume)
            begin = max(begin, min(recovery, shift.stop))
            said |= {"dead": lost.pid, "failure": lost.reached, "recovery": recovery}
        about = shift.worker, attempt, os.getpid(), shift.start, begin, shift.stop
        said |= zip(_ATTEMPT, about, strict=True)

        memory, spans = self.memory(shift, begin), range(shift.start, shift.stop)
        earlier = [box.read(shift.worker, shift.start, i, keys) for i in range(attempt)]
        known = max((mail.reached for mail in earlier if mail), default=0)
        mine = [o for o in self.outages if o.worker == shift.worker and o.failure in spans]
        own = [] if attempt else mine
        taken = range(self.windows.ending_in(shift.start, shift.stop).start, memory.next)
        if taken:
            yield result_row(said, taken)
        with box.writing(shift.worker, shift.start, attempt, begin) as send:
            for block in blocks(shift.keys, begin, shift.stop):
                said["again"] += max(0, min(known - memory.reached, len(block))) * keys
                cuts = [max(0, o.failure - memory.reached) for o in own]
                for part in np.split(block, sorted(cut for cut in cuts if cut < len(block))):
                    finished = memory.take(part)
                    send(memory.reached, *finished)
                    yield result_row(said, *finished)
                    for outage in own:
                        if outage.failure <= memory.reached:
                            point = f"worker-{outage.worker}"
                            Fault(self.notes, point, outage.failure).passes(point, outage.failure)
        yield result_row(said)

    def gives_up(self, shift: Shift) -> bool:
        """Whether what was lost of a shift stays lost: that of one worker in each micro-batch."""
        return Mailbox(self.mail).claim(shift.worker, shift.start)

    def memory(self, shift: Shift, begin: int) -> Memory:
        """What it begins with: nothing, so that only windows from there on will be whole."""
        due = self.windows.ending_in(shift.start, shift.stop)
        first = min(max(due.start, -(-begin // self.windows.slide)), due.stop)
        return Memory(self.windows, begin, first, np.empty((0, len(shift.keys))))


def result_row(
    said: dict[str, Any],
    windows: range | None = None,
    aggregates: np.ndarray | None = None,
    samples: np.ndarray | None = None,
) -> pa.RecordBatch:
    """A run of windows, lost ones without values, or without windows the row of the shift."""
    row = {"values": aggregates, "samples": samples}
    columns: dict[str, list] = {
        name: [None if array is None else array.ravel()] for name, array in row.items()
    }
    run = (None, None) if windows is None else (windows.start, len(windows))
    columns |= {name: [value] for name, value in said.items()}
    columns |= {"first": [run[0]], "count": [run[1]]}
    return pa.RecordBatch.from_pydict(columns, schema=RESULT)
