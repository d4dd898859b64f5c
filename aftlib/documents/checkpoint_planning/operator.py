"""Recovery by partial replay: restore c^k, replay O, estimate the others (D2 section 4)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from aftlib.core.checks import listed
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import ROW_GROUP, LogReader, SensorLog
from aftlib.core.storage import locked
from aftlib.core.windows import divisor, results_of
from aftlib.documents.checkpoint_planning.plan import (
    PROPOSED,
    CheckpointPlan,
    RecoveryTime,
    plan_checkpoints,
    squared_divisor,
)
from aftlib.documents.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
)

Read = Callable[[Sequence[int], int, int], tuple[np.ndarray, np.ndarray]]
"""Sums and numbers of the samples of some sensors over the steps [start, stop)."""
Passes = Callable[[str, int], None]
"""Called with each point that a batch passes and the batch number; faults are injected there."""


def ignore_points(point: str, batch: int) -> None:
    """Inject nothing."""


@dataclass(frozen=True, eq=False)
class ReplayQuery:
    """A mean or sum over tumbling windows, and the requirements on a recovery.

    The fields are the arguments of `plan_checkpoints`.
    """

    model: GaussianModel
    window: int
    requirement: Requirement
    recovery_time: RecoveryTime
    t_sla_ms: float
    method: str = PROPOSED
    query: str = "mean"

    def plan(self, start: int = 0, checkpoint_variance: np.ndarray | None = None) -> CheckpointPlan:
        """Plan the part of a window that begins `start` steps after the window's beginning."""
        problem = (self.model, self.window, self.requirement, self.recovery_time, self.t_sla_ms)
        return plan_checkpoints(*problem, self.method, self.query, start, checkpoint_variance)

    @cached_property
    def first_plan(self) -> CheckpointPlan:
        """Plan of a window without a failure."""
        return self.plan()

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the query: a query with another identity must not use the stored state."""
        numbers = (self.window, self.t_sla_ms, *astuple(self.requirement))
        numbers += astuple(self.recovery_time)
        exact = [float(number) for number in numbers]  # NumPy's types would change the identity
        digest = self.model.digest()
        digest.update(json.dumps([self.model.names, self.method, self.query, exact]).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Interval:
    """The aggregates of all n sensors over one interval."""

    sums: np.ndarray  # (n,)
    counts: np.ndarray  # (n,) samples in each sum; an estimated step counts as one
    variance: np.ndarray  # (n,) error variance of each sum; 0 where nothing is estimated
    sensors: int  # number of sensors that were read


@dataclass
class PartialReplay:
    """The stream's operator: it aggregates one batch after another, and recovers failed batches.

    A batch is recovered if another process than `process_id` began it. Whenever a batch passes a
    point, `passes` is called: "begun", "restored", "replayed", "estimated", "committed", "planned".
    """

    query: ReplayQuery
    log: SensorLog
    store: CheckpointStore
    process_id: str
    passes: Passes = ignore_points
    replays_all: bool = False
    """Whether a failed batch is read from all sensors, so that it counts as undisturbed."""
    batch_steps: tuple[int, int] = (0, 0)
    """First step of the last batch, and the step after it."""

    def __post_init__(self) -> None:
        query = self.query
        # failures that use up ε need a replay of all sensors
        query.recovery_time.max_tuples(query.t_sla_ms, least=query.model.size)
        checkpoint = self.store.restore()
        if checkpoint is None or not checkpoint.plan:
            self.store.save(self._plan_rest(checkpoint or _first_checkpoint(query, window=0)))

    @property
    def checkpoint(self) -> Checkpoint:
        """The last checkpoint."""
        return cast("Checkpoint", self.store.restore())

    @property
    def stop(self) -> int:
        """Step at which the stream ends, the end of the log's last whole window."""
        return self.log.steps - self.log.steps % self.query.window

    def recover(self, read: Read) -> None:
        """Recover the batch that a crashed process had begun, if there is one."""
        if self.store.unfinished(self.checkpoint.position):
            self.process(len(self.store.records()), read)

    def finish(self, read: Read) -> None:
        """Process the log's remaining intervals, up to the end of its last whole window."""
        batch = len(self.store.records())
        while self.checkpoint.position < self.stop:
            self.process(batch, read)
            batch += 1

    def process(self, batch: int, read: Read) -> None:
        """Aggregate the next planned interval; if a process crashed in it, read only the sensors O.

        If a sample of O is missing, the interval is replayed from all sensors, which may exceed
        T_SLA. ValueError when the prepared replay sets are gone.
        """
        clock = [time.perf_counter()]  # T_res restores the checkpoint, too (24)
        if self.store.committed(batch):
            return  # the process crashed after its commit, before Spark recorded the batch
        checkpoint = self.checkpoint
        start = checkpoint.position
        stop = checkpoint.next_boundary
        self.batch_steps = (start, stop)

        def end_phase(point: str) -> None:
            clock.append(time.perf_counter())
            self.passes(point, batch)

        crashed = self.store.begin(start, self.process_id)
        failed = crashed and not self.replays_all
        self.passes("begun", batch)
        if failed:
            interval = self._recover(checkpoint, read, end_phase)
        else:
            end_phase("restored")
            interval = self._read_all(start, stop, read)
            end_phase("replayed")
            end_phase("estimated")

        phases = np.diff(clock) * 1e3
        record = IntervalRecord(batch, start, stop, failed, interval.sensors, *phases.tolist())
        aggregated = replace(
            checkpoint,
            position=stop,
            sums=checkpoint.sums + interval.sums,
            counts=checkpoint.counts + interval.counts,
            variance=checkpoint.variance + interval.variance,
        )
        self._commit(aggregated, record)

    def _read_all(self, start: int, stop: int, read: Read) -> Interval:
        """Aggregate an interval from the samples of all sensors."""
        n = self.query.model.size
        sums, counts = read(range(n), start, stop)
        return Interval(sums, counts, np.zeros(n), sensors=n)

    def _recover(
        self, checkpoint: Checkpoint, read: Read, end_phase: Callable[[str], None]
    ) -> Interval:
        """Aggregate the next interval from the samples of O; estimate the other sensors."""
        start = checkpoint.position
        stop = checkpoint.next_boundary
        steps = stop - start
        prepared = self.store.load_prepared(checkpoint.plan, checkpoint.interval)
        end_phase("restored")
        sums, counts = read(prepared.sensors.tolist(), start, stop)
        if np.any(counts < steps):  # a sample of O is missing
            interval = self._read_all(start, stop, read)
            end_phase("replayed")
        else:
            end_phase("replayed")
            interval = Interval(
                sums=prepared.estimate(self.query.model.mean, sums, steps),
                counts=np.full(self.query.model.size, steps),
                variance=steps * prepared.variance,
                sensors=len(prepared.sensors),
            )
        end_phase("estimated")
        return interval

    def _commit(self, checkpoint: Checkpoint, record: IntervalRecord) -> None:
        """Commit the batch, with a plan for the steps that follow.

        After a recovery the plan is made after the commit, so that the recovery does not wait. If
        the process crashes in between, the next one plans.
        """
        results = None
        if checkpoint.position == checkpoint.window + self.query.window:
            results = _window_results(self.query, checkpoint)
            checkpoint = _first_checkpoint(self.query, checkpoint.position)
        if record.recovered:
            checkpoint = replace(checkpoint, times=(checkpoint.position,), plan="")
        elif not checkpoint.plan:
            checkpoint = self._plan_rest(checkpoint)
        self.store.commit(checkpoint, results, record)
        self.passes("committed", record.batch)
        if not checkpoint.plan:
            self.store.save(self._plan_rest(checkpoint))
        self.passes("planned", record.batch)

    def _plan_rest(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with a plan for the rest of its window, and prepare that plan."""
        query = self.query
        done = checkpoint.position - checkpoint.window
        variance = checkpoint.variance / squared_divisor(query.query, max(done, 1))
        plan = query.plan(done, variance) if done else query.first_plan
        name = self.store.prepare(plan)
        times = tuple(checkpoint.window + tau for tau in plan.times)
        return replace(checkpoint, times=times, plan=name)


def open_operator(
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    passes: Passes = ignore_points,
    *,
    replays_all: bool = False,
) -> PartialReplay:
    """Return the operator on the state in a directory, with a new id of this process.

    `replays_all` makes recoveries read all sensors, as exactly-once does.

    ValueError when the log's keys are not the model's, or the state belongs to another query or
    another log.
    """
    if log.names != query.model.names:
        raise ValueError(
            f"log must have the model's keys {listed(query.model.names)} in their order, got "
            f"{listed(log.names)}; fit the model on these sensors"
        )
    store = CheckpointStore(directory)
    store.require_same("query", query.fingerprint)
    store.require_same("log", json.dumps(log.identity, sort_keys=True))
    return PartialReplay(query, log, store, uuid.uuid4().hex, passes, replays_all)


@contextmanager
def driver(
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    passes: Passes = ignore_points,
    *,
    replays_all: bool = False,
) -> Iterator[PartialReplay]:
    """Prepare the operator of a driver that alone may use the directory while the block runs.

    The arguments are those of `open_operator`.

    A driver whose block ends, also by an error, has not crashed: the batch that it began is not
    recovered, but read completely. TimeoutError when another driver uses the directory.
    """
    with locked(Path(directory)):
        operator = open_operator(query, log, directory, passes, replays_all=replays_all)
        try:
            yield operator
        finally:
            operator.store.end(operator.process_id)


def bare_read(log: SensorLog) -> Read:
    """Return a reader of a log in this process, which reads consecutive intervals in advance."""
    return partial(interval_sums, LogReader(log))


def interval_sums(
    log: SensorLog | LogReader, keys: Sequence[int], start: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum and number of each sensor's finite samples in the steps [start, stop).

    Samples are added up by row groups, so that the bits do not depend on earlier reads.
    """
    sums = np.zeros(len(keys))
    counts = np.zeros(len(keys), dtype=np.int64)
    for block in log.blocks(keys, start, stop) if len(keys) else ():
        for values in np.split(block, range(-start % ROW_GROUP, len(block), ROW_GROUP)):
            part = values.sum(axis=0)
            if np.isfinite(part).all():
                sums = sums + part
                counts = counts + len(values)
            else:
                finite = np.isfinite(values)
                sums = sums + np.where(finite, values, 0.0).sum(axis=0)
                counts = counts + finite.sum(axis=0)
        start += len(block)
    return sums, counts


def _first_checkpoint(query: ReplayQuery, window: int) -> Checkpoint:
    """Return the exact, empty checkpoint c⁰ at the beginning of a window, not planned yet."""
    zeros = np.zeros(query.model.size)
    return Checkpoint(window, window, zeros, zeros, zeros, (window,), plan="")


def _window_results(query: ReplayQuery, checkpoint: Checkpoint) -> pd.DataFrame:
    """Return the results of a finished window, one per sensor (D2 eqs (14)–(16))."""
    number = divisor(query.query, np.maximum(checkpoint.counts, 1))
    columns = {
        "start": checkpoint.window,
        "stop": checkpoint.position,
        "key": query.model.names,
        "value": results_of(query.query, checkpoint.sums, checkpoint.counts),
        "half_width": query.requirement.half_width(checkpoint.variance) / number,
        "samples": checkpoint.counts,
    }
    return pd.DataFrame(columns)
