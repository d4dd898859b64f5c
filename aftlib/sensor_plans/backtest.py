"""Back-test on the second half: shares of windows certified, and of these within ε."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from aftlib.core.compiling import jit
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import LEVELS, bootstrap_share
from aftlib.core.requirement import Requirement
from aftlib.guard import Guard
from aftlib.guard.accounts import pooled_slack, slack

GUARD, ALWAYS, BASELINE, BASELINE_ALL = (
    "guard",
    "its estimates, always",
    "baseline model Σ/w",
    "baseline, always",
)
CONFORMAL, LINEAR, LAST = "adaptive conformal", "linear interpolation", "last value"
METHODS = (GUARD, ALWAYS, BASELINE, BASELINE_ALL, CONFORMAL, LINEAR, LAST)
HINDSIGHT = "baseline model, honest in hindsight"
SHOWN = (GUARD, BASELINE, ALWAYS, CONFORMAL, LINEAR, LAST)
OnSegment = Callable[[int, int], None]
SEGMENTS, LEAST_SEGMENT = 50, 10
"""Most segments of the second half, which intervals resample, and fewest windows of a segment."""
WARM_UP = 5000
"""Most windows before the second half that the guard is fed; its memory is some 600."""
SAMPLED = 2000
MOST_SCORED = 2_000_000
"""Most pairs (sensor, window) that are scored, the last ones; this takes about a minute."""
MANY = 400
"""Fewest certified windows of a sensor for which its share within ε is reported."""
PAIRS, CERTIFIED, WRONG = range(3)
MEMORY = 300
LEAST = 50
STEP_SIZE = 0.005


@dataclass(frozen=True)
class Walk:
    """Counts of a walk-forward back-test.

    `counts` are the windows whose truth is known, the certified ones among them, and the
    certified ones that were off by more than ε.
    """

    counts: np.ndarray  # (methods, segments, H, n, 3)
    edges: np.ndarray  # (segments + 1,) first window of each segment, and the end
    outcomes: np.ndarray  # (H, n, 2) all guarantees of the guard, and the wrong ones
    rounds: int  # windows that the guard was fed
    recoverable: np.ndarray  # (H, n) whether the guard certifies a loss after the last window
    errors: np.ndarray  # (about `SAMPLED`, n) a sample of the errors one window after a loss
    delta: float

    @property
    def guarantees(self) -> int:
        """Number of guarantees one window ahead, over all sensors."""
        return int(self.outcomes[0, :, 0].sum())

    @property
    def weights(self) -> np.ndarray:
        """Weights of the horizons, H : … : 2 : 1, shape (H,)."""
        down = np.arange(self.outcomes.shape[0], 0, -1.0)
        return down / down.sum()

    @property
    def allowed(self) -> np.ndarray:
        """Errors beyond δN that the theorem allows, shape (H,)."""
        return np.array([slack(self.rounds, self.delta, h + 1) for h in range(len(self.outcomes))])

    @property
    def excess(self) -> float:
        """Largest number of errors above the theorem's bound, for a sensor or all together.

        By the theorem it is at most 0 for any data.
        """
        guarantees, wrong = np.moveaxis(self.outcomes, -1, 0)
        single = wrong - self.delta * guarantees - self.allowed[:, None]
        n = guarantees.shape[1]
        pool = [pooled_slack(self.rounds, self.delta, n, h + 1) for h in range(len(guarantees))]
        pooled = (wrong - self.delta * guarantees).sum(axis=1) - pool
        return float(max(single.max(), pooled.max()))

    @property
    def pooled_allowance(self) -> float:
        """Errors beyond δN that all sensors together may have one window after a loss."""
        n = self.outcomes.shape[1]
        return float(min(n * self.allowed[0], pooled_slack(self.rounds, self.delta, n)))

    @property
    def least_epsilon(self) -> np.ndarray:
        """The smallest useful ε, shape (n,): a share 1 − δ of the errors is below it."""
        with np.errstate(invalid="ignore"):
            return np.nanquantile(self.errors, 1 - self.delta, axis=0)

    def of(self, method: str) -> np.ndarray:
        """Counts of one method, as weighted means over the horizons, shape (segments, n, 3)."""
        counts = self.counts[METHODS.index(method)]
        return np.einsum("h,shnk->snk", self.weights, counts)

    def summary(self, method: str) -> dict:
        """Share guaranteed, share of these within ε with its interval, and the worst sensor."""
        segments = self.of(method)
        certified, within = shares(segments.sum(axis=(0, 1)))
        _, by_sensor = shares(segments.sum(axis=0))
        guarantees = self.counts[METHODS.index(method)].sum(axis=(0, 1))[:, CERTIFIED]
        at = worst(by_sensor, guarantees >= MANY)
        return {
            "declared": float(certified),
            "within": or_none(within),
            "interval": None if np.isnan(within) else list(interval(segments.sum(axis=1))),
            "promises": int(guarantees.sum()),
            "worst": at,
            "worst_within": None if at is None else float(by_sensor[at]),
        }


def shares(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From counts (…, 3): share guaranteed, and share of these within ε (NaN if there are none)."""
    pairs, certified, wrong = np.moveaxis(counts, -1, 0)
    with np.errstate(invalid="ignore"):
        return certified / np.maximum(pairs, 1e-12), 1 - wrong / certified


