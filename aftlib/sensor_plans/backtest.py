"""Back-test on the second half, or its last part: shares certified, and of these within ε."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from aftlib.core.intervals import LEVELS, bootstrap_share
from aftlib.documents.approximately_once.assignment import residual_variance, residuals
from aftlib.guard import accounts
from aftlib.guard.estimator import History
from aftlib.guard.guard import Guard
from aftlib.sensor_plans.sensor_plan import Backtest, Score, or_none
from aftlib.sensor_plans.window_results import Survey

METHODS = ("guard", "baseline model", "always estimate")
GUARD, BASELINE, ALWAYS = METHODS
HINDSIGHT = "baseline model, best in hindsight"
#: Windows of the longest outage with guarantees.
HORIZONS = 5
OnSegment = Callable[[int, int], None]
#: Most segments of the second half: ours, enough to resample them for an interval.
SEGMENTS = 50
#: Fewest windows of a segment; ours, because errors of neighbouring windows belong together.
LEAST_SEGMENT = 10
#: Most windows before the second half that the guard is fed; its memory is some 600.
WARM_UP = 5000
#: Most pairs (sensor, window) that are scored, the last ones, so that it takes about a minute.
MOST_SCORED = 2_000_000
#: Fewest certified estimates, of all horizons, for which a share within ε is judged: 20 wrong ones
#: at δ = .05.
MANY = 400


def no_progress(done: int, of: int) -> None:
    """Report nothing, as an `OnSegment`."""


class Counts(NamedTuple):
    """Windows whose truth is known, the certified ones of these, and the wrong ones of those.

    Wrong is an estimate that was off by more than ε. All three have one shape.
    """

    known: np.ndarray
    certified: np.ndarray
    wrong: np.ndarray

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Counts:
        """Return the counts with each array changed in the same way."""
        return Counts(*map(change, self))

    def sum(self, *axes: int) -> Counts:
        """Return the sums over some axes."""
        return self.map(lambda counts: counts.sum(axis=axes))

    @property
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Share certified, and share of these within ε, NaN if there are none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.certified / np.maximum(self.known, 1e-12), 1 - self.wrong / self.certified


@dataclass(frozen=True)
class Walk:
    """A walk-forward back-test: counts of the second half, and guarantees of all windows fed."""

    counts: Mapping[str, Counts]  # by method, shape (segments, H, n); the warm-up is not in it
    edges: np.ndarray  # (segments + 1,) first window of each segment, and the end
    guarantees: np.ndarray  # (H, n) of the guard in all windows fed, the warm-up included
    wrong: np.ndarray  # (H, n) guarantees that were wrong
    rounds: int  # windows that the guard was fed
    errors: np.ndarray  # (windows scored, n) one window after a loss
    delta: float
    guard: Guard  # after all windows

    @cached_property
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Share of the windows that the guard certified, and share of these within ε, (H, n)."""
        return self.counts[GUARD].sum(0).shares

    @property
    def certified_next(self) -> np.ndarray:
        """Share of the windows certified one window after a loss, shape (n,)."""
        return self.shares[0][0]

    @property
    def share_of_bound(self) -> float:
        """Largest share of the permitted wrong guarantees that were wrong, of a sensor or of all.

        Permitted are δN and the slack, at each horizon. By the theorem the result is at most 1.
        """
        n = self.guarantees.shape[1]
        ahead = range(1, len(self.guarantees) + 1)
        single = np.array([accounts.slack(self.rounds, self.delta, h) for h in ahead])
        pooled = np.array([accounts.pooled_slack(self.rounds, self.delta, n, h) for h in ahead])
        alone = self.wrong / (self.delta * self.guarantees + single[:, None])
        together = self.wrong.sum(axis=1) / (self.delta * self.guarantees.sum(axis=1) + pooled)
        return float(max(alone.max(), together.max()))

    @property
    def missed_guarantee(self) -> bool:
        """Whether the share within ε of what the guard certified is clearly below 1 − δ."""
        interval = self.score().interval
        return interval is not None and interval[1] < 1 - self.delta

    @cached_property
    def least_epsilon(self) -> np.ndarray:
        """The smallest useful ε, shape (n,): a share 1 − δ of the errors is below it."""
        with np.errstate(invalid="ignore"):
            return np.nanquantile(self.errors, 1 - self.delta, axis=0)

    def weighted_counts(self, method: str = GUARD) -> Counts:
        """Counts of one method, means over the horizons weighted H : … : 1, (segments, n)."""
        down = np.arange(len(self.guarantees), 0, -1.0)
        weights = down / down.sum()
        return self.counts[method].map(lambda counts: np.einsum("h,shn->sn", weights, counts))

    def score(self, method: str = GUARD) -> Score:
        """The shares of a method, over all sensors."""
        segments = self.weighted_counts(method).sum(1)
        certified, within = segments.sum(0).shares
        if np.isnan(within):
            return Score(method, float(certified), None)
        return Score(method, float(certified), float(within), interval(segments))

    def totals(self, names: Sequence[str]) -> Backtest:
        """The guard's back-test in numbers; horizons are weighted H : … : 1."""
        n = len(names)
        single = accounts.slack(self.rounds, self.delta, 1)
        pooled = accounts.pooled_slack(self.rounds, self.delta, n)
        within = pd.Series(self.weighted_counts().sum(0).shares[1], [*names])
        within = within[self.counts[GUARD].certified.sum(axis=(0, 1)) >= MANY]
        return Backtest(
            windows=int(self.edges[-1] - self.edges[0]),
            score=self.score(),
            worst_sensor=str(within.idxmin()) if len(within) else None,
            worst_within=float(within.min()) if len(within) else None,
            N=int(self.guarantees[0].sum()),
            fed=self.rounds,
            slack_errors=float(min(n * single, pooled)),
        )


