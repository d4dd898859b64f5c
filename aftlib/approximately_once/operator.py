"""A worker: the task that fills windows in its own memory and sends each finished window."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from aftlib.approximately_once.message_log import MessageLog, SentMessages
from aftlib.approximately_once.sink import WindowSink
from aftlib.core.sensorlog import LogReader, SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.faults import Injector
from aftlib.spark.streams import PlannedInput

_NUMBERS = (
    *("worker", "attempt", "pid", "start", "begin", "stop", "again"),
    *("crashed", "failure", "recovery", "first", "count"),
)
_LISTS = {"values": pa.list_(pa.float64()), "samples": pa.list_(pa.int64())}
RESULT = pa.schema(dict.fromkeys(_NUMBERS, pa.int64()) | _LISTS)


@dataclass
class InputSplit(InputPartition):
    """The input of one worker in one micro-batch: windows ending in (start, stop] are due."""

    worker: int
    keys: list[int]
    begin: int  # first step that its half-filled windows need, or the end of an outage if later
    start: int
    stop: int
    resume: int | None  # step at which a replacement continues; None: it reads the split again


Blocks = Callable[[Sequence[int], int, int], Iterator[np.ndarray]]
"""A worker's input: samples of its keys over the steps [begin, stop), in blocks (steps, keys)."""


