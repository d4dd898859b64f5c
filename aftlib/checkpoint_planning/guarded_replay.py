"""Partial replay with a guard: the replayed sensors depend on the data (D2, guarded).

While nothing fails, the guard receives each window. For every time τ of a grid it certifies the
sensors that can be estimated from τ to the window's end. After a failure at τ only the others, O,
are read up to the window's end (D2 eq. (12)). A sensor whose account is used up joins O, and the
next window is planned within T_SLA. Later the estimates are audited: they are compared with the log
(`guard.accounts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from aftlib.checkpoint_planning.operator import PartialReplay, Phases, Read, fresh, results_of
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.replay import select_replay
from aftlib.checkpoint_planning.state import Checkpoint, IntervalRecord, WindowResult
from aftlib.checkpoint_planning.steps import interval_sums
from aftlib.core.gaussian import GaussianModel
from aftlib.core.query_directory import pack_arrays, unpack_arrays
from aftlib.guard.accounts import Audit, Estimates
from aftlib.guard.partial import PartialGuard
from aftlib.guard.rounds import LARGEST

GUARDED = "guarded"
"""Name of every plan that follows a guard."""


@dataclass(eq=False)
class Trail:
    """Sums and counts of the samples read so far in the running window."""

    sums: np.ndarray  # (segments, n)
    counts: np.ndarray  # (segments, n), one segment per interval of the grid; −1 where not read
    lost: int = -1  # segment at which a failure left the sensors outside O unread

    @classmethod
    def empty(cls, segments: int, sensors: int) -> Self:
        """Return the trail of a window of which nothing was read."""
        return cls(np.zeros((segments, sensors)), np.full((segments, sensors), -1, np.int64))

    def samples(self, sizes: np.ndarray) -> np.ndarray:
        """Return a window (w, n) with these sums and gaps, for a guard that estimates means.

        Sums that are too large for the guard become gaps, too.
        """
        present = np.where(np.abs(self.sums) < LARGEST, np.maximum(self.counts, 0), 0)
        means = np.divide(
            self.sums, present, out=np.full(self.sums.shape, np.nan), where=present > 0
        )
        place = np.concatenate([np.arange(size) for size in sizes])[:, None]
        there = place < np.repeat(present, sizes, axis=0)
        return np.where(there, np.repeat(means, sizes, axis=0), np.nan)


@dataclass
class GuardedReplay(PartialReplay):
    """`PartialReplay` with replay sets chosen by a guard; see the module's docstring.

    The guard's state, the steps read of the current window, and the audit are committed with the
    batch.
    """

    trail: Trail = field(init=False)
    estimates: Estimates = field(init=False)

    def __post_init__(self) -> None:
        """Continue from the state of an earlier process, or begin with an empty state."""
        q = self.query
        n, self.grid = q.model.size, np.array([*q.grid, q.window])
        self.sizes = np.diff(self.grid)
        longest = q.recovery_time(n * int(self.sizes.max()))
        if not q.t_sla_ms >= longest:
            raise ValueError(
                f"t_sla_ms must be at least {longest:.6g} to replay all {n} sensors over the "
                f"grid's longest segment of {int(self.sizes.max())} steps, got {q.t_sla_ms!r}; "
                "give a finer grid or more time"
            )
        per_mean = float(q.aggregate.of_mean(1.0, q.window))  # the result of a window of mean 1
        self.limit = np.broadcast_to(q.requirement.epsilon / per_mean, (n,))
        self._load()
        if self.store.restore() is None:
            self.store.keep(self._planned(fresh(q, 0)))

    def _load(self) -> None:
        """Restore the last commit, or begin with an empty state."""
        q, n = self.query, self.query.model.size
        self.guard = replay_guard(q.window, q.grid, self.limit, q.requirement.delta, n)
        self.estimates = Estimates(n, q.requirement.delta, "windows", "stretches")
        self.trail = Trail.empty(len(self.sizes), n)
        if known := self.store.memory(GUARDED):
            self.guard.restore(known)
        if known := self.store.memory("trail"):
            arrays = unpack_arrays(known)
            self.trail = Trail(arrays["sums"], arrays["counts"], int(arrays["lost"]))
            self.estimates.restore({**arrays, "counts": arrays["counted"]})

    @property
    def audited(self) -> Audit:
        """The account of real failures so far."""
        return self.estimates.audited

    def process(self, batch: int, read: Read) -> None:
        """Aggregate the next planned interval; after a failure in the window, read only O."""
        if self.store.committed(batch):
            return
        try:
            self._process(batch, read)
        except BaseException:
            self._load()  # nothing of the batch was committed
            raise

    def _process(self, batch: int, read: Read) -> None:
        phases, n, checkpoint = Phases(self.passes, batch), self.query.model.size, self.checkpoint
        start, stop, window = checkpoint.position, checkpoint.next_boundary, checkpoint.window
        failed = self.store.begin(batch, start, self.process_id)
        self.passes("begun", batch)
        first = int(np.searchsorted(self.grid, start - window))
        if failed and self.trail.lost < 0:
            self._lose(window, first)
        keys = np.flatnonzero(~self._unread(window)).tolist()
        phases.end("restored")

        sums, counts = np.zeros(n), np.zeros(n, np.int64)
        last = int(np.searchsorted(self.grid, stop - window))
        for segment in range(first, last):
            begin, end = (self.grid[segment : segment + 2] + window).tolist()
            self.trail.sums[segment, keys], self.trail.counts[segment, keys] = read(
                keys, begin, end
            )
            sums[keys] += self.trail.sums[segment, keys]
            counts[keys] += self.trail.counts[segment, keys]
        phases.end("replayed")

        aggregated = replace(
            checkpoint,
            position=stop,
            sums=checkpoint.sums + sums,
            counts=checkpoint.counts + counts,
        )
        results, memory = [], {}
        if stop == window + self.query.window:
            results = self._finish(aggregated)
            memory[GUARDED] = self.guard.to_bytes()
            aggregated = self._planned(fresh(self.query, stop))
        elif failed:  # the rest of the window reads other sensors than planned
            limits = self.query.recovery_time, self.query.t_sla_ms
            rest = plan_guarded(self.guard, *limits, keys, start=stop - window)
            aggregated = replace(aggregated, times=tuple(window + tau for tau in rest.times))
        phases.end("estimated")
        record = IntervalRecord(batch, start, stop, failed, len(keys), *phases.times_ms)
        self.store.commit(aggregated, results, record, memory | {"trail": self._to_bytes()})
        self.passes("committed", batch)
        self.passes("planned", batch)

    def close(self) -> Audit:
        """Audit the last estimates, and plan the next window with the result.

        A window that has begun keeps its plan and its accounts.
        """
        checkpoint = self.checkpoint
        if checkpoint.position == checkpoint.window:
            self._audit(checkpoint.position)
            planned = self._planned(checkpoint)
            self.store.keep(planned, {"trail": self._to_bytes()})
        return self.audited

    def _lose(self, window: int, segment: int) -> None:
        """Decide by the guard and the audit of earlier estimates which sensors stay unread."""
        others = np.ones(self.query.model.size, bool)
        others[self.guard.replay[segment]] = False
        self.estimates.certify((window, segment), others, np.nan)
        self.trail.lost = segment

    def _unread(self, window: int) -> np.ndarray:
        """Sensors that are not read again."""
        decisions = [decisions for (of, _), decisions, _ in self.estimates.open if of == window]
        return decisions[-1] == 2 if decisions else np.zeros(self.query.model.size, bool)

    def _finish(self, checkpoint: Checkpoint) -> list[WindowResult]:
        """Return the window's results, estimated for unread sensors, and update the guard."""
        history = self.guard.update(self.trail.samples(self.sizes))
        w, counts, unread = self.query.window, checkpoint.counts, self._unread(checkpoint.window)
        values = np.where(counts > 0, checkpoint.sums / np.maximum(counts, 1), np.nan)
        if self.trail.lost >= 0:
            place, decisions, _ = self.estimates.open.pop()
            estimate, tau = history.estimate[0, place[1]], int(self.grid[place[1]])
            self.estimates.open.append((place, decisions, estimate))
            before = np.where(counts > 0, values, estimate)
            values = np.where(unread, (tau * before + (w - tau) * estimate) / w, values)
        values = self.query.aggregate.of_mean(values, np.where(unread, w, counts))
        half = np.where(unread, self.query.requirement.epsilon, 0.0)
        self.trail = Trail.empty(*self.trail.sums.shape)
        return results_of(self.query, checkpoint, values, half, np.where(unread, w, counts))

    def _audit(self, position: int) -> None:
        """Audit the estimates in windows that end at `position` or before, by reading the truth."""
        w = self.query.window

        def off(place: tuple[int, ...], keys: list[int], estimate: np.ndarray) -> np.ndarray:
            window, tau = place[0], int(self.grid[place[1]])
            sums, counts = interval_sums(self.log, keys, window + tau, window + w)
            truth = np.divide(sums, counts, out=np.full(len(keys), np.nan), where=counts > 0)
            return np.abs(estimate - truth) * (w - tau) / w

        self.estimates.audit(off, self.limit, position - w)

    def _planned(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint at a window's beginning, with a plan that both accounts permit."""
        self._audit(checkpoint.window - self.query.window)
        closed = np.flatnonzero(self.estimates.account.certify(np.ones(self.query.model.size)) != 2)
        limits = self.query.recovery_time, self.query.t_sla_ms
        plan = plan_guarded(self.guard, *limits, closed.tolist())
        times = tuple(checkpoint.window + tau for tau in plan.times)
        return replace(checkpoint, times=times, plan=GUARDED)

    def _to_bytes(self) -> bytes:
        audited = self.estimates.arrays()
        trail = {**vars(self.trail), "counted": audited.pop("counts")}
        return pack_arrays(**audited, **trail)


@dataclass(frozen=True, eq=False)
class GuardedPlan:
    """Checkpoint times of the next window, and the sensors read after a failure in each interval.

    `times` are τ_0 … τ_K = w, and `replay` has K arrays of ascending key indices. For the other
    sensors, the rest of the window is estimated. The guard certified that the window's mean then
    errs by at most ε.
    """

    times: tuple[int, ...]
    replay: tuple[np.ndarray, ...]

    @property
    def tuples(self) -> tuple[int, ...]:
        """Tuples that are replayed after a failure in each interval."""
        sizes = np.diff(self.times)
        return tuple(len(o) * int(size) for o, size in zip(self.replay, sizes, strict=True))


def replay_guard(
    window: int,
    grid: Sequence[int],
    epsilon: ArrayLike,
    delta: float,
    sensors: int,
    seasons: Sequence[float] = (),
) -> PartialGuard:
    """Return a guard for failures after each τ of the grid. The grid must begin with 0.

    O is chosen as in D2 fig. 3. After a failure in the interval that begins at τ only O is read up
    to the window's end, as in D2 eq. (12).
    """
    if not len(grid) or grid[0] != 0:
        raise ValueError(f"grid must begin with 0, the window's beginning, got {list(grid)!r}")

    def select(covariance: np.ndarray, target: np.ndarray) -> tuple[int, ...]:
        return select_replay(GaussianModel(np.zeros(sensors), covariance), target).sensors

    spans = [(tau, window) for tau in grid]
    return PartialGuard(window, spans, epsilon, delta, sensors, select, seasons)


def plan_guarded(
    guard: PartialGuard,
    recovery_time: RecoveryTime,
    t_sla_ms: float,
    also: Sequence[int] = (),
    start: int = 0,
) -> GuardedPlan:
    """Plan a window: each next time is the latest of the grid that T_SLA permits (D2 fig. 4).

    Each window has its own plan, because O depends on the accounts. The sensors in `also` are read
    in any case. After a failure, the rest of the window is planned from `start`.

    ValueError when T_SLA does not permit a replay from one time of the grid to the next.
    """
    marks = [*(interval.start for interval in guard.intervals), guard.window]
    replay = [np.union1d(o, also).astype(int) for o in guard.replay]
    most = recovery_time.max_tuples(t_sla_ms)
    times, chosen = [start], []
    while times[-1] < guard.window:
        o = replay[marks.index(times[-1])]
        reach = times[-1] + most // len(o) if len(o) else guard.window
        following = [tau for tau in marks if times[-1] < tau <= reach]
        if not following:
            after = min(tau for tau in marks if tau > times[-1])
            needed = recovery_time(len(o) * (after - times[-1]))
            raise ValueError(
                f"t_sla_ms must be at least {needed:.6g} to replay {len(o)} sensors from "
                f"{times[-1]} to {after}, got {t_sla_ms!r}; give a finer grid or more time"
            )
        times.append(max(following))
        chosen.append(o)
    return GuardedPlan(tuple(times), tuple(chosen))
