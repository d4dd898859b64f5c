"""Recovery by partial replay: restore c^k, replay O, estimate the others (D2 section 4)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from aftlib.checkpoint_planning.plan import ADAPTIVE, QUERIES, CheckpointPlan, plan_checkpoints
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.replay import COMPARED_TO, ReplaySet
from aftlib.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
    Preparation,
    WindowResult,
)
from aftlib.checkpoint_planning.steps import estimate_with_gaps, interval_sums
from aftlib.core.checks import require_choice
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import LogReader, SensorLog
from aftlib.core.windows import AGGREGATES, Aggregate

Read = Callable[[Sequence[int], int, int], tuple[np.ndarray, np.ndarray]]
"""Sums and numbers of the samples of some sensors over the steps [start, stop)."""


@dataclass(frozen=True, eq=False)
class ReplayQuery:
    """A mean or sum over tumbling windows, and the requirements on a recovery.

    The fields up to `query` are the arguments of `plan_checkpoints`. `planned`, if given, has the
    times and replay sets of a plan, which a window follows until a failure; the operator plans the
    rest of a window after a failure.
    """

    model: GaussianModel
    window: int
    requirement: Requirement
    recovery_time: RecoveryTime
    t_sla_ms: float
    method: str = "proposed"
    query: str = "mean"
    planned: tuple[Sequence[int], Sequence[Sequence[int]]] | None = None

    def __post_init__(self) -> None:
        """Refuse settings with which no operator could recover."""
        require_choice("query", self.query, QUERIES)

    def plan(self, start: int = 0, checkpoint_variance: np.ndarray | None = None) -> CheckpointPlan:
        """Plan the part of a window that begins `start` steps after the window's beginning."""
        problem = self.model, self.window, self.requirement, self.recovery_time, self.t_sla_ms
        return plan_checkpoints(*problem, self.method, self.query, start, checkpoint_variance)

    @property
    def aggregate(self) -> Aggregate:
        """The aggregate that `query` names."""
        return AGGREGATES[self.query]

    @property
    def allowed(self) -> float:
        """Largest error variance of a window's sum, w² σ* for a mean (D2 eq. (20))."""
        return self.requirement.max_variance * self.aggregate.divisor(self.window) ** 2

    @cached_property
    def first_plan(self) -> CheckpointPlan:
        """Plan of a window without a failure."""
        if self.planned is None:
            return self.plan()
        times, chosen = self.planned
        replay = tuple(ReplaySet.of(self.model, sensors) for sensors in chosen)
        nothing = np.zeros(self.model.size)
        return CheckpointPlan(tuple(times), replay, self.requirement, self.query, nothing)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the query: a query with another identity must not use the stored state."""
        digest = self.model.digest()
        digest.update(json.dumps([self.model.names, self.settings], sort_keys=True).encode())
        return digest.hexdigest()[:16]

    @property
    def settings(self) -> dict[str, Any]:
        """All fields but the model, as Python values: NumPy types would change the identity."""
        settings: dict[str, Any] = {
            "window": int(self.window),
            "t_sla_ms": float(self.t_sla_ms),
            "method": self.method,
            "query": self.query,
        }
        for name in ("requirement", "recovery_time"):
            numbers = asdict(getattr(self, name))
            settings[name] = {field: float(value) for field, value in numbers.items()}
        if not settings["recovery_time"]["estimate_ms"]:  # earlier releases had none
            del settings["recovery_time"]["estimate_ms"]
        if self.planned is not None:
            settings["planned"] = [list(self.planned[0]), [list(o) for o in self.planned[1]]]
        return settings


class Phases:
    """Durations of a batch's phases; `passes` is called at the end of each."""

    def __init__(self, passes: Callable[[str, int], None], batch: int) -> None:
        self.passes, self.batch, self.ends = passes, batch, [time.perf_counter()]

    def end(self, point: str) -> None:
        """End a phase."""
        self.ends.append(time.perf_counter())
        self.passes(point, self.batch)

    @property
    def times_ms(self) -> list[float]:
        """Milliseconds of each phase."""
        return (np.diff(self.ends) * 1e3).tolist()


