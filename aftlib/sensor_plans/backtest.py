"""Back-test on the second half: shares of windows certified, and of these within ε."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from aftlib.approximately_once.assignment import residual_variance, residuals
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import LEVELS, bootstrap_share
from aftlib.core.requirement import Requirement
from aftlib.guard import Guard, accounts

GUARD, ALWAYS, BASELINE = "guard", "its estimates, always", "baseline model Σ/w"
LINEAR, HINDSIGHT = "linear interpolation", "baseline model, best in hindsight"
_BASELINE_ALWAYS = "baseline model, always"
METHODS = (GUARD, BASELINE, ALWAYS, LINEAR)
HORIZONS = 5
"""Windows of the longest outage with guarantees."""
OnSegment = Callable[[int, int], None]
SEGMENTS, LEAST_SEGMENT = 50, 10
"""Most segments of the second half, which intervals resample, and fewest windows of a segment."""
WARM_UP = 5000
"""Most windows before the second half that the guard is fed; its memory is some 600."""
MOST_SCORED = 2_000_000
"""Most pairs (sensor, window) that are scored, the last ones; this takes about a minute."""
MANY = 400
"""Fewest certified windows of a sensor for which its share within ε is reported."""
PAIRS, CERTIFIED, WRONG = range(3)
"""Counts of windows: of known truth, the certified ones of these, and the wrong ones of those."""


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
    recoverable: np.ndarray  # (H, n) whether the guard certifies a loss after the last window
    errors: np.ndarray  # (windows scored, n) one window after a loss
    delta: float

    @property
    def guarantees(self) -> int:
        """Number of guarantees one window ahead, over all sensors."""
        return int(self.outcomes[0, :, 0].sum())

    @cached_property
    def certified_shares(self) -> np.ndarray:
        """Share of the windows that the guard certified, shape (H, n)."""
        return shares(self.counts[GUARD].sum(axis=0))[0]

    @property
    def excess(self) -> float:
        """Largest number of errors above the theorem's bound, for a sensor or all together.

        By the theorem it is at most 0 for any data.
        """
        guarantees, wrong = np.moveaxis(self.outcomes, -1, 0)
        beyond, ahead = wrong - self.delta * guarantees, range(1, len(guarantees) + 1)
        single = [accounts.slack(self.rounds, self.delta, h) for h in ahead]
        pool = [accounts.pooled_slack(self.rounds, self.delta, beyond.shape[1], h) for h in ahead]
        return float(max((beyond.T - single).max(), (beyond.sum(axis=1) - pool).max()))

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

    def weighted_counts(self, method: str) -> np.ndarray:
        """Counts of one method, means over the horizons weighted H : … : 1, (segments, n, 3)."""
        down = np.arange(len(self.outcomes), 0, -1.0)
        return np.einsum("h,shnk->snk", down / down.sum(), self.counts[method])

    def summary(self, method: str) -> dict[str, Any]:
        """Share certified, share of these within ε with its interval, and the worst sensor."""
        segments = self.weighted_counts(method)
        certified, within = shares(segments.sum(axis=(0, 1)))
        guarantees = self.counts[method].sum(axis=(0, 1))[:, CERTIFIED]
        by_sensor = shares(segments.sum(axis=0))[1]
        many = guarantees >= MANY
        worst = int(np.where(many, by_sensor, np.inf).argmin()) if many.any() else None
        return {
            "declared": float(certified),
            "within": or_none(within),
            "interval": None if np.isnan(within) else list(interval(segments.sum(axis=1))),
            "promises": int(guarantees.sum()),
            "worst": worst,
            "worst_within": None if worst is None else float(by_sensor[worst]),
        }


def shares(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From counts (…, 3): share certified, and share of these within ε (NaN if there are none)."""
    pairs, certified, wrong = np.moveaxis(counts, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return certified / np.maximum(pairs, 1e-12), 1 - wrong / certified


def or_none(numbers: np.ndarray | float) -> Any:
    """Numbers as plan.json has them: one or lists of them, None where one is unknown."""
    unknown: Any = None
    return np.where(np.isnan(numbers), unknown, numbers).tolist()


def interval(counts: np.ndarray) -> tuple[float, float]:
    """Interval of the share within ε, resampling whole segments of time.

    Counts have shape (segments, 3), because sensors of a segment err together; some segment has a
    certified window. If no segment has an error, the low end is the exact binomial bound for that
    number of independent segments.
    """
    used = counts[counts[:, CERTIFIED] > 0]
    wrong, certified = used[:, WRONG], used[:, CERTIFIED]
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
    guard = Guard(workers, limits, delta, horizons, seasons)
    estimates = estimate_by_baseline(baseline, values, workers)
    estimable = certify_by_baseline(baseline, workers, limits, delta)
    segments = max(2, min(SEGMENTS, (len(values) - start) // LEAST_SEGMENT))
    edges = np.linspace(start, len(values), segments + 1).astype(int)
    shape = (segments, horizons, n, 3)
    counts = {method: np.zeros(shape, np.int64) for method in (*METHODS, _BASELINE_ALWAYS)}
    outcomes = np.zeros((horizons, n, 2), np.int64)
    first, samples = max(0, start - WARM_UP), []
    for place, (begin, end) in enumerate(pairwise([first, *edges.tolist()]), -1):  # -1: warm-up
        truth, history = values[begin:end, None], guard.replay(values[begin:end])
        own, certified = np.abs(truth - history.estimate), history.decisions == accounts.CERTIFIED
        outcomes += _count(truth, own, certified, limits)[..., 1:]
        if begin < start:
            continue
        baseline_errors = np.abs(truth - estimates[begin:end, None]).repeat(horizons, axis=1)
        linear_errors = np.abs(truth - _interpolate(values, begin, end, horizons))
        always = np.ones(own.shape, bool)
        by_method = {
            GUARD: (own, certified),
            ALWAYS: (own, always),
            BASELINE: (baseline_errors, estimable & always),
            _BASELINE_ALWAYS: (baseline_errors, always),
            LINEAR: (linear_errors, always),
        }
        for method, (errors, given) in by_method.items():
            counts[method][place] = _count(truth, errors, given, limits)
        samples.append(own[:, 0])
        on_segment(end - first, len(values) - first)
    errors = np.concatenate(samples)
    return Walk(counts, edges, outcomes, guard.rounds, guard.recoverable, errors, delta)


def _count(
    truth: np.ndarray, errors: np.ndarray, certified: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    """Windows whose truth is known, the certified ones, and the wrong ones of these, (H, n, 3)."""
    known = np.broadcast_to(np.isfinite(truth), errors.shape)
    settled = certified & np.isfinite(errors)
    return np.stack([known, settled, settled & (errors > limits)], axis=-1).sum(axis=0)


def _interpolate(values: np.ndarray, begin: int, end: int, horizons: int) -> np.ndarray:
    """Lines from the window before an outage, which ends with the estimated one, to that after."""
    rows, steps = np.arange(begin, end), np.arange(1, horizons + 1)
    before = values[np.maximum(rows[:, None] - steps, 0)]
    after = values[np.minimum(rows + 1, len(values) - 1), None].copy()
    after[rows + 1 >= len(values)] = np.nan
    return (before + steps[:, None] * after) / (steps[:, None] + 1)


def estimate_by_baseline(
    model: GaussianModel, values: np.ndarray, workers: Sequence[Sequence[int]]
) -> np.ndarray:
    """Estimate each worker's windows from the others' at the same time, (N, n) (D1 eq. (1)).

    Gaps among the others are replaced by their mean.
    """
    z = np.nan_to_num(values - model.mean)
    return model.mean + z - residuals(model, workers, model.precision @ z.T).T


def certify_by_baseline(
    model: GaussianModel, workers: Sequence[Sequence[int]], limits: np.ndarray, delta: float
) -> np.ndarray:
    """Whether the baseline model would certify each sensor, shape (n,) (D1 eq. (8))."""
    unit, variance = Requirement(1.0, delta), residual_variance(model, workers)
    return unit.is_met_by(unit.reliability(variance / limits**2))


def compare(walk: Walk, baseline: GaussianModel, workers: Sequence[Sequence[int]]) -> list[dict]:
    """Share certified and share of these within ε, of every method, on the same windows."""
    shown = ("declared", "within", "interval")
    lines = {method: walk.summary(method) for method in METHODS}
    lines[HINDSIGHT] = hindsight(walk, baseline, workers)
    return [{"method": name} | {key: line[key] for key in shown} for name, line in lines.items()]


def hindsight(walk: Walk, baseline: GaussianModel, workers: Sequence[Sequence[int]]) -> dict:
    """Largest share that the baseline model could have certified without breaking the guarantee.

    Sensors are ranked by their expected error, and the number of certified sensors is chosen
    afterwards, which no real system could do. The guard's share is compared with this share.
    """
    sensors = walk.weighted_counts(_BASELINE_ALWAYS).sum(axis=0)
    order = np.argsort(residual_variance(baseline, workers) / np.diag(baseline.covariance))
    total = np.cumsum(sensors[order], axis=0)
    satisfied = total[:, WRONG] <= walk.delta * total[:, CERTIFIED]
    most = int(np.flatnonzero(satisfied).max(initial=-1)) + 1
    if not most:
        return {"declared": 0.0, "within": None, "interval": None}
    certified, wrong = total[most - 1, CERTIFIED], total[most - 1, WRONG]
    share = float(certified / sensors[:, PAIRS].sum())
    return {"declared": share, "within": float(1 - wrong / certified), "interval": None}