def or_none(shares: np.ndarray | float) -> Any:
    """Shares as plan.json has them: a number or lists of numbers, None where a share is unknown."""
    unknown: Any = None
    return np.where(np.isnan(shares), unknown, shares).tolist()


def worst(within: np.ndarray, many: np.ndarray) -> int | None:
    """Index of the smallest share among those where `many` is true; None if it is true nowhere."""
    return int(np.where(many, within, np.inf).argmin()) if many.any() else None


def interval(counts: np.ndarray) -> tuple[float, float]:
    """Interval of the share within ε, resampling whole segments of time.

    Counts have shape (segments, 3), because sensors of a segment err together. If no segment
    has an error, the low end is the exact binomial bound for that number of independent segments.
    """
    used = counts[counts[:, CERTIFIED] > 0]
    if not len(used):
        return 0.0, 1.0
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
    horizons: int = 5,
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
    conformal = Conformal(limits, delta, horizons)
    estimates = estimate_by_baseline(baseline, values, workers)
    estimable = certify_by_baseline(baseline, workers, limits, delta)
    segments = max(2, min(SEGMENTS, (len(values) - start) // LEAST_SEGMENT))
    edges = np.linspace(start, len(values), segments + 1).astype(int)
    counts = np.zeros((len(METHODS), segments, horizons, n, 3), np.int64)
    outcomes = np.zeros((horizons, n, 2), np.int64)
    first, samples = max(0, start - WARM_UP), []

    for begin, end in _spans(first, edges):
        truth, history = values[begin:end, None], guard.replay(values[begin:end])
        own, certified = np.abs(truth - history.estimate), history.decisions == 2
        outcomes += np.stack(_settle(own, certified, limits), axis=-1).sum(axis=0)
        adaptive = conformal.replay(own)
        if begin < start:
            continue

        before, line = _from_itself(values, begin, end, horizons)
        baseline_errors = np.abs(truth - estimates[begin:end, None]).repeat(horizons, axis=1)
        always = np.ones(own.shape, bool)
        by_method = {
            GUARD: (own, certified),
            ALWAYS: (own, always),
            BASELINE: (baseline_errors, np.broadcast_to(estimable, own.shape)),
            BASELINE_ALL: (baseline_errors, always),
            CONFORMAL: (own, adaptive),
            LINEAR: (np.abs(truth - line), always),
            LAST: (np.abs(truth - before), always),
        }
        segment = counts[:, int(np.searchsorted(edges, begin, side="right")) - 1]
        segment[..., PAIRS] += np.isfinite(truth).sum(axis=0)
        for place, method in enumerate(METHODS):
            segment[place, ..., 1:] += np.stack(_settle(*by_method[method], limits), -1).sum(axis=0)
        samples.append(own[:: max(1, len(own) * segments // SAMPLED), 0])
        on_segment(end - first, len(values) - first)
    errors = np.concatenate(samples)
    return Walk(counts, edges, outcomes, guard.rounds, guard.recoverable, errors, delta)


def _spans(first: int, edges: np.ndarray, most: int = 2000) -> list[tuple[int, int]]:
    """Parts of the walk, each of which lies in one segment and has at most `most` windows."""
    marks = [first, *edges.tolist()]
    return [
        (begin, min(begin + most, end))
        for mark, end in pairwise(marks)
        for begin in range(mark, end, most)
    ]


def _settle(
    errors: np.ndarray, certified: np.ndarray, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each guarantee has a known outcome, and whether it was wrong."""
    settled = certified & np.isfinite(errors)
    return settled, settled & (errors > limits)


def _from_itself(
    values: np.ndarray, begin: int, end: int, horizons: int
) -> tuple[np.ndarray, np.ndarray]:
    """Estimates of windows from the same sensor, shape (rounds, H, n): last value, and linear.

    An outage ends with the estimated window. The last value is that before the outage, and the line
    runs from there to the window after the outage.
    """
    rows, steps = np.arange(begin, end), np.arange(1, horizons + 1)
    before = values[np.maximum(rows[:, None] - steps, 0)]
    after = values[np.minimum(rows + 1, len(values) - 1), None].copy()
    after[rows + 1 >= len(values)] = np.nan
    steps = steps[:, None]
    return before, (before + steps * after) / (steps + 1)


def estimate_by_baseline(
    model: GaussianModel, values: np.ndarray, workers: Sequence[Sequence[int]]
) -> np.ndarray:
    """Estimate each worker's windows from the others' at the same time, (N, n) (D1 eq. (1)).

    Gaps among the others are replaced by their mean.
    """
    z = np.nan_to_num(values - model.mean)
    scaled, estimates = z @ model.precision, np.empty(values.shape)
    for keys in map(list, workers):
        block = np.linalg.inv(model.precision[np.ix_(keys, keys)])
        estimates[:, keys] = model.mean[keys] + z[:, keys] - scaled[:, keys] @ block
    return estimates


def certify_by_baseline(
    model: GaussianModel, workers: Sequence[Sequence[int]], limits: np.ndarray, delta: float
) -> np.ndarray:
    """Whether the baseline model would certify each sensor, shape (n,) (D1 eq. (8))."""
    unit, variance = Requirement(1.0, delta), left_variance(model, workers)
    return unit.is_met_by(unit.reliability(variance / limits**2))


def left_variance(model: GaussianModel, workers: Sequence[Sequence[int]]) -> np.ndarray:
    """Variance of each sensor given the sensors of the other workers, shape (n,)."""
    variance = np.empty(model.size)
    for keys in map(list, workers):
        variance[keys] = model.block_variance(keys)
    return variance


def compare(walk: Walk, baseline: GaussianModel, workers: Sequence[Sequence[int]]) -> list[dict]:
    """Share guaranteed and share of these within ε, of every method, on the same windows."""
    lines = []
    for method in SHOWN:
        summary = walk.summary(method)
        shown = {name: summary[name] for name in ("declared", "within", "interval")}
        lines.append({"method": method} | shown)
    return [*lines, {"method": HINDSIGHT} | hindsight(walk, baseline, workers)]


def hindsight(walk: Walk, baseline: GaussianModel, workers: Sequence[Sequence[int]]) -> dict:
    """Largest share that the baseline model could have certified without breaking the guarantee.

    Sensors are ranked by their expected error, and the number of certified sensors is chosen
    afterwards, which no real system could do. The guard's share is compared with this share.
    """
    sensors = walk.of(BASELINE_ALL).sum(axis=0)
    order = np.argsort(left_variance(baseline, workers) / np.diag(baseline.covariance))
    total = np.cumsum(sensors[order], axis=0)
    honest = total[:, WRONG] <= walk.delta * total[:, CERTIFIED]
    most = int(np.flatnonzero(honest).max(initial=-1)) + 1
    if not most:
        return {"declared": 0.0, "within": None, "interval": None}
    certified, wrong = total[most - 1, CERTIFIED], total[most - 1, WRONG]
    share = float(certified / sensors[:, PAIRS].sum())
    return {"declared": share, "within": float(1 - wrong / certified), "interval": None}


@jit()
def _follow(
    errors: Any,
    limits: Any,
    delta: float,
    level: Any,
    ring: Any,
    ordered: Any,
    seen: Any,
    pending: Any,
    certified: Any,
) -> None:
    rounds, horizons, n = errors.shape
    for r in range(rounds):
        for h in range(horizons):
            for i in range(n):
                slot = seen[h, i, 0] % (h + 1)
                seen[h, i, 0] += 1
                width, error = pending[h, i, slot], errors[r, h, i]
                certified[r, h, i] = width <= limits[i]
                if not np.isnan(error):
                    level[h, i] += STEP_SIZE * (delta - (1.0 if error > width else 0.0))
                    line, count = ordered[h, i], min(seen[h, i, 1], MEMORY)
                    if count == MEMORY:
                        old = ring[h, i, seen[h, i, 1] % MEMORY]
                        k = np.searchsorted(line, old)
                        line[k : MEMORY - 1] = line[k + 1 : MEMORY].copy()
                        count -= 1
                    k = np.searchsorted(line[:count], error)
                    line[k + 1 : count + 1] = line[k:count].copy()
                    line[k] = error
                    ring[h, i, seen[h, i, 1] % MEMORY] = error
                    seen[h, i, 1] += 1
                count = min(seen[h, i, 1], MEMORY)
                rank = int(np.ceil((1 - level[h, i]) * (count + 1)))
                pending[h, i, slot] = np.inf
                if count >= LEAST and rank <= count:
                    pending[h, i, slot] = ordered[h, i, max(rank, 1) - 1]


class Conformal:
    """Half-widths that adapt to the errors; a window is guaranteed if its half-width is at most ε.

    α ← α + γ (δ − [|error| > half-width]), and the half-width is the 1 − α quantile of the last
    errors (Gibbs and Candès 2021), one per (horizon, sensor). The guarantee is about the share over
    *all* windows, not over those whose half-width is small. `limits` (n,) is ε of each sensor.
    """

    def __init__(self, limits: np.ndarray, delta: float, horizons: int) -> None:
        here = (horizons, len(limits))
        self._limits, self._delta = np.asarray(limits, float), float(delta)
        self._level = np.full(here, float(delta))
        self._ring, self._ordered = np.zeros((*here, MEMORY)), np.zeros((*here, MEMORY))
        self._seen = np.zeros((*here, 2), np.int64)
        self._pending = np.full((*here, horizons), np.inf)

    def replay(self, errors: np.ndarray) -> np.ndarray:
        """Whether each window is guaranteed; absolute errors have shape (rounds, horizons, n)."""
        certified = np.zeros(errors.shape, np.bool_)
        state = (self._level, self._ring, self._ordered, self._seen, self._pending)
        _follow(np.ascontiguousarray(errors), self._limits, self._delta, *state, certified)
        return certified
