"""Approximately-once recovery on Structured Streaming (D1 section 4).

A Spark task is a worker: its keys come from the assignment, its half-filled windows live in its
Python process alone. Spark's retry of a task whose process died is the substitute.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from aftlib.approximately_once.assignment import Assignment
from aftlib.approximately_once.master import Estimate, Master, Outage
from aftlib.approximately_once.sink import WindowSink
from aftlib.approximately_once.source import SensorLogStream, StreamPlan
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
    """What a task does with its shift: fill windows, emit those that are due."""

    windows: Windows
    keys: int
    outages: tuple[Outage, ...]
    notes: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take in the blocks of one shift; emit one row a due window, values null when lost."""
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        memory: list[np.ndarray] = []
        shift: dict[str, int] = {}
        for row in (row for batch in batches for row in _rows(batch)):
            shift = shift or {k: row[k] for k in ("worker", "start", "stop")} | {
                "begin": row["step"]
            }
            memory.append(row["values"])
            if attempt == 0:
                self._strike_if_due(shift, row["step"], row["values"].size // self.keys)
        if shift:
            yield self._emit(shift, memory, attempt)

    def _strike_if_due(self, shift: dict[str, int], step: int, steps: int) -> None:
        """Die with the block of steps that reaches the scheduled one."""
        for outage in self.outages:
            due = shift["start"] <= outage.failure < shift["stop"]
            if outage.worker == shift["worker"] and due and outage.failure < step + steps:
                fault_of(outage, self.notes).passes(f"worker-{outage.worker}", outage.failure)

    def _emit(
        self, shift: dict[str, int], memory: Sequence[np.ndarray], attempt: int
    ) -> pa.RecordBatch:
        due = self.windows.ending_in(shift["start"], shift["stop"])
        values, first = self._aligned(shift, memory)
        kept = range(max(due.start, -(-first // self.windows.slide)), due.stop)
        aggregates, samples = self.windows.aggregate(values, first, kept)
        lost = len(due) - len(kept)
        count = (
            len(due) + 1
        )  # one row of the shift itself, so that it is known even without windows
        columns = {
            "worker": [shift["worker"]] * count,
            "window": [None, *due],
            "values": [None] * (1 + lost) + aggregates.tolist(),
            "samples": [None] * (1 + lost) + samples.tolist(),
            "attempt": [attempt] * count,
            "pid": [os.getpid()] * count,
        }
        columns |= {k: [shift[k]] * count for k in ("start", "begin", "stop")}
        return pa.RecordBatch.from_pydict(columns, schema=RESULT)

    def _aligned(
        self, shift: dict[str, int], memory: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, int]:
        """Samples from the first whole slice on, shape (steps, keys), and its step."""
        steps = shift["stop"] - shift["begin"]
        taken = np.concatenate(memory)
        values = taken.reshape(steps, self.keys)
        skip = -shift["begin"] % self.windows.pane
        return values[skip:], shift["begin"] + skip


def _rows(batch: pa.RecordBatch) -> Iterator[dict]:
    columns = {name: batch.column(name) for name in ("worker", "start", "stop", "step")}
    lists = batch.column("values")
    for i in range(batch.num_rows):
        row = {name: column[i].as_py() for name, column in columns.items()}
        yield row | {"values": np.asarray(lists[i].values)}


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
        master = self.master
        results = [row for row in sent if row["window"] is not None]
        rows = [cell for row in results if row["values"] is not None for cell in self._exact(row)]
        for row in results:  # protocol steps (1), (2) and, for lost ones, (3)
            if row["values"] is None:
                master.expect(row["window"])
            else:
                master.receive(row["window"], row["worker"], np.array(row["values"], dtype=float))
        for window in list(master.damaged):  # (4); the last one ends the recovery: (5)
            rows += [cell for e in master.estimate(window) for cell in self._estimated(e)]
        summaries = [row for row in sent if row["window"] is None]
        self.sink.write(rows, [o for row in summaries for o in self._outage(row)])
        self._note(summaries, batch_id, arrived - began, time.perf_counter() - arrived)

    def _exact(self, row: dict) -> Iterator[tuple]:
        keys = self.query.assignment.workers[row["worker"]]
        return self._cells(row["window"], keys, row["values"], repeat(None), 0, row["samples"])

    def _estimated(self, estimate: Estimate) -> Iterator[tuple]:
        """The substitute's rows for what the master estimated."""
        values, halves = estimate.value.tolist(), estimate.half_width.tolist()
        return self._cells(estimate.window, estimate.keys, values, halves, 1, repeat(0))

    def _cells(
        self,
        window: int,
        keys: Sequence[int],
        values: Iterable,
        half_widths: Iterable,
        estimated: int,
        samples: Iterable[int],
    ) -> Iterator[tuple]:
        """Rows of the sink; its SQLite keeps NaN as NULL."""
        start, stop = self._span(window)
        names = [self.query.log.names[k] for k in keys]
        fixed = repeat(start), repeat(stop)
        return zip(*fixed, names, values, half_widths, repeat(estimated), samples, strict=False)

    def _span(self, window: int) -> tuple[int, int]:
        start = window * self.query.windows.slide
        return start, start + self.query.windows.width

    def _outage(self, row: dict) -> Iterator[Outage]:
        """What a substitute that skipped input tells: its memory begins where it went on."""
        if row["attempt"] and self.query.approximate[row["worker"]]:
            scheduled = [o for o in self.outages if self._explains(o, row)]
            failure = scheduled[0].failure if scheduled else row["start"]
            recovery = scheduled[0].recovery if scheduled else row["begin"]
            note = fault_of(scheduled[0], self.notes).fallen if scheduled else None
            pid = note["pid"] if note else None
            yield Outage(row["worker"], failure, recovery, pid, row["pid"])

    @staticmethod
    def _explains(outage: Outage, row: dict) -> bool:
        return outage.worker == row["worker"] and row["start"] <= outage.failure < row["stop"]

    def _note(self, summaries: list[dict], batch: int, tasks_s: float, master_s: float) -> None:
        names = ("worker", "attempt", "pid", "start", "begin", "stop")
        for row in summaries:
            shift = {name: row[name] for name in names}
            self.shifts.append(shift | {"batch": batch, "tasks_s": tasks_s, "master_s": master_s})


def fault_of(outage: Outage, notes: Path | str) -> Fault:
    """Fault that ends the worker of an outage at its step of failure."""
    return Fault(Path(notes), f"worker-{outage.worker}", outage.failure)


@dataclass(frozen=True)
class Run:
    """What a finished query left.

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


def run(
    spark: SparkSession, query: Query, directory: Path | str, outages: Sequence[Outage] = ()
) -> Run:
    """Stream the whole log through the query, striking workers as scheduled.

    Parameters
    ----------
    spark : SparkSession
    query : Query
    directory : path
        Place of the sink and of Spark's own checkpoint; an interrupted run goes on from there.
    outages : sequence of Outage
        Workers to kill, each at a step of the log.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        When an outage names no worker or no step of the log, or ends before it begins.
    """
    _check_outages(query, outages)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    sink = WindowSink(directory / "sink.sqlite")
    plan = _plan(query, sink, outages)
    notes = directory / "strikes"
    coordinator = Coordinator(query, sink, notes, outages)
    spark.dataSource.register(SensorLogStream)
    blocks = spark.readStream.format("sensorlog").option("plan", json.dumps(asdict(plan))).load()
    capacity = len(query.assignment.workers[0])
    worker = Worker(query.windows, capacity, tuple(outages), str(notes))
    drain(blocks.mapInArrow(worker, RESULT_SCHEMA).writeStream.foreachBatch(coordinator), directory)
    return Run(sink.windows(), sink.outages(), pd.DataFrame(coordinator.shifts))


def _plan(query: Query, sink: WindowSink, outages: Sequence[Outage]) -> StreamPlan:
    return StreamPlan(
        log=str(query.log.path.absolute()),
        sink=str(sink.path.absolute()),
        width=query.windows.width,
        slide=query.windows.slide,
        every=query.every,
        workers=[list(keys) for keys in query.assignment.workers],
        approximate=query.approximate,
        outages=[[o.worker, o.failure, o.recovery] for o in outages],
        stop=query.steps,
    )


def _check_outages(query: Query, outages: Sequence[Outage]) -> None:
    m, steps = len(query.assignment.workers), query.steps
    for o in outages:
        if not (0 <= o.worker < m and 0 <= o.failure < steps and o.failure <= o.recovery):
            raise ValueError(
                f"outages must name a worker in 0 … {m - 1}, a failure in 0 … {steps - 1} and a "
                f"recovery not before it, got {o}"
            )
