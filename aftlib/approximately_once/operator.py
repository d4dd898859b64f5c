"""A worker: the task that fills windows in its own memory and sends each when it is finished."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from aftlib.approximately_once.mailbox import Mailbox
from aftlib.approximately_once.master import Outage
from aftlib.approximately_once.source import arrow_schema
from aftlib.core.windows import Windows
from aftlib.spark.faults import Fault

RESULT_SCHEMA = (
    "worker int, window long, values array<double>, samples array<long>, attempt int, pid long, "
    "start long, begin long, stop long, again long, dead long, failure long, recovery long"
)
RESULT = arrow_schema(RESULT_SCHEMA)


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

    The first to work on a shift dies when it reaches an outage of its own.
    """

    windows: Windows
    keys: tuple[int, ...]  # how many each worker has
    outages: tuple[Outage, ...]
    notes: Path
    mail: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take in the blocks of one shift; emit a row for each window due, and one of the shift."""
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        blocks = (
            ({name: batch.column(name)[i].as_py() for name in _HEAD}, batch.column("values")[i])
            for batch in batches
            for i in range(batch.num_rows)
        )
        shift, _ = next(blocks, (None, None))
        if shift is None:
            return
        shift |= {"begin": shift["step"], "attempt": attempt, "pid": os.getpid(), "again": 0}
        due = self.windows.ending_in(shift["start"], shift["stop"])
        box, memory = Mailbox(self.mail), self.memory(shift, due)
        keys = self.keys[shift["worker"]]
        earlier = [box.read(shift["worker"], shift["start"], i, keys) for i in range(attempt)]
        known = max((mail.reached for mail in earlier if mail), default=0)
        spans = range(shift["start"], shift["stop"])
        mine = [o for o in self.outages if o.worker == shift["worker"] and o.failure in spans]
        own = [] if attempt else mine

        yield _results(shift, range(due.start, memory.next))
        writing = box.writing(shift["worker"], shift["start"], attempt, shift["begin"])
        with writing as sender:
            for _, values in blocks:
                block = np.asarray(values.values).reshape(-1, keys)
                shift["again"] += max(0, min(known - memory.reached, len(block))) * keys
                cuts = [max(0, o.failure - memory.reached) for o in own]
                for part in np.split(block, sorted(cut for cut in cuts if cut < len(block))):
                    finished = memory.take(part)
                    sender.send(memory.reached, *finished)
                    yield _results(shift, *finished)
                    for outage in own:
                        if outage.failure <= memory.reached:
                            point = f"worker-{outage.worker}"
                            Fault(self.notes, point, outage.failure).passes(point, outage.failure)
        yield _results(shift)

    def memory(self, shift: dict[str, int], due: range) -> Memory:
        """What it begins with: nothing, so that only windows from there on will be whole."""
        first = max(due.start, -(-shift["begin"] // self.windows.slide))
        nothing = np.empty((0, self.keys[shift["worker"]]))
        return Memory(self.windows, shift["begin"], min(first, due.stop), nothing)


_HEAD = ("worker", "start", "stop", "step", "dead", "failure", "recovery")


def _results(
    shift: dict[str, int],
    windows: range | None = None,
    aggregates: np.ndarray | None = None,
    samples: np.ndarray | None = None,
) -> pa.RecordBatch:
    """Rows of windows, lost ones without values, or without windows that of the shift itself."""
    numbers = [None] if windows is None else list(windows)
    nothing = [None] * len(numbers)
    columns = {
        "window": numbers,
        "values": nothing if aggregates is None else aggregates.tolist(),
        "samples": nothing if samples is None else samples.tolist(),
    }
    columns |= {name: [shift[name]] * len(numbers) for name in RESULT.names if name in shift}
    return pa.RecordBatch.from_pydict(columns, schema=RESULT)
