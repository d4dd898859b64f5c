"""Back-test on the second half: shares of windows certified, and of these within ε."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import LEVELS, bootstrap_share
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import residual_variance, residuals
from aftlib.guard import Guard, accounts
from aftlib.guard.guard import History
from aftlib.sensor_plans.sensor_plan import Backtest, Score

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
#: Fewest certified windows for which a share within ε is judged: 20 wrong ones at δ = .05.
MANY = 400
#: Counts of windows: of known truth, the certified ones of these, and the wrong ones of those.
PAIRS, CERTIFIED, WRONG = range(3)


@dataclass(frozen=True)
class Walk:
    """Counts of a walk-forward back-test.

    `counts` have by method the windows whose truth is known, the certified ones among them, and the
    certified ones that were off by more than ε.
    """

    counts: Mapping[str, np.ndarray]  # (segments, H, n, 3)
    edges: np.ndarray  # (segments + 1,) first window of each segment, and the end
    outcomes: np.ndarray  # (H, n, 2) all guarantees of the guard, and the wrong ones
    rounds: int  # windows that the guard was fed
    errors: np.ndarray  # (windows scored, n) one window after a loss
    delta: float
    guard: Guard  # after all windows

    @cached_property
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Share of the windows that the guard certified, and share of these within ε, (H, n)."""
        return shares(self.counts[GUARD].sum(axis=0))

    @property
    def wrong_and_permitted(self) -> tuple[np.ndarray, np.ndarray]:
        """Wrong guarantees, and how many the theorem permits, of each sensor and of all, (H, n+1).

        Permitted are δN and the slack. By the theorem, no number of wrong ones is larger.
        """
        guarantees, wrong = np.moveaxis(self.outcomes, -1, 0)
        n = guarantees.shape[1]
        ahead = range(1, len(guarantees) + 1)
        single = np.array([accounts.slack(self.rounds, self.delta, h) for h in ahead])
        pooled = np.array([accounts.pooled_slack(self.rounds, self.delta, n, h) for h in ahead])
        permitted = self.delta * guarantees + single[:, None]
        together = self.delta * guarantees.sum(axis=1) + pooled
        return (
            np.column_stack([wrong, wrong.sum(axis=1)]),
            np.column_stack([permitted, together]),
        )

    @property
    def used(self) -> float:
        """Largest share of the permitted wrong guarantees that were wrong; at most 1."""
        wrong, permitted = self.wrong_and_permitted
        return float((wrong / permitted).max())

    @property
    def pooled_allowance(self) -> float:
        """Errors beyond δN that all sensors together may have one window after a loss."""
        n = self.outcomes.shape[1]
        single = n * accounts.slack(self.rounds, self.delta, 1)
        return float(min(single, accounts.pooled_slack(self.rounds, self.delta, n)))

    @cached_property
    def least_epsilon(self) -> np.ndarray:
        """The smallest useful ε, shape (n,): a share 1 − δ of the errors is below it."""
        with np.errstate(invalid="ignore"):
            return np.nanquantile(self.errors, 1 - self.delta, axis=0)

    def weighted_counts(self, method: str = GUARD) -> np.ndarray:
        """Counts of one method, means over the horizons weighted H : … : 1, (segments, n, 3)."""
        down = np.arange(len(self.outcomes), 0, -1.0)
        return np.einsum("h,shnk->snk", down / down.sum(), self.counts[method])

    def score(self, method: str = GUARD) -> Score:
        """The shares of a method, over all sensors."""
        segments = self.weighted_counts(method).sum(axis=1)
        certified, within = shares(segments.sum(axis=0))
        if np.isnan(within):
            return Score(method, float(certified), None)
        return Score(method, float(certified), float(within), interval(segments))

    def totals(self, names: Sequence[str]) -> Backtest:
        """The guard's back-test in numbers; horizons are weighted H : … : 1."""
        certified = self.counts[GUARD][..., CERTIFIED].sum(axis=(0, 1))
        within = pd.Series(shares(self.weighted_counts().sum(axis=0))[1], [*names])
        within = within[certified >= MANY]
        return Backtest(
            windows=int(self.edges[-1] - self.edges[0]),
            score=self.score(),
            worst_sensor=str(within.idxmin()) if len(within) else None,
            worst_within=float(within.min()) if len(within) else None,
            N=int(self.outcomes[0, :, 0].sum()),
            fed=self.rounds,
            slack_errors=self.pooled_allowance,
        )


