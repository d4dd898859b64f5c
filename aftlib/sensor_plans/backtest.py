"""Back-test on the second half: shares of windows certified, and of these within ε."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import LEVELS, bootstrap_share
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import residual_variance, residuals
from aftlib.guard import Guard, accounts

GUARD, BASELINE, ALWAYS = METHODS = "guard", "baseline model", "always estimate"
HINDSIGHT = "baseline model, best in hindsight"
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
    errors: np.ndarray  # (windows scored, n) one window after a loss
    delta: float

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
        n, ahead = guarantees.shape[1], range(1, len(guarantees) + 1)
        single = np.array([accounts.slack(self.rounds, self.delta, h) for h in ahead])
        pooled = np.array([accounts.pooled_slack(self.rounds, self.delta, n, h) for h in ahead])
        permitted = self.delta * guarantees + single[:, None]
        together = self.delta * guarantees.sum(axis=1) + pooled
        return (
            np.column_stack([wrong, wrong.sum(axis=1)]),
            np.column_stack([permitted, together]),
        )

    @property
    def excess(self) -> float:
        """Largest number of wrong guarantees above the permitted ones; at most 0 for any data."""
        wrong, permitted = self.wrong_and_permitted
        return float((wrong - permitted).max())

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

    def summary(self, method: str = GUARD) -> dict[str, Any]:
        """Share certified, share of these within ε, and its interval."""
        segments = self.weighted_counts(method).sum(axis=1)
        certified, within = shares(segments.sum(axis=0))
        return {
            "declared": float(certified),
            "within": or_none(within),
            "interval": None if np.isnan(within) else list(interval(segments)),
        }

    def totals(self, names: Sequence[str]) -> dict[str, Any]:
        """The guard's back-test in numbers, for plan.json; horizons are weighted H : … : 1."""
        guard, certified = self.summary(), self.counts[GUARD][..., CERTIFIED].sum(axis=(0, 1))
        within = pd.Series(shares(self.weighted_counts().sum(axis=0))[1], [*names])
        within = within[certified >= MANY]
        return {
            "windows": int(self.edges[-1] - self.edges[0]),  # of the second half, as if each lost
            "declared_recoverable": guard["declared"],
            "within_epsilon": guard["within"],
            "interval": guard["interval"],
            "worst_sensor": or_none(within.min()),
            "worst_sensor_name": within.idxmin() if len(within) else None,
            "promises": int(certified.sum()),  # all horizons, second half
            "N": int(self.outcomes[0, :, 0].sum()),  # one window ahead, in all windows fed
            "fed": self.rounds,
            "slack_errors": self.pooled_allowance,
            "excess_over_theorem": self.excess,
        }


def shares(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From counts (…, 3): share certified, and share of these within ε (NaN if there are none)."""
    pairs, certified, wrong = np.moveaxis(counts, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return certified / np.maximum(pairs, 1e-12), 1 - wrong / certified


def percent(share: float, digits: int = 0) -> str:
    """Return a share as text.

    >>> percent(0.978, 1)
    '97.8 %'
    """
    return f"{100 * share:.{digits}f} %"


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
    z = np.nan_to_num(values - baseline.mean)  # D1 eqs. (1) and (8); gaps are replaced by the mean
    baseline_errors = np.abs(residuals(baseline, workers, baseline.precision @ z.T).T)
    baseline_errors[np.isnan(values)] = np.nan
    unit, variance = Requirement(1.0, delta), residual_variance(baseline, workers)
    estimable = unit.is_met_by(unit.reliability(variance / limits**2))
    segments = max(2, min(SEGMENTS, (len(values) - start) // LEAST_SEGMENT))
    edges = np.linspace(start, len(values), segments + 1).astype(int)
    shape = (segments, horizons, n, 3)
    counts = {method: np.zeros(shape, np.int64) for method in METHODS}
    outcomes = np.zeros((horizons, n, 2), np.int64)
    first, samples = max(0, start - WARM_UP), []
    for place, (begin, end) in enumerate(pairwise([first, *edges.tolist()]), -1):  # -1: warm-up
        truth, history = values[begin:end, None], guard.replay(values[begin:end])
        own, certified = np.abs(truth - history.estimate), history.decisions == accounts.CERTIFIED
        outcomes += _count(truth, own, certified, limits)[..., 1:]
        if begin < start:
            continue
        by_baseline = baseline_errors[begin:end, None].repeat(horizons, axis=1)
        always = np.ones(own.shape, bool)
        counts[GUARD][place] = _count(truth, own, certified, limits)
        counts[BASELINE][place] = _count(truth, by_baseline, estimable & always, limits)
        counts[ALWAYS][place] = _count(truth, by_baseline, always, limits)
        samples.append(own[:, 0])
        on_segment(end - first, len(values) - first)
    errors = np.concatenate(samples)
    return Walk(counts, edges, outcomes, guard.rounds, errors, delta)


def _count(
    truth: np.ndarray, errors: np.ndarray, certified: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    """Windows whose truth is known, the certified ones, and the wrong ones of these, (H, n, 3)."""
    known = np.broadcast_to(np.isfinite(truth), errors.shape)
    settled = certified & np.isfinite(errors)
    return np.stack([known, settled, settled & (errors > limits)], axis=-1).sum(axis=0)


def compare(walk: Walk, baseline: GaussianModel, workers: Sequence[Sequence[int]]) -> list[dict]:
    """Share certified and share of these within ε, of every method, on the same windows."""
    lines = [{"method": method} | walk.summary(method) for method in METHODS]
    return [*lines, {"method": HINDSIGHT} | hindsight(walk, baseline, workers)]


def hindsight(walk: Walk, baseline: GaussianModel, workers: Sequence[Sequence[int]]) -> dict:
    """Largest share that the baseline model could have certified without breaking the guarantee.

    Sensors are ranked by their expected error, and the number of certified sensors is chosen
    afterwards, which no real system could do. The guard's share is compared with this share.
    """
    sensors = walk.weighted_counts(ALWAYS).sum(axis=0)
    order = np.argsort(residual_variance(baseline, workers) / np.diag(baseline.covariance))
    total = np.cumsum(np.vstack([np.zeros(3), sensors[order]]), axis=0)
    best = total[np.flatnonzero(total[:, WRONG] <= walk.delta * total[:, CERTIFIED]).max()]
    declared = float(best[CERTIFIED] / sensors[:, PAIRS].sum())
    return {"declared": declared, "within": or_none(shares(best)[1]), "interval": None}
