"""Proposal of sensors to certify: the risk of an error above ε, and the risk that budgets allow.

Each (horizon, sensor) has a ridge regression of y = log(|error|/σ + 0.03) on values known before a
failure, with the regression of all sensors as its prior. The risk p̂ is the share of its last
residuals with which the error would exceed ε. A sensor is proposed if p̂ ≤ δ·max(`LEAST_RISK`,
`RISK_AT_START`·r), where r is the budget of its account or of the pool, whichever is less, as a
ratio to its first budget. Errors lower the budget and so the limit. Where errors are rarer than δ,
the budget rises, until riskier rounds spend what the others saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

FLOOR = 0.03
"""Added to |error|/σ before its logarithm, so that tiny errors do not dominate the regression."""
USABLE, FAST, SLOW, MEAN, CHANGE, LEVEL, SIZE, SEASONS = range(8)
"""Columns of the features: 1 where a window came after a fit, else all are ignored; fast and slow
average of y; mean of the fast ones over all sensors; last change; deviation from the level, and its
size; from `SEASONS` on the harmonics of the two most important seasons."""
FEATURES = SEASONS + 4
RESIDUALS = 400
"""Residuals of a (horizon, sensor) that are remembered."""
LEAST_RESIDUALS = 50
FORGET = 0.002
PRIOR = 30.0
"""Weight, in rounds, that the regression of one sensor gives to the regression of all sensors."""
LEAST_RISK = 0.9
"""Risk, in units of δ, that every sensor may have."""
RISK_AT_START = 1.5
"""Risk, in units of δ, that a sensor may have while its account has its first budget."""


@dataclass
class Risk:
    """State of the proposals; entry (h − 1, i) belongs to horizon h and sensor i.

    F is the number of features. A ring has a slot for each of the last H + 1 rounds.
    """

    fast: np.ndarray  # (H, n) averages of y
    slow: np.ndarray
    normal: np.ndarray  # (H, n, F, F) forgetting sums of f fᵀ
    moment: np.ndarray  # (H, n, F) of f·y
    weights: np.ndarray  # (H, n, F)
    residuals: np.ndarray  # (H, n, RESIDUALS) float32 ring, −∞ where there is none yet
    residual_count: np.ndarray  # (H, n)
    features: np.ndarray  # (H + 1, H, n, F) ring

    @classmethod
    def begin(cls, sensors: int, horizons: int) -> Self:
        """Return the state before the first round."""
        each = horizons, sensors
        weights = np.zeros((*each, FEATURES))
        weights[..., SLOW] = 1  # the slow average, until more is known
        return cls(
            fast=np.zeros(each),
            slow=np.zeros(each),
            normal=np.zeros((*each, FEATURES, FEATURES)),
            moment=np.zeros((*each, FEATURES)),
            weights=weights,
            residuals=np.full((*each, RESIDUALS), -np.inf, np.float32),
            residual_count=np.zeros(each, np.int64),
            features=np.zeros((horizons + 1, *each, FEATURES)),
        )

    def write_features(
        self,
        slot: int,
        usable: np.ndarray,
        change: np.ndarray,
        level: np.ndarray,
        waves: np.ndarray,
    ) -> None:
        """Write the features of a round into its slot; arrays have shape (n,)."""
        features = self.features[slot]
        count = min(waves.size, FEATURES - SEASONS)
        features[:] = 0.0
        features[..., FAST] = self.fast
        features[..., SLOW] = self.slow
        features[..., MEAN] = self.fast.mean(1, keepdims=True)
        features[..., CHANGE] = np.where(np.isnan(change), 0.0, change)
        features[..., LEVEL] = level
        features[..., SIZE] = np.abs(level)
        features[..., SEASONS : SEASONS + count] = waves[:count]
        features[:, ~usable] = 0.0
        features[:, usable, USABLE] = 1.0

    def was_usable(self, slots: np.ndarray) -> np.ndarray:
        """Whether horizon 1 … k had features at `slots`, 1 … k rounds ago, shape (k, n)."""
        return np.asarray(self.features[slots, np.arange(len(slots)), :, USABLE] == 1)

    def learn(
        self, slots: np.ndarray, scored: np.ndarray, y: np.ndarray, outside: np.ndarray
    ) -> np.ndarray:
        """Learn the outcomes of the predictions for horizon 1 … k, where `scored`, shape (k, n).

        The prediction for horizon h used the features at `slots[h - 1]`. Returns whether each error
        was above the half-width for the share `outside`: 1, 0, or NaN where there was none.
        """
        k = len(slots)
        features = self.features[slots, np.arange(k)]
        y = np.where(scored, y, 0.0)
        used = scored & self.was_usable(slots)
        residual = y - np.einsum("hnf,hnf->hn", features, self.weights[:k])
        residual = residual.astype(np.float32)  # as they are stored, because mixed types are slow
        larger = self.residuals[:k] >= residual[..., np.newaxis]
        above = larger.view(np.uint8).sum(-1, dtype=np.uint16)
        count = np.minimum(self.residual_count[:k], RESIDUALS)
        missed = (outside > 0) & (above <= np.maximum(outside * (count + 1) - 1, 0))
        known = used & (count >= LEAST_RESIDUALS)
        h, i = np.nonzero(used)
        self.residuals[h, i, self.residual_count[h, i] % RESIDUALS] = residual[h, i]
        self.residual_count[:k] += used
        faded = np.where(used, 1 - FORGET, 1.0)[..., np.newaxis]
        new = features * used[..., np.newaxis]
        self.moment[:k] = faded * self.moment[:k] + new * y[..., np.newaxis]
        normal = self.normal[:k]
        normal *= faded[..., np.newaxis]
        normal += new[..., np.newaxis] * new[..., np.newaxis, :]
        self.fast[:k] += np.where(scored, 0.3 * (y - self.fast[:k]), 0.0)
        self.slow[:k] += np.where(scored, 0.03 * (y - self.slow[:k]), 0.0)
        return np.where(known, missed, np.nan)

    def refit(self) -> None:
        """Solve every regression; each is drawn towards the regression of all sensors together."""
        unit = np.eye(FEATURES)
        total = self.normal.sum(1) + 0.001 * unit
        moment = self.moment.sum(1) + 0.001 * unit[SLOW]
        right = (moment + 5 * unit[SLOW])[..., np.newaxis]
        shared = np.linalg.solve(total + 5 * unit, right)
        prior = total * (PRIOR / np.maximum(total[:, :1, :1], 1.0))
        left = self.normal + (prior + 0.001 * unit)[:, np.newaxis]
        right = self.moment[..., np.newaxis] + (prior @ shared)[:, np.newaxis]
        self.weights = np.linalg.solve(left, right)[..., 0]

    def propose(self, slot: int, limit: np.ndarray, budget: np.ndarray, delta: float) -> np.ndarray:
        """Return the proposed sensors, (H, n), by the features of the round at `slot`.

        `limit` is log(ε/σ + 0.03), shape (n,); `budget` (H, n) is in units of the first budget.
        """
        features = self.features[slot]
        bound = limit - np.einsum("hnf,hnf->hn", features, self.weights)
        exceed = self.residuals > bound.astype(np.float32)[..., np.newaxis]
        above = exceed.view(np.uint8).sum(-1, dtype=np.uint16)  # NumPy's fastest count
        count = np.minimum(self.residual_count, RESIDUALS)
        risk = (above + 0.5) / (count + 1)
        known = (features[..., USABLE] == 1) & (count >= LEAST_RESIDUALS)
        return np.asarray(known & (risk <= allowed_risk(budget, delta)))

    def half_widths(
        self, slot: np.ndarray, h: np.ndarray, i: np.ndarray, outside: np.ndarray
    ) -> np.ndarray:
        """Return half-widths in σ above which a share `outside` of the last residuals lies.

        NaN if too few are known, infinite if no error may lie outside. The arguments are slots,
        horizons less 1, sensors and shares, one of each per estimate.
        """
        count = np.minimum(self.residual_count[h, i], RESIDUALS)
        features = self.features[slot, h, i]
        rank = np.clip(np.ceil((1 - outside) * (count + 1)).astype(np.int64), 1, count) - 1
        ordered = np.sort(self.residuals[h, i], axis=-1)  # those that are there come last
        residual = ordered[np.arange(len(rank)), RESIDUALS - count + rank]
        expected = np.einsum("rf,rf->r", features, self.weights[h, i])
        with np.errstate(over="ignore"):  # after values of 1e90, a width may be infinite
            width = np.maximum(np.exp(expected + residual) - FLOOR, 0.0)
        width[outside <= 0] = np.inf
        known = (features[:, USABLE] == 1) & (count >= LEAST_RESIDUALS)
        return np.where(known, width, np.nan)


def allowed_risk(budget: np.ndarray, delta: float) -> np.ndarray:
    """Return the largest risk of a proposed sensor; `budget` is in units of the first budget."""
    return np.asarray(delta * np.maximum(LEAST_RISK, RISK_AT_START * budget))


def log_ratio(size: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return log(size/scale + 0.03); without meaning before a fit, when a scale is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(size / scale + FLOOR))
