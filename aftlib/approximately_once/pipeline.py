"""Approximately-once recovery on Structured Streaming (D1 section 4).

A Spark task is a worker: its keys come from the assignment, and only its Python process has its
half-filled windows. Spark's retry of a task whose process crashed is the replacement.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Literal, cast, get_args
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from aftlib.approximately_once.assignment import Assignment
from aftlib.approximately_once.coordinator import Coordinator, GuardedCoordinator
from aftlib.approximately_once.message_log import MessageLog
from aftlib.approximately_once.operator import SensorSplits, Worker
from aftlib.approximately_once.sink import Outage, WindowSink
from aftlib.core.checks import require_choice, require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.guard.accounts import Audit
from aftlib.spark.checkpoint import QueryDirectory
from aftlib.spark.faults import Fault, Injector
from aftlib.spark.streams import drain

RecoveryMethod = Literal["model", "guard", "exact"]
RECOVER: tuple[RecoveryMethod, ...] = get_args(RecoveryMethod)


@dataclass(frozen=True)
class Query:
    """A windowed aggregate per key over a log, and the method of recovery, `recover`.

    With "model" the lost windows of a crashed worker are estimated if the worker is estimable. With
    "guard", which gets every window, a sensor is estimated if it was certified before the crash.
    All other lost windows are read again; with "exact", all lost windows. An unscheduled crash
    loses the worker's input from the end of the last block of steps that the worker had processed
    to the end of the micro-batch. ValueError when sizes do not fit, or a field is out of range.
    """

    log: SensorLog
    windows: Windows
    model: GaussianModel  # of the window aggregates
    assignment: Assignment
    requirement: Requirement
    every: int  # steps per micro-batch
    stop: int | None = None  # step at which the stream ends; by default the log's end
    recover: RecoveryMethod = "model"
    seasons: tuple[float, ...] = ()  # seasonal periods in windows; the guard uses them

    def __post_init__(self) -> None:
        keys = sorted(k for worker in self.assignment.workers for k in worker)
        n = len(self.log.names)
        if not (self.model.size == n and keys == list(range(n))):
            raise ValueError(
                f"model and assignment must have the log's {n} keys, got a model of "
                f"{self.model.size} and an assignment of {len(keys)}"
            )
        require_number("every", self.every, least=1, whole=True)
        for season in self.seasons:
            require_number("each of seasons", season, above=0)
        if not 0 <= self.steps <= self.log.steps:
            raise ValueError(f"stop must lie in 0 … {self.log.steps}, got {self.stop!r}")
        require_choice("recover", self.recover, RECOVER)

    @property
    def steps(self) -> int:
        """Number of steps streamed."""
        return self.log.steps if self.stop is None else self.stop

    @property
    def fingerprint(self) -> str:
        """Identity of the results: log, windows, model, assignment, requirement, guard."""
        about = [str(self.log.path.absolute()), self.log.names, self.log.steps, self.log.about]
        about += [asdict(self.windows), asdict(self.requirement), self.assignment.workers]
        about += [self.seasons] if self.recover == "guard" else []
        numbers = self.model.mean.tobytes() + self.model.covariance.tobytes()
        return sha256(json.dumps(about).encode() + numbers).hexdigest()[:16]

    @property
    def approximate(self) -> list[bool]:
        """For each worker, whether its replacement leaves lost windows to the coordinator."""
        always = {"guard": True, "exact": False}
        return [always.get(self.recover, bool(e)) for e in self.assignment.estimable]


@dataclass
class BatchHandler:
    """The coordinator's part of each micro-batch: it passes the workers' results on to the sink."""

    query: Query
    sink: WindowSink
    messages: Path
    splits: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        q = self.query
        parts = q.model, q.assignment, q.requirement, q.windows
        self.coordinator = Coordinator(*parts)
        if q.recover == "guard":
            known = self.sink.coordinator()
            self.coordinator = GuardedCoordinator(*parts, seasons=q.seasons, state=known)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; running it twice leaves the sink as running it once."""
        self.coordinator.audit(self._read)
        began = time.perf_counter()
        sent = batch.toArrow()
        arrived = time.perf_counter()
        delivery = Delivery.of(sent, self.query.windows, self.query.assignment)
        self._complete(delivery)

        coordinator, workers, again = (
            self.coordinator,
            self.query.assignment.workers,
            Counter[int](),
        )
        new = [i for i, window in enumerate(delivery.windows) if window >= coordinator.next]
        # the coordinator needs only windows that a worker has not sent; a guard needs all
        needed = [i for i in new if self.query.recover == "guard" or not delivery.sent[i].all()]
        for i in needed:
            for worker, keys in enumerate(workers):
                if delivery.sent[i, worker]:  # (1) and (2)
                    values, samples = delivery.values[i, keys], delivery.samples[i, keys]
                    coordinator.receive(delivery.windows[i], worker, values, samples)
                else:
                    coordinator.expect(delivery.windows[i])  # protocol step (3)
        cells = delivery.cells(new, self.query.log.names)
        for window in list(coordinator.damaged):  # (4); the last one ends the recovery: (5)
            start = window * self.query.windows.slide
            span = repeat(start), repeat(start + self.query.windows.width)
            for lost in coordinator.recover(window, self._read):
                sensors = [self.query.log.names[k] for k in lost.keys]
                columns = lost.value, lost.half_width, lost.estimated.astype(int), lost.samples
                # SQLite keeps NaN as NULL
                cells += zip(*span, sensors, *(column.tolist() for column in columns), strict=False)
                again[lost.worker] += self.query.windows.width * int((~lost.estimated).sum())
        coordinator.settle()
        outages = [
            Outage(row["worker"], row["failure"], row["recovery"], row["crashed"], row["pid"])
            for row in delivery.splits
            if row["crashed"] is not None
        ]
        self.sink.write(cells, outages, coordinator.to_bytes())

        seconds = {"tasks_s": arrived - began, "coordinator_s": time.perf_counter() - arrived}
        names = ("worker", "attempt", "pid", "start", "begin", "stop", "again")
        for row in delivery.splits:
            split = {name: row[name] for name in names}
            split["again"] += again[row["worker"]]
            self.splits.append(split | {"batch": batch_id} | seconds)

    def close(self) -> Audit | None:
        """Audit the estimates of the last micro-batch."""
        self.coordinator.audit(self._read)
        self.sink.write([], coordinator=self.coordinator.to_bytes())
        return self.coordinator.audited

    def _read(self, window: int, keys: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Aggregates and numbers of samples of a window from the log."""
        windows, start = self.query.windows, window * self.query.windows.slide
        samples = self.query.log.read(keys, start, start + windows.width)
        aggregates, counts = windows.aggregate(samples, start, range(window, window + 1))
        return aggregates[0], counts[0]

    def _complete(self, delivery: Delivery) -> None:
        """Add windows that were not sent, from earlier attempts' messages or from the sink."""
        slide, names = self.query.windows.slide, self.query.log.names
        lacking = np.flatnonzero(~delivery.sent.all(axis=1))
        held = self.sink.exact(delivery.windows[i] * slide for i in lacking)
        for row in delivery.splits if lacking.size else ():
            worker, log = row["worker"], MessageLog(self.messages)
            keys = list(self.query.assignment.workers[worker])
            attempts = [log.read(worker, row["start"], i, len(keys)) for i in range(row["attempt"])]
            known = {w: cell for sent in attempts if sent for w, cell in sent.windows.items()}
            for i in np.flatnonzero(~delivery.sent[:, worker]).tolist():
                window = delivery.windows[i]
                cells = [held.get((window * slide, names[key])) for key in keys]
                if window in known:
                    delivery.take(i, worker, *known[window])
                elif None not in cells:
                    delivery.take(i, worker, *np.transpose(cast("list[tuple]", cells)))


@dataclass(frozen=True)
class StreamRun:
    """Results of a finished stream.

    `splits` has one row per worker and micro-batch: worker, attempt, pid, start and stop (the
    steps of the micro-batch), begin (the first step that this attempt read), batch, again (samples
    that the replacement or the coordinator read again), and the seconds that the tasks and the
    coordinator took. `audit` is about the estimates that the guard certified.
    """

    sink: WindowSink
    outages: list[Outage]
    splits: pd.DataFrame
    audit: Audit | None = None

    @cached_property
    def windows(self) -> pd.DataFrame:
        """All results in the form of `WindowSink.windows`; they are read at the first use."""
        return self.sink.windows()


def recover_stream(
    spark: SparkSession, query: Query, directory: Path | str, outages: Sequence[Outage] = ()
) -> StreamRun:
    """Stream the log through the query, and kill workers at the steps of their outages.

    `directory` has the sink and Spark's own checkpoint; an interrupted stream continues from them.
    ValueError when an outage names no worker or no step of the log, or ends before it begins; when
    the directory is another query's, or not on storage that a cluster's machines share; when
    Spark's checkpoint in it is torn, or ahead of the sink; or when `spark.speculation` is on,
    because a slow worker has not failed, and a second attempt at its task only costs time.
    """
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise ValueError(
            "spark.speculation must be off, got true: a slow worker is not a crashed one; "
            'start the session with session(..., **{"spark.speculation": "false"})'
        )
    directory = Path(directory)
    shutil.rmtree(directory / "messages", ignore_errors=True)
    splits, coordinator = staff(query, directory, outages)
    require_in_step(query, coordinator.sink, directory)
    drain(splits.stream(spark).writeStream, directory, coordinator)
    audit, sink = coordinator.close(), coordinator.sink
    return StreamRun(sink, sink.outages(), pd.DataFrame(coordinator.splits), audit)


def require_in_step(query: Query, sink: WindowSink, directory: Path) -> None:
    """Refuse a Spark checkpoint that is torn, or that is ahead of the results in the sink.

    A checkpoint that is behind the sink does no harm: its micro-batches run again, into the same
    rows.
    """
    place = QueryDirectory(
        directory,
        f"remove the folder {str(directory / 'checkpoint')!r}; the stream then runs from its "
        "beginning into the same sink, in which writing twice is writing once",
    )
    offset = place.spark_checkpoint().offset
    due = query.windows.ending_in(0, offset["step"] if offset else 0)
    wanted = len(due) * len(query.log.names)
    count = sink.count(due.stop * query.windows.slide)
    step = offset["step"] if offset else 0
    missing = (
        f"sink must hold the {wanted} results up to step {step}, which Spark's checkpoint counts "
        "as written"
    )
    place.require_state(wanted, count, missing, sink.path)


def staff(
    query: Query, directory: Path, outages: Sequence[Outage] = ()
) -> tuple[SensorSplits, BatchHandler]:
    """Return the source of a query's splits (with the worker) and the handler of micro-batches.

    Arguments and errors as `recover_stream`.
    """
    m, steps = len(query.assignment.workers), query.steps
    for o in outages:
        if not (0 <= o.worker < m and 0 <= o.failure < steps and o.failure <= o.recovery):
            raise ValueError(
                f"outages must name a worker in 0 … {m - 1}, a failure in 0 … {steps - 1} and a "
                f"recovery not before it, got {o}"
            )

    directory.mkdir(parents=True, exist_ok=True)
    sink = WindowSink(directory / "sink.sqlite", query.fingerprint)
    messages = directory.absolute() / "messages" / uuid4().hex
    faults = tuple(Fault("kill", f"worker-{o.worker}", o.failure) for o in outages)
    splits = SensorSplits(
        log=str(query.log.path.absolute()),
        sink=str(sink.path.absolute()),
        worker=Worker(query.windows, Injector(directory.absolute() / "faults", faults), messages),
        every=query.every,
        workers=[list(keys) for keys in query.assignment.workers],
        approximate=query.approximate,
        outages=[(o.worker, o.failure, o.recovery) for o in outages],
        end=steps,
    )
    return splits, BatchHandler(query, sink, messages)


@dataclass(frozen=True)
class Delivery:
    """The windows due in one micro-batch, one row per window, and its splits.

    `values` is NaN and `samples` 0 where `sent` is False.
    """

    layout: Windows
    assignment: Assignment
    splits: list[dict]  # one per worker, as in `operator.RESULT`
    windows: range
    values: np.ndarray  # (windows, n)
    samples: np.ndarray  # (windows, n)
    sent: np.ndarray  # (windows, m) bool, whether a worker sent a window

    @classmethod
    def of(cls, rows: pa.Table, layout: Windows, assignment: Assignment) -> Delivery:
        """Gather the rows (`operator.RESULT`) of all workers."""
        scalars = rows.drop_columns(["values", "samples"]).to_pylist()
        splits = [row for row in scalars if row["first"] is None]
        start = min((row["start"] for row in splits), default=0)
        due = layout.ending_in(start, max((row["stop"] for row in splits), default=start))
        shape = len(due), len(assignment.worker_of)
        sent = np.zeros((len(due), len(assignment.workers)), bool)
        empty = np.full(shape, np.nan), np.zeros(shape, np.int64), sent
        delivery = cls(layout, assignment, splits, due, *empty)
        for i, row in enumerate(scalars):
            values, samples = rows["values"][i].values, rows["samples"][i].values
            if values is not None and row["count"]:
                first = row["first"] - due.start
                here = slice(first, first + row["count"])
                delivery.take(here, row["worker"], values.to_numpy(), samples.to_numpy())
        return delivery

    def take(self, rows: int | slice, worker: int, values: np.ndarray, samples: np.ndarray) -> None:
        """Record a worker's results of some windows, one value per key in the worker's order."""
        keys = list(self.assignment.workers[worker])
        self.values[rows, keys] = values.reshape(-1, len(keys))
        self.samples[rows, keys] = samples.reshape(-1, len(keys))
        self.sent[rows, worker] = True

    def cells(self, rows: Sequence[int], names: Sequence[str]) -> list[tuple]:
        """Rows of the sink for the results of some windows, in the sink's order.

        Each has start, stop, key, value, half_width, estimated and samples.
        """
        order = np.array(sorted(range(len(names)), key=names.__getitem__))
        at = np.ix_(np.array(rows, int), order)
        sent = self.sent[at[0], self.assignment.worker_of[order]]
        window, key = np.nonzero(sent)
        start = (np.array(self.windows)[at[0].ravel()] * self.layout.slide)[window]
        ends = start + self.layout.width
        columns = start, ends, np.array(names, object)[order][key], self.values[at][sent]
        lists = (column.tolist() for column in columns)
        samples = self.samples[at][sent].tolist()
        return list(zip(*lists, repeat(None), repeat(0), samples, strict=False))