@dataclass
class PartialReplay:
    """The stream's operator: it aggregates one batch after another, and recovers failed batches.

    A batch is recovered if another process than `process_id` began it. Whenever a batch passes a
    point, `passes` is called with the point and the batch number. The points are "begun",
    "restored", "replayed", "estimated", "committed" and "planned". Faults are injected there.
    """

    query: ReplayQuery
    log: SensorLog
    store: CheckpointStore
    preparation: Preparation
    process_id: str
    passes: Callable[[str, int], None] = lambda point, batch: None

    def __post_init__(self) -> None:
        q = self.query
        shortest = q.recovery_time(q.model.size, full=True)
        if not q.t_sla_ms >= shortest:
            raise ValueError(
                f"t_sla_ms must be at least {shortest:.6g}, the time to replay one step of all "
                f"{q.model.size} sensors, got {q.t_sla_ms!r}. After failures that used up ε this "
                "replay is needed; allow more time"
            )
        checkpoint = self.store.restore()
        if checkpoint is None or not checkpoint.plan:
            self.store.keep(self._planned(checkpoint or fresh(q, 0)))

    def recover(self) -> bool:
        """Recover the batch that a crashed process had begun; return whether there was one.

        This process reads the batch without Spark, because T_SLA permits few tuples and Spark would
        have to start first.
        """
        batch = self.store.unfinished(self.checkpoint.position)
        if batch is not None:
            self.process(batch, bare_read(self.log))
        return batch is not None

    @property
    def checkpoint(self) -> Checkpoint:
        """The last checkpoint."""
        return cast("Checkpoint", self.store.restore())

    def process(self, batch: int, read: Read) -> None:
        """Aggregate the next planned interval; if a process crashed in it, read only the sensors O.

        ValueError when the state is damaged or the prepared replay sets are gone.
        """
        if self.store.committed(batch):
            return  # the process crashed after its commit, before Spark recorded the batch
        phases, q, checkpoint = Phases(self.passes, batch), self.query, self.checkpoint
        start, stop, n = checkpoint.position, checkpoint.next_boundary, q.model.size
        failed = self.store.begin(batch, start, self.process_id)
        self.passes("begun", batch)
        prepared = self.preparation.load(checkpoint.plan, checkpoint.interval) if failed else None
        keys = prepared.sensors if prepared else list(range(n))
        phases.end("restored")

        sums, counts = read(keys, start, stop)
        phases.end("replayed")

        steps, variance = stop - start, np.zeros(n)
        if prepared and np.all(counts == steps):
            sums = prepared.complete(q.model.mean, sums, steps)
            variance = steps * prepared.variance
        elif prepared:
            keys, sums, variance = self._estimate(checkpoint, prepared.sensors)
        counts = np.full(n, steps) if prepared else counts
        phases.end("estimated")
        record = IntervalRecord(batch, start, stop, failed, len(keys), *phases.times_ms)
        aggregated = replace(
            checkpoint,
            position=stop,
            sums=checkpoint.sums + sums,
            counts=checkpoint.counts + counts,
            variance=checkpoint.variance + variance,
        )
        self._commit(aggregated, record)

    def _estimate(
        self, checkpoint: Checkpoint, sensors: list[int]
    ) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Estimate gaps and extremes step by step, from `values` of `sensors` if these suffice.

        Further sensors are replayed until every variance is within the plan's limit, or all sensors
        are replayed. This may exceed T_SLA. A result whose variance is above the limit even then is
        not `kept`. Returns the replayed sensors, and sums and variances of all n.
        """
        q, start, stop = self.query, checkpoint.position, checkpoint.next_boundary
        left = np.maximum(q.allowed - checkpoint.variance, 0)
        share = (stop - start) / (checkpoint.window + q.window - start)
        limit = left * (1 if q.method == ADAPTIVE else share)
        more = 1
        while True:
            values = self.log.read(sensors, start, stop)
            sums, variance = estimate_with_gaps(q.model, sensors, values)
            lacking = np.setdiff1d(np.arange(q.model.size), sensors)
            if np.all(variance <= limit * (1 + COMPARED_TO)) or not lacking.size:
                return sensors, sums, variance
            first = np.argsort(-q.model.posterior_variance(sensors)[lacking], kind="stable")
            sensors, more = [*sensors, *lacking[first[:more]].tolist()], 2 * more

    def _commit(self, checkpoint: Checkpoint, record: IntervalRecord) -> None:
        """Commit the batch; after a recovery, plan the rest of the window after the commit."""
        window, results = checkpoint.window, []
        if checkpoint.position == window + self.query.window:
            results = window_results(self.query, checkpoint)
            checkpoint = fresh(self.query, checkpoint.position)
        if record.recovered:
            checkpoint = replace(checkpoint, times=(checkpoint.position,), plan="")
        elif not checkpoint.plan:
            checkpoint = self._planned(checkpoint)
        self.store.commit(checkpoint, results, record)
        self.passes("committed", record.batch)
        if not checkpoint.plan:
            self.store.keep(self._planned(checkpoint))
        self.passes("planned", record.batch)

    def _planned(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with a plan for the rest of its window, and prepare that plan."""
        q, window, done = self.query, checkpoint.window, checkpoint.position - checkpoint.window
        variance = checkpoint.variance / q.aggregate.divisor(max(done, 1)) ** 2
        if checkpoint.variance.max() > q.allowed * (1 + COMPARED_TO):
            q = replace(q, method="exactly-once")  # it adds no error
        plan = q.plan(done, variance) if done else q.first_plan
        name = self.preparation.keep(self.query.fingerprint, plan)
        return replace(checkpoint, times=tuple(window + t for t in plan.times), plan=name)


