"""Proposal of sensors to certify: the risk of an error above ε, and the risk that δ allows.

Each (horizon, sensor) has a ridge regression of y = log(|error|/σ + 0.03) on values known before a
failure, with the regression of all sensors as its prior. The risk p̂ is the share of its last
residuals with which the error would exceed ε. The sensors of smallest p̂ are proposed: as
many as keep the mean of their predicted and observed error rates below `SAFETY`·δ. So the limit
applies to this mean, not to each risk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FLOOR = 0.03
"""Added to |error|/σ before its logarithm, so that tiny errors do not dominate the regression."""
USABLE, FAST, SLOW, MEAN, CHANGE, LEVEL, SIZE, SEASONS = range(8)
"""Columns of the features: 1 where a window came after a fit, else all are ignored; fast and slow
average of y; mean of the fast ones over all sensors; last change; deviation from the level, and its
size; from `SEASONS` on the harmonics of the two most important seasons."""
FEATURES = SEASONS + 4
RESIDUALS, OUTCOMES, BINS = 400, 500, 128
LEAST_RESIDUALS, LEAST_OUTCOMES = 50, 60
FORGET = 0.002
FROM = np.triu(np.ones((BINS, BINS)))
"""Row b is 1 from bin b on."""
PRIOR = 30.0
"""Weight, in rounds, that the regression of one sensor gives to the regression of all sensors."""
SAFETY = 0.9


@dataclass
class Risk:
    """State of the proposals, one entry per (horizon, sensor); rings hold the last H + 1 rounds."""

    fast: np.ndarray  # (H, n) averages of y
    slow: np.ndarray
    normal: np.ndarray  # (H, n, F, F) forgetting sums of f fᵀ
    moment: np.ndarray  # (H, n, F) of f·y
    weights: np.ndarray  # (H, n, F)
    residuals: np.ndarray  # (H, n, RESIDUALS) ring, −∞ where there is none yet
    residual_count: np.ndarray  # (H, n)
    risks: np.ndarray  # (H, n, OUTCOMES) of the last outcomes
    wrongs: np.ndarray  # (H, n, OUTCOMES)
    outcome_count: np.ndarray  # (H, n)
    # (H, n, BINS) sum of ½ (wrong + risk) − SAFETY·δ over those outcomes up to each bin of risk
    excess: np.ndarray
    features: np.ndarray  # (H + 1, H, n, F)
    risk: np.ndarray  # (H + 1, H, n) p̂ at the decision, −1 where unknown


def new_risk(sensors: int, horizons: int) -> Risk:
    """Return the state before the first round."""
    here = horizons, sensors
    weights = np.zeros((*here, FEATURES))
    weights[..., SLOW] = 1  # the slow average, until more is known
    return Risk(
        fast=np.zeros(here), slow=np.zeros(here), normal=np.zeros((*here, FEATURES, FEATURES)),
        moment=np.zeros((*here, FEATURES)), weights=weights,
        residuals=np.full((*here, RESIDUALS), -np.inf), residual_count=np.zeros(here, np.int64),
        risks=np.zeros((*here, OUTCOMES)), wrongs=np.zeros((*here, OUTCOMES)),
        outcome_count=np.zeros(here, np.int64), excess=np.zeros((*here, BINS)),
        features=np.zeros((horizons + 1, *here, FEATURES)),
        risk=np.full((horizons + 1, *here), -1.0),
    )  # fmt: skip


def write_features(
    risk: Risk,
    slot: int,
    usable: np.ndarray,
    change: np.ndarray,
    level: np.ndarray,
    waves: np.ndarray,
) -> None:
    """Write the features of the sensors at place `slot` of the ring; arrays have shape (n,)."""
    features, count = risk.features[slot], min(waves.size, FEATURES - SEASONS)
    features[:] = 0.0
    features[..., FAST], features[..., SLOW] = risk.fast, risk.slow
    features[..., MEAN] = risk.fast.mean(1, keepdims=True)
    features[..., CHANGE] = np.where(np.isnan(change), 0.0, change)
    features[..., LEVEL], features[..., SIZE] = level, np.abs(level)
    features[..., SEASONS : SEASONS + count] = waves[:count]
    features[:, ~usable] = 0.0
    features[:, usable, USABLE] = 1.0


def bin_of(risk: np.ndarray) -> np.ndarray:
    """Return the bins of risks; bins of small risks are narrower."""
    return np.minimum((BINS * np.sqrt(risk)).astype(np.int64), BINS - 1)


def learn_outcomes(
    risk: Risk,
    slots: np.ndarray,
    scored: np.ndarray,
    y: np.ndarray,
    wrong: np.ndarray,
    delta: float,
) -> None:
    """Learn the outcomes of earlier predictions, one per horizon 1 … k and sensor, where `scored`.

    The prediction for horizon h used the features at place `slots[h - 1]` of the ring.
    """
    k = len(slots)
    places = slots, np.arange(k)
    features, y = risk.features[places], np.where(scored, y, 0.0)
    used = scored & (features[..., USABLE] == 1)
    residual = y - np.einsum("hnf,hnf->hn", features, risk.weights[:k])
    h, i = np.nonzero(used)
    risk.residuals[h, i, risk.residual_count[h, i] % RESIDUALS] = residual[h, i]
    risk.residual_count[:k] += used
    count_outcomes(risk, used, risk.risk[places], wrong, delta)
    faded = np.where(used, 1 - FORGET, 1.0)[..., np.newaxis]
    new = features * used[..., np.newaxis]
    risk.moment[:k] = faded * risk.moment[:k] + new * y[..., np.newaxis]
    normal = risk.normal[:k]
    normal *= faded[..., np.newaxis]
    normal += new[..., np.newaxis] * new[..., np.newaxis, :]
    risk.fast[:k] += np.where(scored, 0.3 * (y - risk.fast[:k]), 0.0)
    risk.slow[:k] += np.where(scored, 0.03 * (y - risk.slow[:k]), 0.0)


def count_outcomes(
    risk: Risk, used: np.ndarray, predicted: np.ndarray, wrong: np.ndarray, delta: float
) -> None:
    """Put the outcomes whose risk was predicted into rings and bins, in place of the oldest."""
    h, i = np.nonzero(used & (predicted >= 0))
    predicted, wrong, count = predicted[h, i], wrong[h, i], risk.outcome_count[h, i]
    place, full = count % OUTCOMES, count >= OUTCOMES
    oldest = h[full], i[full], place[full]
    past = 0.5 * (risk.wrongs[oldest] + risk.risks[oldest]) - SAFETY * delta
    risk.excess[h[full], i[full]] -= past[:, np.newaxis] * FROM[bin_of(risk.risks[oldest])]
    now = 0.5 * (wrong + predicted) - SAFETY * delta
    risk.excess[h, i] += now[:, np.newaxis] * FROM[bin_of(predicted)]
    risk.risks[h, i, place], risk.wrongs[h, i, place] = predicted, wrong
    risk.outcome_count[h, i] += 1


def refit_weights(risk: Risk) -> None:
    """Solve every regression; each is drawn towards the regression of all sensors together."""
    unit = np.eye(FEATURES)
    total = risk.normal.sum(1) + 0.001 * unit
    moment = risk.moment.sum(1) + 0.001 * unit[SLOW]
    right = (moment + 5 * unit[SLOW])[..., np.newaxis]
    shared = np.linalg.solve(total + 5 * unit, right)
    prior = total * (PRIOR / np.maximum(total[:, :1, :1], 1.0))
    left = risk.normal + (prior + 0.001 * unit)[:, np.newaxis]
    right = risk.moment[..., np.newaxis] + (prior @ shared)[:, np.newaxis]
    risk.weights = np.linalg.solve(left, right)[..., 0]


def propose(risk: Risk, slot: int, limit: np.ndarray, delta: float) -> np.ndarray:
    """Return the proposed sensors, (H, n), by the features at place `slot` of the ring.

    `limit` is log(ε/σ + 0.03), shape (n,).
    """
    features = risk.features[slot]
    bound = limit - np.einsum("hnf,hnf->hn", features, risk.weights)
    exceed = risk.residuals > bound[..., np.newaxis]
    above = exceed.view(np.uint8).sum(-1, dtype=np.uint16)  # NumPy's fastest count
    count = np.minimum(risk.residual_count, RESIDUALS)
    predicted = (above + 0.5) / (count + 1)
    known = (features[..., USABLE] == 1) & (count >= LEAST_RESIDUALS)
    risk.risk[slot] = np.where(known, predicted, -1.0)
    # ½ (errors + risks + 1) ≤ SAFETY·δ (number + ½), over the bins up to each
    fits = risk.excess <= 0.5 * (SAFETY * delta - 1)
    largest = np.where(fits.any(-1), BINS - 1 - fits[..., ::-1].argmax(-1), -1)
    enough = known & (risk.outcome_count >= LEAST_OUTCOMES)
    return np.asarray(enough & (bin_of(predicted) <= largest))


def half_widths(
    risk: Risk, slot: np.ndarray, h: np.ndarray, i: np.ndarray, delta: float
) -> np.ndarray:
    """Return half-widths in σ that cover 1 − δ of the last residuals; NaN where too few are known.

    The arguments are places of the ring, horizons from 0, and sensors, one of each per estimate.
    """
    count = np.minimum(risk.residual_count[h, i], RESIDUALS)
    features = risk.features[slot, h, i]
    rank = np.minimum(np.ceil((1 - delta) * (count + 1)).astype(np.int64), count) - 1
    ordered = np.sort(risk.residuals[h, i], axis=-1)  # those that are there come last
    residual = ordered[np.arange(len(rank)), RESIDUALS - count + rank]
    expected = np.einsum("rf,rf->r", features, risk.weights[h, i])
    width = np.maximum(np.exp(expected + residual) - FLOOR, 0.0)
    known = (features[:, USABLE] == 1) & (count >= LEAST_RESIDUALS)
    return np.where(known, width, np.nan)
