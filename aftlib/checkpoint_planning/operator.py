"""Recovery by partial replay: restore c^k, replay O, estimate the others (D2 section 4)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from aftlib.checkpoint_planning.plan import CheckpointPlan, plan_checkpoints
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
    WindowResult,
)
from aftlib.core.gaussian import GaussianModel
from aftlib.core.paths import atomic_directory
from aftlib.core.requirement import Requirement

Read = Callable[[Sequence[int], int, int], tuple[np.ndarray, np.ndarray]]
"""Sums and numbers of the samples of some sensors, in their order, over the steps [start, stop)."""


@dataclass(frozen=True, eq=False)
class ReplayQuery:
    """A mean or sum over tumbling windows, and how quickly it must recover.

    Attributes
    ----------
    model : GaussianModel
        Of the n sensors' values at one step.
    window : int
        Steps w of a window.
    requirement : Requirement
    recovery_time : RecoveryTime
    t_sla_ms : float
    method, query : str
        As `plan_checkpoints`.
    """

    model: GaussianModel
    window: int
    requirement: Requirement
    recovery_time: RecoveryTime
    t_sla_ms: float
    method: str = "proposed"
    query: str = "mean"

    def plan(self, start: int = 0, checkpoint_variance: np.ndarray | None = None) -> CheckpointPlan:
        """Plan of a window from `start` steps after its beginning."""
        return plan_checkpoints(
            self.model,
            self.window,
            self.requirement,
            self.recovery_time,
            self.t_sla_ms,
            method=self.method,
            query=self.query,
            start=start,
            checkpoint_variance=checkpoint_variance,
        )

    @cached_property
    def first_plan(self) -> CheckpointPlan:
        """Plan of a window that nothing has happened to."""
        return self.plan()

    @cached_property
    def fingerprint(self) -> str:
        """What identifies the query: another one must not go on with its state."""
        parts = (self.model.mean.tobytes(), self.model.covariance.tobytes(), self.model.names)
        settings = (self.window, self.requirement, self.recovery_time, self.t_sla_ms)
        text = repr((parts, settings, self.method, self.query))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Preparation:
    """Replay sets and gain matrices on disk, made with the plan so that recovery only loads them.

    Parameters
    ----------
    directory : path
        One folder a plan in it: sensors, gain and variance of each interval.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)

    def keep(self, window: int, plan: CheckpointPlan) -> None:
        """Compute and keep what a failure in each interval of a plan will need."""
        folder = self._folder(window, plan.times[0])
        if folder.exists():
            return
        with atomic_directory(folder) as scratch:
            for k, replay in enumerate(plan.replay):
                np.save(scratch / f"{k}-sensors.npy", np.array(replay.sensors, dtype=np.int64))
                np.save(scratch / f"{k}-gain.npy", replay.gain())
                np.save(scratch / f"{k}-variance.npy", replay.variance)
            (scratch / "times.json").write_text(json.dumps(plan.times))

    def load(self, window: int, origin: int, interval: int) -> PreparedReplay:
        """What a failure in an interval needs of the plan made `origin` steps into a window.

        Raises
        ------
        ValueError
            When a file is gone or damaged.
        """
        parts = {}
        for name in ("sensors", "gain", "variance"):
            path = self._folder(window, origin) / f"{interval}-{name}.npy"
            try:
                parts[name] = np.load(path, allow_pickle=False)
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"directory lacks an intact {path.name} of the plan at step {origin} "
                    f"({error}); delete the directory, and the plan is prepared again"
                ) from error
        return PreparedReplay(parts["sensors"].tolist(), parts["gain"], parts["variance"])

    def _folder(self, window: int, origin: int) -> Path:
        """A plan made at a window's beginning serves every window; a later one its own."""
        return self.directory / ("first" if origin == 0 else f"{window}-{origin}")


