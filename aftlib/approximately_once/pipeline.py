"""Approximately-once recovery on Structured Streaming (D1 section 4).

A Spark task is a worker: its keys come from the assignment, its half-filled windows live in its
Python process alone. Spark's retry of a task whose process died is the substitute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from aftlib.approximately_once.assignment import Assignment
from aftlib.approximately_once.master import Master, Outage
from aftlib.approximately_once.sink import WindowSink
from aftlib.approximately_once.source import SensorShifts
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.drain import drain
from aftlib.spark.faults import Fault

RESULT = pa.schema(
    [
        ("worker", pa.int32()),
        ("window", pa.int64()),
        ("values", pa.list_(pa.float64())),
        ("samples", pa.list_(pa.int64())),
        ("attempt", pa.int32()),
        ("pid", pa.int64()),
        ("start", pa.int64()),
        ("begin", pa.int64()),
        ("stop", pa.int64()),
    ]
)
RESULT_SCHEMA = (
    "worker int, window long, values array<double>, samples array<long>, "
    "attempt int, pid long, start long, begin long, stop long"
)


@dataclass(frozen=True)
class Query:
    """A windowed aggregate a key over a log, and how its workers are recovered.

    Attributes
    ----------
    log : SensorLog
    windows : Windows
    model : GaussianModel
        Model of the window aggregates.
    assignment : Assignment
    requirement : Requirement
    every : int
        Steps a micro-batch. What a task has computed counts as emitted once its micro-batch is
        committed, so a death takes the windows of one micro-batch at least.
    stop : int, optional
        Step at which the stream ends; default the end of the log.
    exact : bool
        Recompute every worker by reading its input again, estimable or not.

    Raises
    ------
    ValueError
        When sizes do not fit, `every` is less than 1 or `stop` lies outside the log.
    """

    log: SensorLog
    windows: Windows
    model: GaussianModel
    assignment: Assignment
    requirement: Requirement
    every: int
    stop: int | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        keys = sorted(k for worker in self.assignment.workers for k in worker)
        n = len(self.log.names)
        if not (self.model.size == n and keys == list(range(n))):
            raise ValueError(
                f"model and assignment must have the log's {n} keys, got a model of "
                f"{self.model.size} and an assignment of {len(keys)}"
            )
        if self.every < 1:
            raise ValueError(f"every must be at least 1 step, got {self.every!r}")
        if not 0 <= self.steps <= self.log.steps:
            raise ValueError(f"stop must lie in 0 … {self.log.steps}, got {self.stop!r}")

    @property
    def steps(self) -> int:
        """Number of steps streamed."""
        return self.log.steps if self.stop is None else self.stop

    @property
    def approximate(self) -> list[bool]:
        """Workers that are estimated when lost."""
        return [bool(e) and not self.exact for e in self.assignment.estimable]


@dataclass(frozen=True)
class Worker:
    """What a task does with its shift: fill windows, emit those that are due.

    It dies, if it is the first to work on the shift, with the block of steps that reaches an
    outage of its own.
    """

    windows: Windows
    keys: int
    outages: tuple[Outage, ...]
    notes: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take in the blocks of one shift; emit one row a due window, values null when lost."""
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        memory: list[np.ndarray] = []
        shift: dict[str, int] = {}
        for batch in batches:
            heads = batch.select(["worker", "start", "stop", "step"]).to_pylist()
            for head, values in zip(heads, batch.column("values"), strict=True):
                shift = shift or {**head, "begin": head["step"]}
                memory.append(np.asarray(values.values))
                reached = min(head["step"] + memory[-1].size // self.keys, head["stop"])
                for outage in () if attempt else self.outages:
                    own = outage.worker == head["worker"]
                    if own and head["start"] <= outage.failure < reached:
                        fault_of(outage, self.notes).passes(
                            f"worker-{outage.worker}", outage.failure
                        )
        if shift:
            yield self.emitted(shift, np.concatenate(memory).reshape(-1, self.keys), attempt)

    def emitted(self, shift: dict[str, int], samples: np.ndarray, attempt: int) -> pa.RecordBatch:
        """Rows of the shift from its samples, shape (steps, keys), of the step `begin` on."""
        due = self.windows.ending_in(shift["start"], shift["stop"])
        skip = -shift["begin"] % self.windows.pane
        first = shift["begin"] + skip
        kept = range(max(due.start, -(-first // self.windows.slide)), due.stop)
        aggregates, counts = self.windows.aggregate(samples[skip:], first, kept)

        lost = len(due) - len(kept)
        rows = len(due) + 1  # one of the shift itself, so that it is known even without windows
        columns = {
            "window": [None, *due],
            "values": [None] * (1 + lost) + aggregates.tolist(),
            "samples": [None] * (1 + lost) + counts.tolist(),
            "attempt": [attempt] * rows,
            "pid": [os.getpid()] * rows,
        }
        columns |= {name: [shift[name]] * rows for name in ("worker", "start", "begin", "stop")}
        return pa.RecordBatch.from_pydict(columns, schema=RESULT)


@dataclass
class Coordinator:
    """The master's side of each micro-batch: what workers sent goes to the sink and to it."""

    query: Query
    sink: WindowSink
    notes: Path
    outages: Sequence[Outage]
    shifts: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        q = self.query
        self.master = Master(q.model, q.assignment, q.requirement)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; running it twice leaves the sink as running it once."""
        began = time.perf_counter()
        sent = batch.toArrow().to_pylist()
        arrived = time.perf_counter()
        results = [row for row in sent if row["window"] is not None]
        summaries = [row for row in sent if row["window"] is None]

        master, cells = self.master, list[tuple]()
        for row in results:  # protocol steps (1), (2) and, for lost ones, (3)
            window, worker, values = row["window"], row["worker"], row["values"]
            if values is None:
                master.expect(window)
            else:
                master.receive(window, worker, np.array(values, dtype=float))
                keys = self.query.assignment.workers[worker]
                cells += self._cells(window, keys, values, samples=row["samples"])
        for window in list(master.damaged):  # (4); the last one ends the recovery: (5)
            for lost in master.estimate(window):
                halves = lost.half_width.tolist()
                cells += self._cells(window, lost.keys, lost.value.tolist(), half_widths=halves)
        self.sink.write(cells, [o for row in summaries for o in self._outage(row)])

        seconds = {"tasks_s": arrived - began, "master_s": time.perf_counter() - arrived}
        names = ("worker", "attempt", "pid", "start", "begin", "stop")
        for row in summaries:
            shift = {name: row[name] for name in names}
            self.shifts.append(shift | {"batch": batch_id} | seconds)

    def _cells(
        self,
        window: int,
        keys: Sequence[int],
        values: Sequence[float],
        samples: Iterable[int] = repeat(0),
        half_widths: Sequence[float] | None = None,
    ) -> Iterator[tuple]:
        """Rows of the sink, estimated when they have half-widths; SQLite keeps NaN as NULL."""
        start = window * self.query.windows.slide
        span = repeat(start), repeat(start + self.query.windows.width)
        names = [self.query.log.names[k] for k in keys]
        halves = repeat(None) if half_widths is None else half_widths
        estimated = repeat(int(half_widths is not None))
        return zip(*span, names, values, halves, estimated, samples, strict=False)

    def _outage(self, row: dict) -> Iterator[Outage]:
        """What a substitute that skipped input tells: its memory begins where it went on."""
        if not (row["attempt"] and self.query.approximate[row["worker"]]):
            return
        for outage in self.outages:
            if outage.worker == row["worker"] and row["start"] <= outage.failure < row["stop"]:
                note = fault_of(outage, self.notes).fallen
                pid = note["pid"] if note else None
                yield replace(outage, dead_pid=pid, substitute_pid=row["pid"])
                return
        yield Outage(row["worker"], row["start"], row["begin"], None, row["pid"])


def fault_of(outage: Outage, notes: Path) -> Fault:
    """Fault that ends the worker of an outage at its step of failure."""
    return Fault(notes, f"worker-{outage.worker}", outage.failure)


@dataclass(frozen=True)
class StreamRun:
    """What a finished stream left.

    Attributes
    ----------
    windows : DataFrame
        The sink's rows: start, stop, key, value, half_width, estimated, samples.
    outages : list of Outage
    shifts : DataFrame
        One row a worker and micro-batch: worker, attempt, pid, start, begin, stop, batch, and the
        seconds that the tasks and the master took.
    """

    windows: pd.DataFrame
    outages: list[Outage]
    shifts: pd.DataFrame


def recover_stream(
    spark: SparkSession, query: Query, directory: Path | str, outages: Sequence[Outage] = ()
) -> StreamRun:
    """Stream the whole log through the query, killing workers as scheduled.

    Parameters
    ----------
    spark : SparkSession
    query : Query
    directory : path
        Place of the sink and of Spark's own checkpoint; an interrupted stream goes on from there.
    outages : sequence of Outage
        Workers to kill, each at a step of the log.

    Returns
    -------
    StreamRun

    Raises
    ------
    ValueError
        When an outage names no worker or no step of the log, or ends before it begins.
    """
    m, steps = len(query.assignment.workers), query.steps
    for o in outages:
        if not (0 <= o.worker < m and 0 <= o.failure < steps and o.failure <= o.recovery):
            raise ValueError(
                f"outages must name a worker in 0 … {m - 1}, a failure in 0 … {steps - 1} and a "
                f"recovery not before it, got {o}"
            )

    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    sink, notes = WindowSink(directory / "sink.sqlite"), directory / "strikes"
    shifts = SensorShifts(
        log=str(query.log.path.absolute()),
        sink=str(sink.path.absolute()),
        windows=query.windows,
        every=query.every,
        workers=[list(keys) for keys in query.assignment.workers],
        approximate=query.approximate,
        outages=[(o.worker, o.failure, o.recovery) for o in outages],
        end=steps,
    )
    worker = Worker(query.windows, len(query.assignment.workers[0]), tuple(outages), notes)
    coordinator = Coordinator(query, sink, notes, outages)
    results = shifts.stream(spark).mapInArrow(worker, RESULT_SCHEMA)
    drain(results.writeStream.foreachBatch(coordinator), directory)
    return StreamRun(sink.windows(), sink.outages(), pd.DataFrame(coordinator.shifts))
