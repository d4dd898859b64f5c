"""The guard for partial replay: which sensors of a window a recovery may estimate from the others.

A failure loses the samples of an interval of the window. A checkpoint has the samples before it,
and some sensors are read again. The model has the means over the interval and those before it, so
that samples which depend on earlier ones do not break the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
"""Share of each variance that is added to it, so that an exact fit is not trusted fully."""
TINY = 1e-9
"""Variance in units of ε² that is added to each sensor's, because a constant sensor has none."""
LEAST_MEMORY = 4
"""Least number of windows in the model's memory per predictor."""
LEAST_PRESENT = 0.5
"""Least share of an interval's samples; with fewer, the interval's mean counts as missing."""

Select = Callable[[np.ndarray, np.ndarray], Sequence[int]]
"""Choose, from a covariance (n, n) and targets (n,), the sensors to read: given these, each
sensor's variance must be at most its target."""


class PartialGuard:
    """Certify which sensors need not be read again when an interval of a window is lost.

    While nothing fails, each sensor's mean over the interval is predicted from the sensors O that
    would be read, except itself, and from the means of all before the interval. The error counts
    with the interval's share of the window. Each (sensor, interval) has an account, and its entry x
    is 1 if |(b − a)/w · error| > ε, otherwise 0. A sensor whose account is closed joins O, and O is
    chosen again for the others. At most a share δ of the certified estimates, plus a slack that
    does not grow, is wrong for every sequence of data: the theorem in `guard.accounts` with h = 1.
    It covers losses that come independently of the data.

    Windows have w samples and follow each other. A failure loses the samples a … b − 1 of one of
    the intervals (a, b). (τ, w) is the worst case after a checkpoint at τ, in which all later
    intervals fail too (D2 eq. (12)). `epsilon` limits the error of a window's mean, in sensor
    units; it is one number, or one per sensor. `seasons` are known seasonal periods in samples.
    `select` chooses the sensors to read from a covariance (n, n) and the variance that each sensor
    may have, 0 for those that must be read. The guarantee holds for any `select`; a good one
    chooses few sensors. ValueError when a number or an interval is outside its range, or a window's
    shape does not fit.

    Notes
    -----
    A window costs O((2n)³) for each interval. Besides the sensors that are read again,
    the model predicts from n variables, the earlier means, and two per season. Nothing is certified
    before it has more windows than these variables. If they are the share q of windows, a target is
    multiplied by (1 − q) / (1 + q), because fitting increases the variance of a regression's
    prediction by the inverse factor. The model's memory is 600 windows, or `LEAST_MEMORY` per
    variable beyond 150, so that q falls to 1/4. With a fixed memory of 600, nothing would ever be
    certified for 600 or more sensors.

    Examples
    --------
    >>> def select(covariance, target):
    ...     return [0, *np.flatnonzero(target == 0)]
    >>> guard = PartialGuard(6, [(2, 6)], epsilon=1.5, delta=0.05, sensors=2, select=select)
    >>> walk = np.random.default_rng(1).normal(size=(200, 6, 1)).cumsum(axis=1)
    >>> history = guard.update(np.concatenate([walk, walk + 1], axis=2))
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
        limits, self.seasons = limits_of(epsilon, sensors), np.array(seasons, float)
        self.window, self.select, self.rounds = int(window), select, 0
        self.intervals = [
            _Interval(a, b, limits * window / (b - a), delta, 2 * len(seasons))
            for a, b in intervals
        ]

    @property
    def replay(self) -> list[np.ndarray]:
        """Sensors O to read if the next window loses an interval, ascending, one array each."""
        return [np.flatnonzero(interval.decisions != 2) for interval in self.intervals]

    @property
    def outcomes(self) -> np.ndarray:
        """Certified estimates N with known truth, the wrong ones E, and the slack.

        Shape (3, intervals, n): E is at most δN + slack, whatever the data.
        """
        counts = np.stack([interval.counts for interval in self.intervals], axis=1)
        bound = slack(self.rounds, self.intervals[0].accounts.delta)
        return np.concatenate([counts, np.full((1, *counts.shape[1:]), bound)])

    def update(self, windows: ArrayLike) -> History:
        """Process one window, shape (w, n), or many, shape (rounds, w, n).

        Windows one by one or all at once lead to the same state. Lost and missing samples are NaN.
        Values of a size of 1e100 or more are refused: mark them by NaN, too. Return the decisions
        made before each window and the estimated means over the intervals, each of shape (rounds,
        intervals, n). Errors are booked where all samples of an interval are there.
        """
        if labels_of(windows) is not None:
            raise ValueError(
                f"windows must be an array, got a {type(windows).__name__} with labels: put its "
                "columns in the order of the sensors and pass .to_numpy()"
            )
        values = np.asarray(windows, float)
        values = values if values.ndim == 3 else values[None]
        shape = self.window, self.intervals[0].limit.size
        if values.ndim != 3 or values.shape[1:] != shape:
            raise ValueError(
                f"windows must have shape {shape} or (rounds, *{shape}), got "
                f"{np.shape(windows)}; cut the samples into windows, one column per sensor"
            )
        require_measured(values)
        decisions = np.zeros((len(values), len(self.intervals), shape[1]), np.int64)
        estimate = np.zeros(decisions.shape)
        for t, samples in enumerate(values):
            for k, interval in enumerate(self.intervals):
                at = 2 * np.pi * (self.rounds * self.window + interval.start) / self.seasons
                known = np.concatenate([np.sin(at), np.cos(at)])
                decisions[t, k] = interval.decisions
                estimate[t, k] = interval.advance(known, samples, self.select)
            self.rounds += 1
        return History(decisions, estimate)

    def to_bytes(self) -> bytes:
        """Return the whole state."""
        arrays = {"rounds": np.array(self.rounds)}
        for k, interval in enumerate(self.intervals):
            arrays |= {f"{k}-{name}": value for name, value in interval.state.items()}
        return pack_arrays(**arrays)

    def restore(self, data: bytes) -> None:
        """Continue from the bytes of a guard with the same parameters."""
        arrays = unpack_arrays(data)
        self.rounds = int(arrays["rounds"])
        for k, interval in enumerate(self.intervals):
            interval.state = {name: arrays[f"{k}-{name}"] for name in interval.state}


_LEARNED = ("decisions", "counts", "level", "moments", "covariance", "unit", "seen", "weight")


class _Interval:
    """One interval of the window: its model, its accounts, and the decisions on the next window.

    The model describes z: seasons, the n means before the interval (none where it begins the
    window), and the n means over it. All variables but these last n are known after a failure.
    """

    def __init__(self, start: int, stop: int, limit: np.ndarray, delta: float, waves: int) -> None:
        self.start, self.stop = start, stop
        self.limit = limit  # (n,) largest error of a mean over the interval
        self.accounts, self.z = Accounts(limit.size, delta), Requirement(1, delta).z
        self.known = waves + (limit.size if start else 0)
        # share of the moments that is forgotten at each window
        self.forget = min(FORGET, 1 / (LEAST_MEMORY * (self.known + 1)))
        size = self.known + limit.size
        self.decisions = np.zeros(limit.size, np.int64)  # of the next window
        self.counts = np.zeros((2, limit.size))  # certified with known truth, and errors
        self.level, self.moments = np.zeros(size), np.zeros((size, size))
        self.covariance = np.eye(size)  # with each variable in its `unit`
        self.unit = np.ones(size)  # so that variables of size 1e90 and 1e5 can be solved together
        self.seen = self.weight = np.array(0.0)  # weights of all windows in level and in moments

    @property
    def state(self) -> dict[str, np.ndarray]:
        """All arrays that change."""
        learned = {name: getattr(self, name) for name in _LEARNED}
        return learned | {"accounts": self.accounts.accounts, "pool": self.accounts.pool}

    @state.setter
    def state(self, arrays: dict[str, np.ndarray]) -> None:
        for name in _LEARNED:
            setattr(self, name, arrays[name])
        self.accounts.accounts, self.accounts.pool = arrays["accounts"], arrays["pool"]

    def advance(self, known: np.ndarray, samples: np.ndarray, select: Select) -> np.ndarray:
        """Book a window's errors, learn it, decide on the next one; return the estimates."""
        before = [_means(samples[: self.start])] if self.start else []
        inside = samples[self.start : self.stop]
        z = np.concatenate([known, *before, _means(inside)])
        estimate, _ = self.expected(z)
        whole = np.isfinite(inside).all(axis=0)
        wrong = np.abs(z[self.known :] - estimate) > self.limit
        self.accounts.update(self.decisions, np.where(whole, wrong, np.nan))
        self.counts += (self.decisions == 2) & whole & [np.ones_like(wrong), wrong]
        self.learn(z)
        self.decide(select)
        return estimate

    def expected(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and variance of each sensor over the interval, from the others in O."""
        first, c, deviation = self.known, self.covariance, (z - self.level) / self.unit
        given = np.concatenate([np.arange(first), first + np.flatnonzero(self.decisions != 2)])
        given = given[np.isfinite(deviation[given])]
        precision = np.linalg.inv(c[np.ix_(given, given)])
        weighted, across = precision @ deviation[given], c[first:, given]
        expected = across @ weighted
        variance = c.diagonal()[first:] - ((across @ precision) * across).sum(axis=1)
        # a sensor of O is predicted from the others of O, by the same precision
        own, at = given[given >= first] - first, np.flatnonzero(given >= first)
        alone = 1 / precision.diagonal()[at]
        expected[own] = deviation[first:][own] - weighted[at] * alone
        variance[own] = alone
        estimate = self.level[first:] + expected * self.unit[first:]
        return estimate, variance * self.unit[first:] ** 2

    def learn(self, z: np.ndarray) -> None:
        """Add a window to level and moments; the model's expectations replace missing values."""
        gone = ~np.isfinite(z)
        if gone.any():
            c, there = self.covariance, ~gone
            gain = np.linalg.solve(c[np.ix_(there, there)], c[np.ix_(there, gone)]).T
            deviation = ((z - self.level) / self.unit)[there]
            filled = self.level[gone] + gain @ deviation * self.unit[gone]
            # without this limit, values filled from very large ones could grow without end
            z = z.copy()
            z[gone] = np.where(np.abs(filled) < LARGEST, filled, self.level[gone])
        self.seen = self.seen * (1 - LEVEL_FORGET) + 1
        self.level = self.level + (z - self.level) / self.seen
        if self.seen > 1:  # the first window is its own level
            deviation = z - self.level
            self.moments = (1 - self.forget) * self.moments + np.outer(deviation, deviation)
            self.weight = (1 - self.forget) * self.weight + 1

    def decide(self, select: Select) -> None:
        """Choose O for the next window; the other sensors are certified."""
        first = self.known
        self.decisions = np.zeros_like(self.decisions)
        if self.weight <= first + 1:
            return
        share = (first + 1) / self.weight
        c = self.moments / self.weight
        more = LOADING * c.diagonal() + TINY * self.limit.min() ** 2
        c += np.diag(np.maximum(more, LEAST_VARIANCE))
        self.unit = units_of(c)
        self.covariance = c = c / self.unit / self.unit[:, None]
        given = c[first:, first:] - c[first:, :first] @ np.linalg.solve(
            c[:first, :first], c[:first, first:]
        )
        given = (given + given.T) / 2 * self.unit[first:] * self.unit[first:, None]
        target = (self.limit / self.z) ** 2 * (1 - share) / (1 + share)
        is_open = self.accounts.certify(np.ones(target.size)) == 2
        read = np.zeros(target.size, bool)
        read[list(select(given, np.where(is_open, target, 0)))] = True
        proposed = is_open & ~read
        self.decisions = np.where(proposed, 2, 0)
        if not is_open.all():  # propose closed ones that the others of O would predict well enough
            _, variance = self.expected(self.level)
            proposed |= ~is_open & (variance <= target)
        self.decisions = self.accounts.certify(proposed)


def _means(samples: np.ndarray) -> np.ndarray:
    """Return the mean of each sensor's samples; NaN where too few are there."""
    there = np.isfinite(samples)
    total, number = np.where(there, samples, 0).sum(axis=0), there.sum(axis=0)
    enough = number >= LEAST_PRESENT * len(samples)
    return np.where(enough, total / np.maximum(number, 1), np.nan)
