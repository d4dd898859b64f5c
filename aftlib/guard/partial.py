"""The guard for partial replay: which sensors of a window a recovery may estimate from the others.

A failure loses the samples of an interval of the window; what came before it is in a checkpoint,
and some sensors are read again. Here the means over the interval are modelled themselves, beside
those before it, so that samples which depend on those before them do not break the promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import require_number
from aftlib.core.labels import labels_of
from aftlib.core.query_directory import pack_arrays, unpack_arrays
from aftlib.core.requirement import Requirement
from aftlib.guard.accounts import Accounts, slack
from aftlib.guard.guard import FORGET, History, limits_of, require_measured
from aftlib.guard.prediction import LEAST_VARIANCE, units_of
from aftlib.guard.rounds import LARGEST, LEVEL_FORGET

LOADING = 0.01
"""Added to each variance, relatively: what is fitted exactly is not believed exactly."""
TINY = 1e-9
"""The least variance, in units of ε²: a sensor that never changes is known."""
LEAST_MEMORY = 4
"""Windows that the model remembers for each variable that it is told by, at the least."""
LEAST_PRESENT = 0.5
"""Share of an interval's samples from which on their mean stands for the interval's."""

Select = Callable[[np.ndarray, np.ndarray], Sequence[int]]
"""Sensors to read, so that the variance of each, given theirs, is at most its target."""


class PartialGuard:
    """Says which sensors need not be read again when an interval of a window is lost.

    While nothing fails, each sensor's mean over the interval is predicted from the sensors O that
    would be read, itself left out, and from the means of all before the interval. The error counts
    with the interval's share of the window: x = |(b − a)/w · error| > ε is booked in an account for
    each (sensor, interval). A sensor whose account is closed joins O, and O is chosen anew for the
    others. So of the estimates that are declared at most a share δ, and a slack that does not grow,
    is wrong, for every sequence of data: the theorem in `guard.accounts` with h = 1. It holds for
    losses that come independently of the data.

    Windows have w samples and follow each other. Of the intervals (a, b) the samples a … b − 1 may
    be lost; (τ, w) is the worst case after a checkpoint at τ, in which all that follows fails too
    (D2 eq. (12)). ε is of a window's mean, in sensor units, one or one for each of n sensors, and
    seasons are periods of known rhythms in samples. From a covariance (n, n) and the variance that
    each sensor may have, 0 for those that must be read, `select` chooses the sensors to read: any
    rule will do for the promise, a good one reads few. ValueError when a number or an interval is
    outside its range, or a window's shape does not fit.

    Notes
    -----
    A window costs O((2n)³) for each interval. Nothing is declared before the model has seen more
    windows than it has variables, n and two a season; with their share q of the windows a target is
    taken to be (1 − q) / (1 + q) of it, for by so much the variance of a regression's prediction
    grows by fitting. The model's memory is 600 windows, or `LEAST_MEMORY` a variable where these
    are more than 150, so that q falls to 1/4: with a memory of 600 for any number nothing would
    ever be declared from 600 sensors on.

    Examples
    --------
    >>> def select(covariance, target):
    ...     return [0, *np.flatnonzero(target == 0)]
    >>> guard = PartialGuard(6, [(2, 6)], epsilon=1.5, delta=0.05, sensors=2, select=select)
    >>> walk = np.random.default_rng(1).normal(size=(200, 6, 1)).cumsum(axis=1)
    >>> told = guard.update(np.concatenate([walk, walk + 1], axis=2))
    >>> guard.replay  # after a failure in the interval
    [array([0])]
    >>> half = np.array([[1.0, 2.0]] * 2 + [[3.0, np.nan]] * 4)  # the second sensor is lost
    >>> guard.update(half).estimate[0, 0, 1].round(1)
    np.float64(4.0)
    """

    def __init__(
        self,
        window: int,
        intervals: Sequence[tuple[int, int]],
        epsilon: ArrayLike,
        delta: float,
        sensors: int,
        select: Select,
        seasons: Sequence[float] = (),
    ) -> None:
        require_number("window", window, least=1, whole=True)
        require_number("sensors", sensors, least=1, whole=True)
        for season in seasons:
            require_number("each of seasons", season, above=0)
        if not intervals or not all(0 <= a < b <= window for a, b in intervals):
            raise ValueError(
                f"intervals must hold (a, b) with 0 ≤ a < b ≤ window = {window}, got {intervals!r}"
            )
        limits = limits_of(epsilon, sensors)
        self.window, self.select, self.rounds = int(window), select, 0
        self.periods, z = np.array(seasons, float), Requirement(1, delta).z
        self.intervals = [
            _Interval(a, b, limits * window / (b - a), z, Accounts(sensors, delta))
            for a, b in intervals
        ]

    @property
    def replay(self) -> list[np.ndarray]:
        """Sensors O to read if the next window loses an interval, ascending, one array each."""
        return [np.flatnonzero(interval.said != 2) for interval in self.intervals]

    @property
    def kept(self) -> np.ndarray:
        """Declared estimates whose truth is known, those of them that were wrong, and the slack.

        Shape (3, intervals, n): E is at most δN + slack, whatever the data.
        """
        counts = np.stack([interval.counts for interval in self.intervals], axis=1)
        bound = slack(self.rounds, self.intervals[0].accounts.delta)
        return np.concatenate([counts, np.full((1, *counts.shape[1:]), bound)])

    def update(self, windows: ArrayLike) -> History:
        """Take in one window, shape (w, n), or many, shape (rounds, w, n); the state is the same.

        Lost and missing samples are NaN, and so must be those that are no measurement, of a size
        of 1e100 or more. What had been declared, and the means over the intervals as estimated,
        have shape (rounds, intervals, n); an error is booked where a truth is whole.
        """
        if labels_of(windows) is not None:
            raise ValueError(
                f"windows must be an array, got a {type(windows).__name__} with labels: put its "
                "columns in the order of the sensors and pass .to_numpy()"
            )
        values = np.asarray(windows, float)
        values = values if values.ndim == 3 else values[None]
        shape = self.window, len(self.intervals[0].said)
        if values.ndim != 3 or values.shape[1:] != shape:
            raise ValueError(
                f"windows must have shape {shape} or (rounds, *{shape}), got "
                f"{np.shape(windows)}; cut the samples into windows, one column a sensor"
            )
        require_measured(values)
        said = np.zeros((len(values), len(self.intervals), shape[1]), np.int64)
        estimate = np.zeros(said.shape)
        for t, samples in enumerate(values):
            for k, interval in enumerate(self.intervals):
                at = 2 * np.pi * (self.rounds * self.window + interval.start) / self.periods
                known = np.concatenate([np.sin(at), np.cos(at)])
                said[t, k] = interval.said
                estimate[t, k] = interval.take(known, samples, self.select)
            self.rounds += 1
        return History(said, estimate)

    def to_bytes(self) -> bytes:
        """What was learned and promised so far."""
        arrays = {"rounds": np.array(self.rounds)}
        for k, interval in enumerate(self.intervals):
            arrays |= {f"{k}-{name}": value for name, value in interval.state.items()}
        return pack_arrays(**arrays)

    def restore(self, data: bytes) -> None:
        """Go on from what `to_bytes` of a guard with the same parameters gave."""
        arrays = unpack_arrays(data)
        self.rounds = int(arrays["rounds"])
        for k, interval in enumerate(self.intervals):
            interval.state = {name: arrays[f"{k}-{name}"] for name in interval.state}


_LEARNED = ("said", "counts", "level", "moments", "covariance", "unit", "seen", "weight")


@dataclass(eq=False)
class _Interval:
    """One interval of the window: its model, its accounts, and what is declared of the next.

    The model is of z: seasons, the n means before the interval (none where it begins the window),
    and the n means over it; its first variables, all but the last n, are known after a failure.
    """

    start: int
    stop: int
    limit: np.ndarray  # (n,) largest error of a mean over the interval
    z: float  # of probability 1 − δ
    accounts: Accounts
    said: np.ndarray = field(init=False)  # (n,) of the next window: 0, 1 blocked, 2 declared
    counts: np.ndarray = field(init=False)  # (2, n) declared with known truth, and errors
    level: np.ndarray = field(init=False)
    moments: np.ndarray = field(init=False)
    covariance: np.ndarray = field(init=False)  # with each variable in its `unit`
    unit: np.ndarray = field(init=False)  # so that 1e90 beside 1e5 can be solved for
    seen: float = 0.0  # forgetting number of windows, for the level
    weight: float = 0.0  # the same for the moments
    forget: float = field(init=False)  # how much of a window's weight in them the next one takes

    @property
    def state(self) -> dict[str, np.ndarray]:
        """All that changes."""
        learned = {name: np.asarray(getattr(self, name)) for name in _LEARNED}
        return learned | {"accounts": self.accounts.accounts, "pool": self.accounts.pool}

    @state.setter
    def state(self, found: dict[str, np.ndarray]) -> None:
        for name in _LEARNED:
            value = found[name]
            setattr(self, name, value if value.ndim else float(value))
        self.accounts.accounts, self.accounts.pool = found["accounts"], found["pool"]

    def __post_init__(self) -> None:
        n = self.limit.size
        self.said, self.counts = np.zeros(n, np.int64), np.zeros((2, n))
        self.forget = FORGET
        self.level = self.moments = self.covariance = self.unit = np.zeros(0)

    def take(self, known: np.ndarray, samples: np.ndarray, select: Select) -> np.ndarray:
        """Settle what was declared of a window, learn from it, declare the next; the estimates."""
        before = [_means(samples[: self.start])] if self.start else []
        inside = samples[self.start : self.stop]
        z = np.concatenate([known, *before, _means(inside)])
        if not self.level.size:
            self.level, self.moments = np.zeros(z.size), np.zeros((z.size, z.size))
            self.covariance, self.unit = np.eye(z.size), np.ones(z.size)
        self.forget = min(FORGET, 1 / (LEAST_MEMORY * (z.size - self.limit.size + 1)))

        estimate, _ = self.expected(z)
        whole = np.isfinite(inside).all(axis=0)
        wrong = np.abs(z[-self.limit.size :] - estimate) > self.limit
        self.accounts.update(self.said, np.where(whole, wrong, np.nan))
        self.counts += (self.said == 2) & whole & [np.ones_like(wrong), wrong]

        self.learn(z)
        self.declare(select)
        return estimate

    def expected(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means of all sensors over the interval without their own, from O; and their variances."""
        first = self.level.size - self.limit.size
        c, deviation = self.covariance, (z - self.level) / self.unit
        told_by = np.concatenate([np.arange(first), first + np.flatnonzero(self.said != 2)])
        told_by = told_by[np.isfinite(deviation[told_by])]
        precision = np.linalg.inv(c[np.ix_(told_by, told_by)])
        told = precision @ deviation[told_by]
        across = c[first:, told_by]
        expected = across @ told
        variance = c.diagonal()[first:] - ((across @ precision) * across).sum(axis=1)
        # who is read itself: by the others of O, from the same precision
        own, at = told_by[told_by >= first] - first, np.flatnonzero(told_by >= first)
        alone = 1 / precision.diagonal()[at]
        expected[own] = deviation[first:][own] - told[at] * alone
        variance[own] = alone
        estimate = self.level[first:] + expected * self.unit[first:]
        return estimate, variance * self.unit[first:] ** 2

    def learn(self, z: np.ndarray) -> None:
        """Take a window into level and moments; what is missing as the model expects it."""
        gone = ~np.isfinite(z)
        if gone.any():
            c, there = self.covariance, ~gone
            gain = np.linalg.solve(c[np.ix_(there, there)], c[np.ix_(there, gone)]).T
            z = z.copy()
            deviation = ((z - self.level) / self.unit)[there]
            filled = self.level[gone] + gain @ deviation * self.unit[gone]
            # what wild values seem to tell would grow from one to the next without end
            z[gone] = np.where(np.abs(filled) < LARGEST, filled, self.level[gone])
        self.seen = self.seen * (1 - LEVEL_FORGET) + 1
        self.level = self.level + (z - self.level) / self.seen
        if self.seen > 1:  # the first window is its own level
            deviation = z - self.level
            self.moments = (1 - self.forget) * self.moments + np.outer(deviation, deviation)
            self.weight = (1 - self.forget) * self.weight + 1

    def declare(self, select: Select) -> None:
        """Choose O for the next window; the other sensors are declared."""
        first = self.level.size - self.limit.size
        share = (first + 1) / self.weight if self.weight else 1.0
        self.said = np.zeros_like(self.said)
        if share >= 1:
            return
        c = self.moments / self.weight
        more = LOADING * c.diagonal() + TINY * self.limit.min() ** 2
        c += np.diag(np.maximum(more, LEAST_VARIANCE))
        self.unit = units_of(c)
        c = c / self.unit / self.unit[:, None]
        self.covariance = c
        given = c[first:, first:] - c[first:, :first] @ np.linalg.solve(
            c[:first, :first], c[:first, first:]
        )
        given = (given + given.T) / 2 * self.unit[first:] * self.unit[first:, None]
        target = (self.limit / self.z) ** 2 * (1 - share) / (1 + share)
        is_open = self.accounts.declare(np.ones(target.size)) == 2
        read = np.zeros(target.size, bool)
        read[list(select(given, np.where(is_open, target, 0)))] = True
        self.said = np.where(read | ~is_open, 0, 2)
        proposed = self.said == 2
        if not is_open.all():  # in quarantine where the others of O would tell it well enough
            _, variance = self.expected(self.level)
            proposed |= ~is_open & (variance <= target)
        self.said = self.accounts.declare(proposed)


def _means(samples: np.ndarray) -> np.ndarray:
    """Mean of each sensor's samples; NaN where too few are there."""
    there = np.isfinite(samples)
    enough = there.mean(axis=0) >= LEAST_PRESENT
    total = np.where(there, samples, 0).sum(axis=0)
    return np.where(enough, total / np.maximum(there.sum(axis=0), 1), np.nan)