def shares(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From counts (…, 3): share certified, and share of these within ε (NaN if there are none)."""
    pairs, certified, wrong = np.moveaxis(counts, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return certified / np.maximum(pairs, 1e-12), 1 - wrong / certified


def or_none(number: float) -> float | None:
    """Return a number as plan.json has it: None where it is unknown or infinite."""
    return float(number) if np.isfinite(number) else None


def numbers_or_none(numbers: np.ndarray) -> tuple[float | None, ...]:
    """Return numbers as plan.json has them."""
    return tuple(or_none(number) for number in numbers)


def interval(counts: np.ndarray) -> tuple[float, float]:
    """Interval of the share within ε, resampling whole segments of time.

    Counts have shape (segments, 3), because sensors of a segment err together; some segment has a
    certified window. If no segment has an error, the low end is the exact binomial bound for that
    number of independent segments.
    """
    used = counts[counts[:, CERTIFIED] > 0]
    wrong = used[:, WRONG]
    certified = used[:, CERTIFIED]
    if not wrong.any():
        return float(LEVELS[0] ** (1 / len(used))), 1.0
    return bootstrap_share(certified - wrong, certified, np.random.default_rng(1))


def walk_forward(
    values: np.ndarray,
    workers: Sequence[Sequence[int]],
    limits: np.ndarray,
    delta: float,
    baseline: GaussianModel,
    *,
    horizons: int = HORIZONS,
    seasons: Sequence[float] = (),
    on_segment: OnSegment = lambda done, of: None,
) -> Walk:
    """Feed the first half; then score each window of the second half as if its worker was lost.

    If the second half has more than `MOST_SCORED` pairs (sensor, window), the last ones are scored.

    `values` (N, n) are window results, NaN where there is none; `limits` (n,) is ε of each sensor;
    `baseline` is the documents' model of window results, fitted to the first half without regard
    to time. Horizons and seasons are as in `Guard`. `on_segment` is called with the
    number of processed windows and the total number.
    """
    n = values.shape[1]
    start = max(len(values) // 2, len(values) - MOST_SCORED // n)
    first = max(0, start - WARM_UP)
    segments = max(2, min(SEGMENTS, (len(values) - start) // LEAST_SEGMENT))
    edges = np.linspace(start, len(values), segments + 1).astype(int)
    baseline_errors, estimable = _apply_baseline(values, workers, limits, delta, baseline)
    guard = Guard(workers, limits, delta, horizons, seasons)
    warm_up = guard.replay(values[first:start])
    outcomes = _count_guard(values[first:start], warm_up, limits)[..., 1:]
    counts = {method: np.zeros((segments, horizons, n, 3), np.int64) for method in METHODS}
    errors = []
    for place, (begin, end) in enumerate(pairwise(edges.tolist())):
        segment = values[begin:end]
        history = guard.replay(segment)
        counts[GUARD][place] = _count_guard(segment, history, limits)
        outcomes = outcomes + counts[GUARD][place][..., 1:]
        truth = segment[:, None]
        by_baseline = baseline_errors[begin:end, None].repeat(horizons, axis=1)
        always = np.ones(by_baseline.shape, bool)
        counts[BASELINE][place] = _count(truth, by_baseline, always & estimable, limits)
        counts[ALWAYS][place] = _count(truth, by_baseline, always, limits)
        errors.append(np.abs(segment - history.estimate[:, 0]))
        on_segment(end - first, len(values) - first)
    return Walk(counts, edges, outcomes, guard.rounds, np.concatenate(errors), delta, guard)


def _apply_baseline(
    values: np.ndarray,
    workers: Sequence[Sequence[int]],
    limits: np.ndarray,
    delta: float,
    baseline: GaussianModel,
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the baseline model, (N, n), and which sensors it certifies, (n,).

    Gaps are replaced by the mean (D1 eqs. (1) and (8)).
    """
    z = np.nan_to_num(values - baseline.mean)
    errors = np.abs(residuals(baseline, workers, baseline.precision @ z.T).T)
    errors[np.isnan(values)] = np.nan
    unit = Requirement(1.0, delta)
    variance = residual_variance(baseline, workers) / limits**2
    return errors, unit.is_met_by(unit.reliability(variance))


def _count_guard(values: np.ndarray, history: History, limits: np.ndarray) -> np.ndarray:
    """Counts of the guard's estimates of windows (N, n), shape (H, n, 3)."""
    truth = values[:, None]
    errors = np.abs(truth - history.estimate)
    return _count(truth, errors, history.decisions == accounts.CERTIFIED, limits)


def _count(
    truth: np.ndarray, errors: np.ndarray, certified: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    """Windows whose truth is known, the certified ones, and the wrong ones of these, (H, n, 3)."""
    known = np.broadcast_to(np.isfinite(truth), errors.shape)
    settled = certified & np.isfinite(errors)
    return np.stack([known, settled, settled & (errors > limits)], axis=-1).sum(axis=0)


def compare(walk: Walk) -> tuple[Score, ...]:
    """Score every method on the same windows."""
    return (*map(walk.score, METHODS), hindsight(walk))


def hindsight(walk: Walk) -> Score:
    """Largest share that the baseline model could have certified without breaking the guarantee.

    The sensors that it certifies are chosen by the errors that it made, which no real system could
    do. The guard's share is compared with this share.
    """
    sensors = walk.weighted_counts(ALWAYS).sum(axis=0)
    order = np.argsort(sensors[:, WRONG] / np.maximum(sensors[:, CERTIFIED], 1))
    total = np.cumsum(np.vstack([np.zeros(3), sensors[order]]), axis=0)
    best = total[np.flatnonzero(total[:, WRONG] <= walk.delta * total[:, CERTIFIED]).max()]
    certified = float(best[CERTIFIED] / sensors[:, PAIRS].sum())
    return Score(HINDSIGHT, certified, or_none(float(shares(best)[1])))
