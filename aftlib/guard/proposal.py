"""Proposal of sensors to certify: the risk of an error above ε, and the risk that budgets allow.

Each (horizon, sensor) has a ridge regression of y = log(|error|/σ + 0.03) on values known before a
failure, with the regression of all sensors as its prior. The risk p̂ is the share of its last
residuals with which the error would exceed ε. A sensor is proposed if p̂ ≤ δ·max(`LEAST_RISK`,
`RISK_AT_START`·r), where r is the budget of its account or of the pool, whichever is less, as a
ratio to its first budget. Errors lower the budget and so the limit. Where errors are rarer than δ,
the budget rises, until riskier rounds spend what the others saved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from aftlib.guard.state import at_horizons, axes, pushed

FLOOR = 0.03
"""Added to |error|/σ before its logarithm, so that tiny errors do not dominate the regression."""
USABLE, FAST, SLOW, MEAN, CHANGE, DEVIATION, SIZE, SEASONS = range(8)
"""Columns of the features: 1 where a window came after a fit, else all are ignored; fast and slow
average of y; mean of the fast ones over all sensors; last change; deviation from the level, and its
size; from `SEASONS` on the harmonics of the two most important seasons."""
FEATURES = SEASONS + 4
RESIDUALS = 400
"""Residuals of a (horizon, sensor) that are remembered."""
LEAST_RESIDUALS = 50
RISK_FORGET = 0.002
"""Share of its memory that the regression forgets per round: it remembers about 500."""
PRIOR = 30.0
"""Weight, in rounds, that the regression of one sensor gives to the regression of all sensors."""
LEAST_RISK = 0.9
"""Risk, in units of δ, that every sensor may have."""
RISK_AT_START = 1.5
"""Risk, in units of δ, that a sensor may have while its account has its first budget."""


@dataclass(frozen=True)
class Risk:
    """State of the proposals; the axes G, H and n are those of `guard.state.State`.

    The axis F has the features. The matrix Σ f fᵀ is symmetric, and 0 for harmonics of seasons that
    there are not, so `normal` has only its other entries: the axis `pairs`.
    """

    fast: np.ndarray = axes("H n", learned=True)  # averages of y
    slow: np.ndarray = axes("H n", learned=True)
    normal: np.ndarray = axes("H n pairs", learned=True)  # forgetting sums of f fᵀ
    moment: np.ndarray = axes("H n F", learned=True)  # of f·y
    weights: np.ndarray = axes("H n F")
    # ring, −∞ where none is yet
    residuals: np.ndarray = axes("H n residuals", np.float32, first=-np.inf, learned=True)
    residual_count: np.ndarray = axes("H n", np.int64, learned=True)
    common: np.ndarray = axes("age n F-3")  # ring of the features that all horizons share
    own: np.ndarray = axes("age H n 3")  # ring of a horizon's `FAST`, `SLOW` and `MEAN`

    def features_of(
        self, usable: np.ndarray, change: np.ndarray, deviation: np.ndarray, waves: np.ndarray
    ) -> np.ndarray:
        """Return the features of a round, (G, H, n, F), 0 where a sensor is not `usable`.

        `waves` has shape (G, 2k) for k seasons, the other arguments (G, n). `deviation` is that
        from the level, in σ.
        """
        features = np.zeros((*self.fast.shape, FEATURES))
        count = min(waves.shape[1], FEATURES - SEASONS)
        features[..., USABLE] = 1.0
        features[..., FAST] = self.fast
        features[..., SLOW] = self.slow
        features[..., MEAN] = self.fast.mean(-1, keepdims=True)
        features[..., CHANGE] = np.where(np.isnan(change), 0.0, change)[:, np.newaxis]
        features[..., DEVIATION] = deviation[:, np.newaxis]
        features[..., SIZE] = np.abs(deviation)[:, np.newaxis]
        features[..., SEASONS : SEASONS + count] = waves[:, np.newaxis, np.newaxis, :count]
        return np.where(usable[:, np.newaxis, :, np.newaxis], features, 0.0)

    def remember(self, features: np.ndarray) -> None:
        """Put the features of a round, (G, H, n, F), into the rings."""
        common = np.delete(features[:, 0], slice(FAST, CHANGE), axis=-1)
        self.common[...] = pushed(self.common, common)
        self.own[...] = pushed(self.own, features[..., FAST:CHANGE])

    def learn(
        self, scored: np.ndarray, y: np.ndarray, outside: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Learn the outcomes of predictions, where `scored`, shape (G, H, n).

        Returns which of them it learned, and whether each error was above the half-width for the
        share `outside`: 1, 0, or NaN where there was none.
        """
        # horizon h has the features of h rounds ago, so the ages of `common` are read as horizons
        features = joined(self.common, at_horizons(self.own))
        y = np.where(scored, y, 0.0)
        used = scored & (features[..., USABLE] == 1)
        residual = y - np.einsum("ghnf,ghnf->ghn", features, self.weights)
        residual = residual.astype(np.float32)  # as they are stored, because mixed types are slow
        above = count_true(self.residuals >= residual[..., np.newaxis])
        count = np.minimum(self.residual_count, RESIDUALS)
        missed = (outside > 0) & (above <= np.maximum(outside * (count + 1) - 1, 0))
        known = used & (count >= LEAST_RESIDUALS)
        at = np.nonzero(used)
        self.residuals[(*at, self.residual_count[at] % RESIDUALS)] = residual[at]
        self.residual_count[...] = self.residual_count + used
        faded = np.where(used, 1 - RISK_FORGET, 1.0)[..., np.newaxis]
        new = features * used[..., np.newaxis]
        self.moment[...] = faded * self.moment + new * y[..., np.newaxis]
        normal = self.normal
        one, other = pairs_of(normal.shape[-1])
        normal *= faded
        normal += new.take(one, axis=-1) * new.take(other, axis=-1)
        self.fast[...] = self.fast + np.where(scored, 0.3 * (y - self.fast), 0.0)
        self.slow[...] = self.slow + np.where(scored, 0.03 * (y - self.slow), 0.0)
        return used, np.where(known, missed, np.nan)

    def refit(self) -> None:
        """Solve every regression; each is drawn towards the regression of all sensors together."""
        unit = np.eye(FEATURES)
        one, other = pairs_of(self.normal.shape[-1])
        normal = np.zeros((*self.moment.shape, FEATURES))
        normal[..., one, other] = self.normal
        normal[..., other, one] = self.normal
        total = normal.sum(-3) + 0.001 * unit
        moment = self.moment.sum(-2) + 0.001 * unit[SLOW]
        right = (moment + 5 * unit[SLOW])[..., np.newaxis]
        shared = np.linalg.solve(total + 5 * unit, right)
        prior = total * (PRIOR / np.maximum(total[..., :1, :1], 1.0))
        left = normal + (prior + 0.001 * unit)[..., np.newaxis, :, :]
        right = self.moment[..., np.newaxis] + (prior @ shared)[..., np.newaxis, :, :]
        self.weights[...] = np.linalg.solve(left, right)[..., 0]

    def propose(
        self, features: np.ndarray, log_epsilon: np.ndarray, budget: np.ndarray, delta: float
    ) -> np.ndarray:
        """Return the proposed sensors, (G, H, n), by the features of this round, (G, H, n, F).

        `log_epsilon` is log(ε/σ + 0.03), (G, n); `budget` (G, H, n) is in units of the first one.
        """
        bound = log_epsilon[:, np.newaxis] - np.einsum("ghnf,ghnf->ghn", features, self.weights)
        above = count_true(self.residuals > bound.astype(np.float32)[..., np.newaxis])
        count = np.minimum(self.residual_count, RESIDUALS)
        risk = (above + 0.5) / (count + 1)
        known = (features[..., USABLE] == 1) & (count >= LEAST_RESIDUALS)
        return np.asarray(known & (risk <= allowed_risk(budget, delta)))

    def half_widths(
        self, g: np.ndarray, at: np.ndarray, i: np.ndarray, outside: np.ndarray
    ) -> np.ndarray:
        """Return half-widths in σ above which a share `outside` of the last residuals lies.

        NaN if too few are known, infinite if no error may lie outside. The arguments are guards,
        horizons less 1, sensors and shares, one of each per estimate.
        """
        count = np.minimum(self.residual_count[g, at, i], RESIDUALS)
        features = joined(self.common[g, at, i], self.own[g, at, at, i])
        rank = np.clip(np.ceil((1 - outside) * (count + 1)).astype(np.int64), 1, count) - 1
        ordered = np.sort(self.residuals[g, at, i], axis=-1)  # those that are there come last
        residual = ordered[np.arange(len(rank)), RESIDUALS - count + rank]
        expected = np.einsum("rf,rf->r", features, self.weights[g, at, i])
        with np.errstate(over="ignore"):  # after values of 1e90, a width may be infinite
            width = np.maximum(np.exp(expected + residual) - FLOOR, 0.0)
        width[outside <= 0] = np.inf
        known = (features[:, USABLE] == 1) & (count >= LEAST_RESIDUALS)
        return np.where(known, width, np.nan)