def fresh(query: ReplayQuery, window: int) -> Checkpoint:
    """The exact, empty checkpoint c⁰ at the beginning of a window, not planned yet."""
    zeros = np.zeros(query.model.size)
    return Checkpoint(window, window, zeros, zeros.astype(np.int64), zeros, (window,), "")


def window_results(query: ReplayQuery, checkpoint: Checkpoint) -> list[WindowResult]:
    """Results of a finished window, one per sensor (D2 eqs (14)–(16))."""
    divisor = query.aggregate.divisor(np.maximum(checkpoint.counts, 1))
    values = np.where(checkpoint.counts > 0, checkpoint.sums / divisor, np.nan)
    half = query.requirement.half_width(checkpoint.variance) / divisor
    return results_of(query, checkpoint, values, half, checkpoint.counts)


def results_of(
    query: ReplayQuery,
    checkpoint: Checkpoint,
    values: np.ndarray,
    half: np.ndarray,
    counts: np.ndarray,
) -> list[WindowResult]:
    """One result per sensor of the window that ends at the checkpoint."""
    satisfied = half <= query.requirement.epsilon * (1 + 1e-9)
    columns = (column.tolist() for column in (values, half, counts, satisfied))
    rows = zip(query.model.names, *columns, strict=True)
    return [WindowResult(checkpoint.window, checkpoint.position, *row) for row in rows]


def bare_read(log: SensorLog) -> Read:
    """Return a reader of a log in this process, which reads consecutive intervals in advance."""
    return partial(interval_sums, LogReader(log, ahead=True, shared=True))


def prepare(
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    passes: Callable[[str, int], None] = lambda point, batch: None,
) -> PartialReplay:
    """Return the operator on the state in a directory, with a new id of this process.

    ValueError when the log's keys are not the model's, or the state belongs to another query or
    another log.
    """
    if log.names != query.model.names:
        gone = sorted(set(query.model.names) - set(log.names))
        new = sorted(set(log.names) - set(query.model.names))
        raise ValueError(
            f"log must have the model's {query.model.size} keys in their order, got "
            f"{len(log.names)} (missing {gone[:5]}, new {new[:5]}); fit the model on these sensors"
        )
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    store = CheckpointStore(directory / "state.sqlite", query.fingerprint)
    own = json.dumps(log.identity, sort_keys=True).encode()
    stored = store.memory("log")  # empty if the stream is new, or an earlier release began it
    if not stored:
        store.remember({"log": own})
    elif stored != own:
        raise ValueError(
            f"log must be the one that the stream in {str(directory)!r} began with, "
            f"{stored.decode()}, got {own.decode()}: go on with that one, or start again in "
            "another directory"
        )
    return PartialReplay(
        query, log, store, Preparation(directory / "prepared"), uuid.uuid4().hex, passes
    )