@dataclass(frozen=True, eq=False)
class PreparedReplay:
    """What a recovery loads: the replay set O and how the others follow from it.

    Attributes
    ----------
    sensors : list of int
        O, |O| key indices.
    gain : ndarray, shape (n − |O|, |O|)
    variance : ndarray, shape (n,)
        Of each sensor's value at one step given those of O.
    """

    sensors: list[int]
    gain: np.ndarray
    variance: np.ndarray

    def complete(
        self, mean: np.ndarray, sums: np.ndarray, counts: np.ndarray, steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sums and numbers of all n sensors from those of O over some steps (D2 eqs (5), (10)).

        A gap in what was replayed tells nothing of the others: there a sensor stands at its mean.
        """
        others = np.setdiff1d(np.arange(mean.size), self.sensors)
        everyone, number = np.empty(mean.size), np.full(mean.size, steps)
        everyone[self.sensors], number[self.sensors] = sums, counts
        deviation = sums - counts * mean[self.sensors]
        everyone[others] = steps * mean[others] + self.gain @ deviation
        return everyone, number


@dataclass
class PartialReplay:
    """The stream's operator: aggregates batch after batch, and recovers the one that had failed.

    Parameters
    ----------
    query : ReplayQuery
    store : CheckpointStore
    preparation : Preparation
    process_id : str
        Of this process; a batch that another one began is recovered.
    passes : callable, optional
        Told of each point that a batch passes, with the batch: "begun", "restored", "replayed",
        "estimated", "committed". Faults strike there.
    """

    query: ReplayQuery
    store: CheckpointStore
    preparation: Preparation
    process_id: str
    passes: Callable[[str, int], None] = lambda point, batch: None

    def __post_init__(self) -> None:
        q = self.query
        shortest = q.recovery_time(q.model.size)
        if not q.t_sla_ms >= shortest:
            raise ValueError(
                f"t_sla_ms must be at least {shortest:.6g}, got {q.t_sla_ms!r}: once failures have "
                f"spent the whole error, all {q.model.size} sensors are replayed step by step"
            )
        self.preparation.keep(0, q.first_plan)

    def process(self, batch: int, read: Read) -> None:
        """Aggregate the next planned interval; read partially when a process died in it.

        Raises
        ------
        ValueError
            When the state is damaged or the prepared replay sets are gone.
        """
        if self.store.committed(batch):
            return  # the process died after its commit, before Spark noted the batch
        laps, model = [time.perf_counter()], self.query.model
        checkpoint = self.store.restore() or fresh(self.query, 0)
        start, stop = checkpoint.position, checkpoint.next_boundary
        failed = self.store.begin(batch, start, self.process_id)
        self.passes("begun", batch)
        prepared = self.preparation.load(*checkpoint.interval) if failed else None
        keys = prepared.sensors if prepared else list(range(model.size))
        laps.append(time.perf_counter())
        self.passes("restored", batch)

        sums, counts = read(keys, start, stop)
        laps.append(time.perf_counter())
        self.passes("replayed", batch)

        variance = np.zeros(model.size)
        if prepared:
            sums, counts = prepared.complete(model.mean, sums, counts, stop - start)
            variance = (stop - start) * prepared.variance
        laps.append(time.perf_counter())
        self.passes("estimated", batch)

        times = (np.diff(laps) * 1e3).tolist()
        record = IntervalRecord(batch, start, stop, failed, len(keys), *times)
        aggregated = replace(
            checkpoint,
            position=stop,
            sums=checkpoint.sums + sums,
            counts=checkpoint.counts + counts,
            variance=checkpoint.variance + variance,
        )
        self._commit(aggregated, record)
        self.passes("committed", batch)

    def _commit(self, checkpoint: Checkpoint, record: IntervalRecord) -> None:
        """Finish the window; or go on with its plan, made anew if the checkpoint is not exact."""
        window, results = checkpoint.window, []
        if checkpoint.position == window + self.query.window:
            results = window_results(self.query, checkpoint)
            checkpoint = fresh(self.query, checkpoint.position)
        elif record.recovered:
            done = checkpoint.position - window
            scale = done**2 if self.query.query == "mean" else 1
            plan = self.query.plan(done, checkpoint.variance / scale)
            self.preparation.keep(window, plan)
            checkpoint = replace(checkpoint, times=tuple(window + t for t in plan.times))
        self.store.commit(checkpoint, results, record)


def fresh(query: ReplayQuery, window: int) -> Checkpoint:
    """The exact, empty checkpoint c⁰ at the beginning of a window."""
    n, times = query.model.size, tuple(window + t for t in query.first_plan.times)
    zeros = np.zeros(n)
    return Checkpoint(window, window, zeros, np.zeros(n, dtype=np.int64), zeros, times)


def window_results(query: ReplayQuery, checkpoint: Checkpoint) -> list[WindowResult]:
    """Results of a finished window, one a sensor (D2 eqs (14)–(16))."""
    counts = checkpoint.counts
    divisor = np.maximum(counts, 1) if query.query == "mean" else np.ones(len(counts))
    values = np.where(counts > 0, checkpoint.sums / divisor, np.nan)
    half = query.requirement.half_width(checkpoint.variance) / divisor
    rows = zip(query.model.names, values.tolist(), half.tolist(), counts.tolist(), strict=True)
    return [WindowResult(checkpoint.window, checkpoint.position, *row) for row in rows]