def interval(segments: Counts) -> tuple[float, float]:
    """Interval of the share within ε, resampling whole segments of time.

    Counts have shape (segments,), because sensors of a segment err together; some segment has a
    certified window. If no segment has an error, the low end is the exact binomial bound for that
    number of independent segments.
    """
    used = segments.map(lambda counts: counts[segments.certified > 0])
    if not used.wrong.any():
        return float(LEVELS[0] ** (1 / len(used.wrong))), 1.0
    right = used.certified - used.wrong
    return bootstrap_share(right, used.certified, np.random.default_rng(1))


def walk_forward(
    survey: Survey, workers: Sequence[Sequence[int]], on_segment: OnSegment = no_progress
) -> Walk:
    """Feed the last windows before the scored ones; then score each as if its worker was lost.

    `Guard.replay` predicts each window from the windows before it and from the other workers'
    sensors, once for each number of windows 1 … H since a loss, and only then learns it. So a
    window is scored H times, although none is lost. If the second half has more than `MOST_SCORED`
    pairs (sensor, window), the last ones are scored. At most `WARM_UP` windows before are fed.

    `workers` have the sensors' numbers. `on_segment` is called with the number of processed windows
    and the total number.
    """
    values = survey.values
    limits = survey.limits
    delta = survey.question.delta
    start = max(len(values) // 2, len(values) - MOST_SCORED // values.shape[1])
    first = max(0, start - WARM_UP)
    segments = max(2, min(SEGMENTS, (len(values) - start) // LEAST_SEGMENT))
    edges = np.linspace(start, len(values), segments + 1).astype(int)
    baseline_errors, estimable = _apply_baseline(survey, workers)
    guard = Guard(workers, limits, delta, HORIZONS, survey.seasons)
    fed = [_count_guard(values[first:start], guard.replay(values[first:start]), limits)]
    counts: dict[str, list[Counts]] = {method: [] for method in METHODS}
    errors = []
    for begin, end in pairwise(edges.tolist()):
        segment = values[begin:end]
        history = guard.replay(segment)
        fed.append(_count_guard(segment, history, limits))
        counts[GUARD].append(fed[-1])
        by_baseline = baseline_errors[begin:end, None].repeat(HORIZONS, axis=1)
        counts[BASELINE].append(_count(segment, by_baseline, estimable, limits))
        counts[ALWAYS].append(_count(segment, by_baseline, True, limits))
        errors.append(np.abs(segment - history.estimate[:, 0]))
        on_segment(end - first, len(values) - first)
    all_fed = _stack(fed).sum(0)
    return Walk(
        counts={method: _stack(parts) for method, parts in counts.items()},
        edges=edges,
        guarantees=all_fed.certified,
        wrong=all_fed.wrong,
        rounds=guard.rounds,
        errors=np.concatenate(errors),
        delta=delta,
        guard=guard,
    )


def _apply_baseline(
    survey: Survey, workers: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the baseline model, (N, n), and which sensors it certifies, (n,).

    Gaps are replaced by the mean (D1 eqs. (1) and (8)).
    """
    baseline = survey.baseline
    z = np.nan_to_num(survey.values - baseline.mean)
    errors = np.abs(residuals(baseline, workers, baseline.precision @ z.T).T)
    errors[np.isnan(survey.values)] = np.nan
    required = survey.scaled_requirement
    variance = residual_variance(baseline, workers) / survey.limits**2
    return errors, required.is_met_by(required.reliability(variance))


def _count_guard(values: np.ndarray, history: History, limits: np.ndarray) -> Counts:
    """Counts of the guard's estimates of windows (N, n), shape (H, n)."""
    errors = np.abs(values[:, None] - history.estimate)
    return _count(values, errors, history.decisions == accounts.CERTIFIED, limits)


def _count(
    values: np.ndarray, errors: np.ndarray, certified: np.ndarray | bool, limits: np.ndarray
) -> Counts:
    """Counts of windows (N, n) with `errors` of shape (N, H, n), shape (H, n)."""
    known = np.broadcast_to(np.isfinite(values)[:, None], errors.shape)
    settled = certified & np.isfinite(errors)
    return Counts(known, settled, settled & (errors > limits)).sum(0)


def _stack(parts: Sequence[Counts]) -> Counts:
    """Counts of several parts of the time, one after the other along a new first axis."""
    return Counts(*map(np.stack, zip(*parts, strict=True)))


def compare(walk: Walk) -> tuple[Score, ...]:
    """Score every method on the same windows."""
    return (*map(walk.score, METHODS), hindsight(walk))


def hindsight(walk: Walk) -> Score:
    """Largest share that the baseline model could have certified without breaking the guarantee.

    It certifies a set of sensors: the longest prefix, in the order of their error rates, of which
    at most a share δ was wrong. No real system could choose it. The guard's share is compared with
    this share.
    """
    sensors = walk.weighted_counts(ALWAYS).sum(0)
    order = np.argsort(sensors.wrong / np.maximum(sensors.certified, 1))
    prefixes = sensors.map(lambda counts: np.append(0.0, np.cumsum(counts[order])))
    longest = np.flatnonzero(prefixes.wrong <= walk.delta * prefixes.certified).max()
    best = prefixes.map(lambda counts: counts[longest])
    certified = float(best.certified / sensors.known.sum())
    return Score(HINDSIGHT, certified, or_none(float(best.shares[1])))