def joined(common: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return all features, (…, F), from the common and the own ones of `Risk`."""
    features = np.empty((*own.shape[:-1], FEATURES))
    features[..., USABLE] = common[..., USABLE]
    features[..., FAST:CHANGE] = own
    features[..., CHANGE:] = common[..., USABLE + 1 :]
    return features


@cache
def pairs_of(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two features of each of the entries on and above the diagonal of Σ f fᵀ."""
    one, other = np.triu_indices(math.isqrt(2 * number))
    return one, other


def count_true(flags: np.ndarray) -> np.ndarray:
    """Return how many of `RESIDUALS` flags are true along the last axis.

    A sum of eight bytes at once is NumPy's fastest count. Each byte counts `RESIDUALS` / 8 flags,
    so none overflows.
    """
    counts = flags.view(np.uint64).sum(-1, keepdims=True)
    return np.asarray(counts.view(np.uint8).sum(-1, dtype=np.uint16))


def allowed_risk(budget: np.ndarray, delta: float) -> np.ndarray:
    """Return the largest risk of a proposed sensor; `budget` is in units of the first budget."""
    return np.asarray(delta * np.maximum(LEAST_RISK, RISK_AT_START * budget))


def log_ratio(size: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return log(size/scale + 0.03); without meaning before a fit, when a scale is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(size / scale + FLOOR))
