"""Proposal of sensors to certify: the risk of an error above ε, and the risk that δ allows.

Each (horizon, sensor) has a ridge regression of y = log(|error|/σ + 0.03) on values known before a
failure, with the regression of all sensors as its prior. The risk p̂ is the share of its last
residuals with which the error would exceed ε. The sensors of smallest p̂ are proposed: as
many as keep the mean of their predicted and observed error rates below `SAFETY`·δ. So the limit
applies to this mean, not to each risk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aftlib.core.compiling import jit

FLOOR = 0.03
SEASONAL = 4
"""Features from the seasons: the harmonics of the two most important ones."""
FEATURES = 7 + SEASONAL
RESIDUALS, OUTCOMES, BINS = 400, 500, 128
LEAST_RESIDUALS, LEAST_OUTCOMES = 50, 60
FORGET = 0.002
PRIOR = 30.0
"""Weight, in rounds, that the regression of one sensor gives to the regression of all sensors."""
SAFETY = 0.9


class Risk(NamedTuple):
    """State of the proposals, one entry per (horizon, sensor); rings hold the last H + 1 rounds."""

    fast: np.ndarray  # (H, n) averages of y
    slow: np.ndarray
    normal: np.ndarray  # (H, n, F, F) forgetting sums of f fᵀ
    moment: np.ndarray  # (H, n, F) of f·y
    weights: np.ndarray  # (H, n, F)
    residuals: np.ndarray  # (H, n, RESIDUALS)
    seen: np.ndarray  # (H, n, 2) residuals and outcomes so far
    risks: np.ndarray  # (H, n, OUTCOMES) of the last outcomes
    wrongs: np.ndarray  # (H, n, OUTCOMES)
    bins: np.ndarray  # (H, n, BINS, 3) by risk: number of outcomes, errors, and sum of risks
    features: np.ndarray  # (H + 1, H, n, F)
    risk: np.ndarray  # (H + 1, H, n) p̂ at the decision, −1 where unknown


def new_risk(sensors: int, horizons: int) -> Risk:
    """Return the state before the first round."""
    f, table = FEATURES, (BINS, 3)
    sizes = (), (), (f, f), (f,), (f,), (RESIDUALS,), (2,), (OUTCOMES,), (OUTCOMES,), table
    arrays = [np.zeros((horizons, sensors, *size)) for size in sizes]
    arrays[6] = arrays[6].astype(np.int64)
    ring = horizons + 1, horizons, sensors
    risk = Risk._make([*arrays, np.zeros((*ring, f)), np.full(ring, -1.0)])
    risk.weights[..., 2] = 1  # the slow average, until more is known
    return risk


@jit()
def bin_of(risk: float) -> int:
    """Return the bin of a risk; bins of small risks are narrower."""
    return min(int(BINS * np.sqrt(risk)), BINS - 1)


@jit()
def learn_outcome(risk: Any, slot: int, h: int, i: int, y: float, wrong: float) -> None:
    """Learn the outcome of the prediction that used the features at place `slot` of the ring."""
    features = risk.features[slot, h, i]
    if features[0] == 1.0:
        count = risk.seen[h, i]
        residual = y - np.dot(features, risk.weights[h, i])
        risk.residuals[h, i, count[0] % RESIDUALS] = residual
        count[0] += 1
        predicted = risk.risk[slot, h, i]
        if predicted >= 0:
            place = count[1] % OUTCOMES
            if count[1] >= OUTCOMES:
                count_outcome(
                    risk.bins[h, i], risk.risks[h, i, place], risk.wrongs[h, i, place], -1
                )
            count_outcome(risk.bins[h, i], predicted, wrong, 1)
            risk.risks[h, i, place], risk.wrongs[h, i, place] = predicted, wrong
            count[1] += 1
        normal, moment = risk.normal[h, i], risk.moment[h, i]
        for a in range(FEATURES):
            moment[a] = (1 - FORGET) * moment[a] + features[a] * y
            for b in range(FEATURES):
                normal[a, b] = (1 - FORGET) * normal[a, b] + features[a] * features[b]
    risk.fast[h, i] += 0.3 * (y - risk.fast[h, i])
    risk.slow[h, i] += 0.03 * (y - risk.slow[h, i])


@jit()
def count_outcome(bins: Any, predicted: float, wrong: float, sign: int) -> None:
    """Add an outcome to the bin of its predicted risk if `sign` is 1; remove it if `sign` is −1."""
    place = bins[bin_of(predicted)]
    place[0] += sign
    place[1] += sign * wrong
    place[2] += sign * predicted


@jit()
def refit_weights(risk: Any) -> None:
    """Solve every regression; each is drawn towards the regression of all sensors together."""
    horizons, n = risk.fast.shape
    for h in range(horizons):
        total = 0.001 * np.eye(FEATURES)
        moment = np.zeros(FEATURES)
        moment[2] = 0.001
        for i in range(n):
            total += risk.normal[h, i]
            moment += risk.moment[h, i]
        shared = np.linalg.solve(total + 5 * np.eye(FEATURES), moment + 5 * np.eye(FEATURES)[2])
        prior = total * (PRIOR / max(total[0, 0], 1.0))
        for i in range(n):
            left = risk.normal[h, i] + prior + 0.001 * np.eye(FEATURES)
            risk.weights[h, i] = np.linalg.solve(left, risk.moment[h, i] + np.dot(prior, shared))


@jit()
def propose(risk: Any, slot: int, h: int, i: int, limit: float, delta: float) -> bool:
    """Decide on a proposal by the features at place `slot` of the ring; `limit`: log(ε/σ + .03)."""
    count = min(risk.seen[h, i, 0], RESIDUALS)
    risk.risk[slot, h, i] = -1.0
    if count < LEAST_RESIDUALS:
        return False
    bound = limit - np.dot(risk.features[slot, h, i], risk.weights[h, i])
    above = 0
    for a in range(count):
        above += risk.residuals[h, i, a] > bound
    predicted = (above + 0.5) / (count + 1)
    risk.risk[slot, h, i] = predicted
    if risk.seen[h, i, 1] < LEAST_OUTCOMES:
        return False
    number = wrong = expected = 0.0
    largest, bins = -1, risk.bins[h, i]
    for b in range(BINS):
        number += bins[b, 0]
        wrong += bins[b, 1]
        expected += bins[b, 2]
        if 0.5 * (wrong + expected + 1) / (number + 0.5) <= SAFETY * delta:
            largest = b
    return bin_of(predicted) <= largest


@jit()
def half_width(risk: Any, slot: int, h: int, i: int, delta: float) -> float:
    """Return the half-width in σ that covers 1 − δ of the last residuals; NaN if too few."""
    count = min(risk.seen[h, i, 0], RESIDUALS)
    if count < LEAST_RESIDUALS:
        return np.nan
    ordered = np.sort(risk.residuals[h, i, :count])
    rank = min(int(np.ceil((1 - delta) * (count + 1))), count) - 1
    expected = np.dot(risk.features[slot, h, i], risk.weights[h, i])
    return max(np.exp(expected + ordered[rank]) - FLOOR, 0.0)
