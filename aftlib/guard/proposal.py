"""Which promises are worth trying: the risk of an error of more than ε, and how much of it to bear.

Each (horizon, sensor) has a ridge regression of y = log(|error|/σ + 0.03) on what is known before a
failure, drawn towards the one of all sensors. The risk p̂ is the share of its last residuals with
which the error would exceed ε. Proposed is whatever lies in the largest set of smallest risks that
keeps the average of predicted and observed errors below `SAFETY`·δ: the average counts, not each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aftlib.core.compiling import jit

FLOOR = 0.03
RHYTHMS = 2
"""Seasons, the most important ones, whose harmonics are among the features."""
FEATURES = 7 + 2 * RHYTHMS
RESIDUALS, OUTCOMES, BINS = 400, 500, 128
LEAST_RESIDUALS, LEAST_OUTCOMES = 50, 60
FORGET = 0.002
PRIOR = 30.0
"""Rounds that the regression of all sensors weighs in that of one."""
SAFETY = 0.9


class Risk(NamedTuple):
    """State of the proposals; (H, n, …) a horizon and sensor, rings of the last H + 1 rounds."""

    fast: np.ndarray  # (H, n) averages of y
    slow: np.ndarray
    normal: np.ndarray  # (H, n, F, F) forgetting sums of f fᵀ
    moment: np.ndarray  # (H, n, F) of f·y
    weights: np.ndarray  # (H, n, F)
    residuals: np.ndarray  # (H, n, RESIDUALS)
    seen: np.ndarray  # (H, n, 2) residuals and outcomes so far
    risks: np.ndarray  # (H, n, OUTCOMES) of the last outcomes
    wrongs: np.ndarray  # (H, n, OUTCOMES)
    bins: np.ndarray  # (H, n, BINS, 3) number, errors and risk of these, by risk
    features: np.ndarray  # (H + 1, H, n, F)
    said: np.ndarray  # (H + 1, H, n) risk as it was declared with, −1 where unknown


def new_risk(sensors: int, horizons: int) -> Risk:
    """Return the state before the first round."""
    here, ring = (horizons, sensors), (horizons + 1, horizons, sensors)
    weights = np.zeros((*here, FEATURES))
    weights[..., 2] = 1  # the slow average, until more is known
    return Risk(
        np.zeros(here),
        np.zeros(here),
        np.zeros((*here, FEATURES, FEATURES)),
        np.zeros((*here, FEATURES)),
        weights,
        np.zeros((*here, RESIDUALS)),
        np.zeros((*here, 2), np.int64),
        np.zeros((*here, OUTCOMES)),
        np.zeros((*here, OUTCOMES)),
        np.zeros((*here, BINS, 3)),
        np.zeros((*ring, FEATURES)),
        np.full(ring, -1.0),
    )


@jit()
def bin_of(risk: float) -> int:
    """Bin of a risk: finer where it is small."""
    return min(int(BINS * np.sqrt(risk)), BINS - 1)


@jit()
def learn_outcome(risk: Any, slot: int, h: int, i: int, y: float, wrong: float) -> None:
    """Take in what became of the prediction made with the features of ring place `slot`."""
    features = risk.features[slot, h, i]
    if features[0] == 1.0:
        expected = np.dot(features, risk.weights[h, i])
        count = risk.seen[h, i]
        risk.residuals[h, i, count[0] % RESIDUALS] = y - expected
        count[0] += 1
        said = risk.said[slot, h, i]
        if said >= 0:
            place = count[1] % OUTCOMES
            if count[1] >= OUTCOMES:
                old = risk.risks[h, i, place]
                table = risk.bins[h, i, bin_of(old)]
                table[0] -= 1
                table[1] -= risk.wrongs[h, i, place]
                table[2] -= old
            table = risk.bins[h, i, bin_of(said)]
            table[0] += 1
            table[1] += wrong
            table[2] += said
            risk.risks[h, i, place], risk.wrongs[h, i, place] = said, wrong
            count[1] += 1
        for a in range(FEATURES):
            risk.moment[h, i, a] = (1 - FORGET) * risk.moment[h, i, a] + features[a] * y
            for b in range(FEATURES):
                risk.normal[h, i, a, b] = (1 - FORGET) * risk.normal[h, i, a, b] + (
                    features[a] * features[b]
                )
    risk.fast[h, i] += 0.3 * (y - risk.fast[h, i])
    risk.slow[h, i] += 0.03 * (y - risk.slow[h, i])


@jit()
def refit_weights(risk: Any) -> None:
    """Solve every regression, drawn towards that of all sensors."""
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
    """Judge the features of ring place `slot`; `limit` is log(ε/σ + 0.03)."""
    features, seen = risk.features[slot, h, i], risk.seen[h, i]
    count = min(seen[0], RESIDUALS)
    risk.said[slot, h, i] = -1.0
    if count < LEAST_RESIDUALS:
        return False
    bound = limit - np.dot(features, risk.weights[h, i])
    above = 0
    for a in range(count):
        above += risk.residuals[h, i, a] > bound
    said = (above + 0.5) / (count + 1)
    risk.said[slot, h, i] = said
    if seen[1] < LEAST_OUTCOMES:
        return False
    number = wrong = predicted = 0.0
    largest = -1
    for b in range(BINS):
        number += risk.bins[h, i, b, 0]
        wrong += risk.bins[h, i, b, 1]
        predicted += risk.bins[h, i, b, 2]
        if 0.5 * (wrong + predicted + 1) / (number + 0.5) <= SAFETY * delta:
            largest = b
    return bin_of(said) <= largest


@jit()
def half_width(risk: Any, slot: int, h: int, i: int, delta: float) -> float:
    """Half-width in σ that 1 − δ of the last residuals would keep; NaN where too few are known."""
    count = min(risk.seen[h, i, 0], RESIDUALS)
    if count < LEAST_RESIDUALS:
        return np.nan
    ordered = np.sort(risk.residuals[h, i, :count])
    rank = min(int(np.ceil((1 - delta) * (count + 1))), count) - 1
    expected = np.dot(risk.features[slot, h, i], risk.weights[h, i])
    return max(np.exp(expected + ordered[rank]) - FLOOR, 0.0)