@dataclass
class Memory:
    """A worker's half-filled windows: samples from step `first` on, and the next window due."""

    windows: Windows
    first: int
    next: int
    samples: np.ndarray

    @property
    def reached(self) -> int:
        """Step up to which samples were added."""
        return self.first + len(self.samples)

    def take(self, block: np.ndarray) -> tuple[range, np.ndarray, np.ndarray]:
        """Add samples (steps, keys); return the finished windows, their values and counts."""
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
    """The work of a task on its split: fill windows, and send each finished window.

    Faults are injected into the first attempt at a split only. A replacement continues at the
    split's `resume` if it proves the crash of all earlier attempts and the lost windows may be
    estimated. Otherwise it reads the split again.
    """

    windows: Windows
    injector: Injector  # injects faults at ``worker-N``, by step
    messages: Path

    def work(self, split: InputSplit, attempt: int, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Yield rows of `RESULT`: lost windows, each run of finished windows, and the split."""
        log, keys = MessageLog(self.messages), len(split.keys)
        lost: SentMessages | None = None
        if attempt and split.resume is not None:  # estimates are permitted if all attempts crashed
            crashes = [log.crash(split.worker, split.start, i, keys) for i in range(attempt)]
            if None not in crashes and self.gives_up(split):
                lost = crashes[0]
        begin = min(split.begin, split.stop)
        about: dict[str, Any] = {"worker": split.worker, "attempt": attempt, "pid": os.getpid()}
        if lost is not None:
            recovery = cast("int", split.resume)
            begin = max(begin, min(recovery, split.stop))
            about |= {"crashed": lost.pid, "failure": lost.reached, "recovery": recovery}
        about |= {"start": split.start, "begin": begin, "stop": split.stop, "again": 0}

        memory, target = self.memory(split, begin), f"worker-{split.worker}"
        earlier = [log.read(split.worker, split.start, i, keys) for i in range(attempt)]
        known = max((sent.reached for sent in earlier if sent), default=0)
        due = range(split.start, split.start if attempt else split.stop)
        injector = self.injector.part(target, due)
        taken = range(self.windows.ending_in(split.start, split.stop).start, memory.next)
        if taken:
            yield result_row(about, taken)
        with log.writing(split.worker, split.start, attempt, begin) as send:
            for block in blocks(split.keys, begin, split.stop):
                about["again"] += max(0, min(known - memory.reached, len(block))) * keys
                cuts = [max(0, fault.step - memory.reached) for fault in injector.schedule]
                for part in np.split(block, sorted(cut for cut in cuts if cut < len(block))):
                    finished = memory.take(part)
                    send(memory.reached, *finished)
                    yield result_row(about, *finished)
                    injector.reach(target, memory.reached)
        yield result_row(about)

    def gives_up(self, split: InputSplit) -> bool:
        """Whether the lost input of the split is skipped; true for one worker per micro-batch."""
        return MessageLog(self.messages).claim(split.worker, split.start)

    def memory(self, split: InputSplit, begin: int) -> Memory:
        """Return an empty memory; its next window is the first due one from step `begin` on."""
        due = self.windows.ending_in(split.start, split.stop)
        first = min(max(due.start, -(-begin // self.windows.slide)), due.stop)
        return Memory(self.windows, begin, first, np.empty((0, len(split.keys))))


@dataclass(frozen=True)
class TimedWorker(Worker):
    """A worker that also records, in marker files, when it started and ended.

    With `resumes` every replacement continues from the present, whatever is lost ("at most once").
    The class is defined in this module, because further imports delay the start of a process.
    """

    resumes: bool = False

    def gives_up(self, split: InputSplit) -> bool:
        """Whether the lost input of the split is skipped; always true with `resumes`."""
        return self.resumes or super().gives_up(split)

    def work(self, split: InputSplit, attempt: int, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """As `Worker.work`."""
        attempt_at = split.worker, split.start, attempt
        self._record(self.time_marker("started", *attempt_at))
        yield from super().work(split, attempt, blocks)
        self._record(self.time_marker("ended", *attempt_at))

    def _record(self, marker: Path) -> None:
        now = time.time_ns()  # the time that a file gets by itself is as coarse as a timer's tick
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        os.utime(marker, ns=(now, now))

    def time_marker(self, point: str, worker: int, start: int, attempt: int) -> Path:
        """Return an attempt's marker file, changed at the `point` "started" or "ended"."""
        return self.injector.directory / f"{point}-{worker}-{start}-{attempt}"


def result_row(
    about: dict[str, Any],
    windows: range | None = None,
    values: np.ndarray | None = None,
    samples: np.ndarray | None = None,
) -> pa.RecordBatch:
    """Return the row of consecutive windows; lost windows have no values.

    Without `windows`, return the row of the split.
    """
    row = dict.fromkeys(RESULT.names) | about
    if windows is not None:
        row |= {"first": windows.start, "count": len(windows)}
    if values is not None and samples is not None:
        row |= {"values": values.ravel(), "samples": samples.ravel()}
    return pa.RecordBatch.from_pydict({k: [value] for k, value in row.items()}, schema=RESULT)


@dataclass(frozen=True)
class SensorSplits(PlannedInput):
    """A sensor log in splits: one per worker in each micro-batch of `every` steps.

    The worker runs inside the data source, so that Spark transfers windows instead of samples.
    """

    log: str  # path of the sensor log
    sink: str  # path of the sink, whose outages show the input that workers have lost
    worker: Worker
    every: int
    workers: list[list[int]]  # key indices of each worker
    approximate: list[bool]  # whether a worker's replacement skips the lost windows
    outages: list[tuple[int, int, int]]  # worker, failure, recovery, as scheduled
    end: int
    learned: int = 0  # steps of a longer first micro-batch, from which the guard learns

    schema: ClassVar[StructType] = from_arrow_schema(RESULT)

    def next_boundary(self, start: int) -> int:
        """The end of the learning steps, then the next multiple of `every` or the end."""
        if start < self.learned:
            return self.learned
        return min((start // self.every + 1) * self.every, self.end)

    def partitions(self, start: int, stop: int) -> list[InputSplit]:
        """One split per worker.

        While windows that another worker lost are due, a crash is recovered exactly, because too
        few results would be left for estimates.
        """
        windows = self.worker.windows
        due = windows.ending_in(start, stop)
        first = due[0] * windows.slide if due else start
        held, splits = WindowSink(self.sink).held(), []
        for worker, keys in enumerate(self.workers):
            others = max((step for other, step in held.items() if other != worker), default=0)
            resume = stop if self.approximate[worker] and others <= first else None
            for failed, failure, recovery in self.outages:
                if resume is not None and failed == worker and start <= failure < stop:
                    resume = recovery
            begin = max(first, held.get(worker, 0))
            splits.append(InputSplit(worker, keys, begin, start, stop, resume))
        return splits

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of the split's worker; a second attempt at the split is the worker's replacement."""
        context, log = TaskContext.get(), SensorLog.open(self.log)
        attempt = 0 if context is None else context.attemptNumber()
        # shared, because several workers of a process read the same files
        blocks = LogReader(log, shared=True).blocks
        return self.worker.work(cast("InputSplit", partition), attempt, blocks)


class OnwardSplits(SensorSplits):
    """Splits that no process reads again; an outage may last to the end of the stream."""

    def partitions(self, start: int, stop: int) -> list[InputSplit]:
        """Return one split per worker; it begins where the worker's last outage ended."""
        splits = []
        for worker, keys in enumerate(self.workers):
            mine = [(f, r) for failed, f, r in self.outages if failed == worker]
            begin = max([start, *(r for f, r in mine if f < start)])
            resume = next((r for f, r in mine if start <= f < stop), stop)
            splits.append(InputSplit(worker, keys, min(begin, stop), start, stop, resume))
        return splits
