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
    PreparedReplay,
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


@dataclass
class PartialReplay:
    """The stream's operator: it aggregates one batch after another, and recovers failed batches.

    A batch is recovered if another process than `process_id` began it, unless `replays_all`.
    Whenever a batch passes a point, `passes` is called: "begun", "restored", "replayed",
    "estimated", "committed", "planned".
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
        if checkpoint is None or not checkpoint.plan_name:
            self.store.save(self._plan_rest(checkpoint or _first_checkpoint(query, step=0)))

    def last_checkpoint(self) -> Checkpoint:
        """Read the last checkpoint from the store."""
        return cast("Checkpoint", self.store.restore())

    @property
    def stop(self) -> int:
        """Step at which the stream ends, the end of the log's last whole window."""
        return self.log.steps - self.log.steps % self.query.window

    def recover(self, read: Read) -> None:
        """Recover the batch that a crashed process had begun, if there is one."""
        if self.store.unfinished(self.last_checkpoint().position):
            self.process(self.store.next_batch(), read)

    def finish(self, read: Read) -> None:
        """Process the log's remaining intervals, up to the end of its last whole window."""
        while self.last_checkpoint().position < self.stop:
            self.process(self.store.next_batch(), read)

    def process(self, batch: int, read: Read) -> None:
        """Aggregate the next planned interval; if a process crashed in it, read only the sensors O.

        ValueError when the prepared replay sets are gone.
        """
        clock = [time.perf_counter()]  # T_res begins before the checkpoint is restored (24)
        if self.store.committed(batch):
            return  # the process crashed after its commit, before Spark recorded the batch
        checkpoint = self.last_checkpoint()
        start = checkpoint.position
        stop = checkpoint.next_boundary
        self.batch_steps = (start, stop)

        def end_phase(point: str) -> None:
            clock.append(time.perf_counter())
            self.passes(point, batch)

        crashed = self.store.begin(start, self.process_id)
        failed = crashed and not self.replays_all
        self.passes("begun", batch)
        aggregated, sensors = self._aggregate(checkpoint, failed, read, end_phase)
        phases = np.diff(clock) * 1e3
        record = IntervalRecord(batch, start, stop, failed, sensors, *phases.tolist())
        self._commit(aggregated, record)

    def _aggregate(
        self, checkpoint: Checkpoint, failed: bool, read: Read, end_phase: Callable[[str], None]
    ) -> tuple[Checkpoint, int]:
        """Return the checkpoint at the end of the next interval, and the number of sensors read.

        All sensors are read, or, if the interval `failed`, only those of O. If a sample of O is
        missing, the interval is replayed from all sensors, which may exceed T_SLA.
        """
        start = checkpoint.position
        stop = checkpoint.next_boundary
        n = self.query.model.size
        everything = PreparedReplay.everything(n)
        replay = everything
        if failed:
            replay = self.store.load_prepared(checkpoint.plan_name, checkpoint.next_interval)
        end_phase("restored")
        sums, counts = read(replay.sensors.tolist(), start, stop)
        if failed and np.any(counts < stop - start):
            replay = everything
            sums, counts = read(range(n), start, stop)
        end_phase("replayed")
        if replay is not everything:
            sums = replay.estimate(self.query.model.mean, sums, stop - start)
            counts = np.full(n, stop - start)
        end_phase("estimated")
        aggregated = replace(
            checkpoint,
            position=stop,
            sums=checkpoint.sums + sums,
            counts=checkpoint.counts + counts,
            sum_variance=checkpoint.sum_variance + (stop - start) * replay.step_variance,
        )
        return aggregated, len(replay.sensors)

    def _commit(self, checkpoint: Checkpoint, record: IntervalRecord) -> None:
        """Commit the batch, with a plan for the steps that follow.

        A window that begins is planned in the same transaction. After a recovery the rest is
        planned after the commit, so that the recovery does not wait; if the process crashes in
        between, the next one plans.
        """
        results = None
        if checkpoint.position == checkpoint.window_start + self.query.window:
            results = _window_results(self.query, checkpoint)
            checkpoint = _first_checkpoint(self.query, checkpoint.position)
        if record.recovered:
            checkpoint = replace(checkpoint, times=(checkpoint.position,), plan_name="")
        elif not checkpoint.plan_name:
            checkpoint = self._plan_rest(checkpoint)
        self.store.commit(checkpoint, results, record)
        self.passes("committed", record.batch)
        if not checkpoint.plan_name:
            self.store.save(self._plan_rest(checkpoint))
        self.passes("planned", record.batch)

    def _plan_rest(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with a plan for the rest of its window, and prepare that plan."""
        query = self.query
        done = checkpoint.position - checkpoint.window_start
        plan = query.first_plan
        if done:  # a plan takes the variance of the running mean or sum
            plan = query.plan(done, checkpoint.sum_variance / squared_divisor(query.query, done))
        times = tuple(checkpoint.window_start + tau for tau in plan.times)
        return replace(checkpoint, times=times, plan_name=self.store.prepare(plan))


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
    recovered, but read completely. Only a killed process leaves its batch to be recovered within
    T_SLA; after an orderly end there is time for an exact result. TimeoutError when another driver
    uses the directory.
    """
    with locked(Path(directory)):
        operator = open_operator(query, log, directory, passes, replays_all=replays_all)
        try:
            yield operator
        finally:
            operator.store.withdraw(operator.process_id)


def bare_read(log: SensorLog) -> Read:
    """Return a reader of a log in this process, which reads consecutive intervals in advance."""
    return partial(interval_sums, LogReader(log))


def interval_sums(
    log: SensorLog | LogReader, keys: Sequence[int], start: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum and number of each sensor's finite samples in the steps [start, stop).

    Samples are added up by row groups, so that the bits do not depend on earlier reads of the
    reader, whose blocks begin where they ended.
    """
    sums = np.zeros(len(keys))
    counts = np.zeros(len(keys), dtype=np.int64)
    if not len(keys):
        return sums, counts
    step = start
    for block in log.blocks(keys, start, stop):
        for values in np.split(block, range(-step % ROW_GROUP, len(block), ROW_GROUP)):
            part = values.sum(axis=0)
            present: np.ndarray | int = len(values)
            if not np.isfinite(part).all():
                finite = np.isfinite(values)
                part = np.where(finite, values, 0.0).sum(axis=0)
                present = finite.sum(axis=0)
            sums = sums + part
            counts = counts + present
        step += len(block)
    return sums, counts


def _first_checkpoint(query: ReplayQuery, step: int) -> Checkpoint:
    """Return the exact, empty checkpoint c⁰ of the window that begins at a step, not planned."""
    zeros = np.zeros(query.model.size)
    return Checkpoint(step, step, zeros, zeros, zeros, times=(step,), plan_name="")


def _window_results(query: ReplayQuery, checkpoint: Checkpoint) -> pd.DataFrame:
    """Return the results of a finished window, one per sensor (D2 eqs (14)–(16))."""
    of_sums = query.requirement.half_width(checkpoint.sum_variance)
    columns = {
        "start": checkpoint.window_start,
        "stop": checkpoint.position,
        "key": query.model.names,
        "value": results_of(query.query, checkpoint.sums, checkpoint.counts),
        "half_width": of_sums / divisor(query.query, np.maximum(checkpoint.counts, 1)),
        "samples": checkpoint.counts,
    }
    return pd.DataFrame(columns)
