"""One round of the guard after another, compiled: the same one by one and in bulk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aftlib.core.compiling import jit
from aftlib.guard.accounts import declare, learn, pool_unit
from aftlib.guard.prediction import FIRST_FIT, absorb, conditional, learn_moments, predict, refit
from aftlib.guard.proposal import FLOOR, RHYTHMS, half_width, learn_outcome, propose, refit_weights

LARGEST = 1e100
"""No window may be of that size, nor what stands for one: its square must be a number."""
HIGHEST = 100.0
"""Deviation in sd that the risk tells apart at most, so that one wild value does not blind it."""
LEVEL_FORGET = 1 / 100
"""The levels' memory is shorter than the model's, so that a drift is followed."""


class State(NamedTuple):
    """Everything that a guard knows beside its model and its risks."""

    clock: np.ndarray  # (1,) rounds so far
    level: np.ndarray  # (2, n) forgetting mean of each sensor, and its weight
    windows: np.ndarray  # (H + 1, n) of the last rounds, NaN where missing
    filled: np.ndarray  # (H + 1, n) the same with what the model says in the gaps
    levels: np.ndarray  # (H + 1, n) means as they were after each
    missing: np.ndarray  # (n,) rounds since each sensor was last there
    said: np.ndarray  # (H + 1, H, n) 0 not proposed, 1 blocked, 2 declared
    accounts: np.ndarray  # (H, n, 4)
    pools: np.ndarray  # (H, 4)
    counts: np.ndarray  # (H, n, 3) declared rounds with known outcome, errors, declared rounds


class Rules(NamedTuple):
    """What does not change: promise, workers, seasons (rounds), and how often to fit."""

    epsilon: np.ndarray
    delta: float
    workers: np.ndarray
    seasons: np.ndarray
    forget: float
    every: int


@jit()
def row_of(state: Any, rules: Any, now: Any, t: int, h: int, joint: bool) -> Any:
    """Return z: windows now and h rounds before, less their means of then, and the seasons."""
    n, slot = now.size, (t - h) % len(state.windows)
    first = 2 * n if joint else n
    z = np.empty(first + 2 * rules.seasons.size)
    for i in range(n):
        z[i] = now[i] - state.levels[slot, i]
        if joint:
            z[n + i] = state.windows[slot, i] - state.levels[slot, i]
    for k in range(rules.seasons.size):
        z[first + 2 * k] = np.sin(2 * np.pi * t / rules.seasons[k])
        z[first + 2 * k + 1] = np.cos(2 * np.pi * t / rules.seasons[k])
    return z


@jit()
def expect(state: Any, model: Any, rules: Any, now: Any, t: int, h: int, out: Any) -> None:
    """Fill `out` with what each sensor's window would be, had its worker died h rounds ago."""
    joint = model.moments.shape[1] >= 2 * now.size
    slot = (t - h) % len(state.windows)
    z = row_of(state, rules, now, t, h, joint)
    predict(model, h - 1 if joint else 0, z, rules.workers, out)
    for i in range(now.size):
        out[i] += state.levels[slot, i]
        products = model.products[0, :, i]
        if not joint and products[0] > 0 and not np.isnan(model.residual[slot, i]):
            out[i] += products[h] / products[0] * model.residual[slot, i]


@jit()
def look_back(state: Any, model: Any, risk: Any, rules: Any, now: Any, t: int, out: Any) -> None:
    """Shadow-predict the window of now at every horizon, and learn what the promises came to."""
    horizons, n = state.accounts.shape[:2]
    unit = pool_unit(n)
    wrong = np.empty(n)
    for h in range(1, min(horizons, t) + 1):
        slot = (t - h) % len(state.windows)
        expect(state, model, rules, now, t, h, out[h - 1])
        for i in range(n):
            error = abs(now[i] - out[h - 1, i])
            wrong[i] = np.nan if np.isnan(error) else 1.0 if error > rules.epsilon[i] else 0.0
            if np.isnan(error):
                continue
            if state.said[slot, h - 1, i] == 2:
                state.counts[h - 1, i, 0] += 1
                state.counts[h - 1, i, 1] += wrong[i]
            if model.scale[0, i] > 0:
                y = np.log(error / model.scale[0, i] + FLOOR)
                learn_outcome(risk, slot, h - 1, i, y, wrong[i])
        learn(
            wrong,
            state.said[slot, h - 1],
            state.accounts[h - 1],
            state.pools[h - 1],
            rules.delta,
            unit,
        )


@jit()
def look_ahead(state: Any, model: Any, risk: Any, rules: Any, now: Any, t: int) -> None:
    """Declare which sensors could be lost from now on, and for how long."""
    horizons, n = state.accounts.shape[:2]
    slot, before = t % len(state.windows), (t - 1) % len(state.windows)
    unit = pool_unit(n)
    proposed = np.empty(n, np.bool_)
    for h in range(horizons):
        average = risk.fast[h].mean()
        for i in range(n):
            scale, features = model.scale[0, i], risk.features[slot, h, i]
            proposed[i] = False
            features[0] = 0.0
            risk.said[slot, h, i] = -1.0
            if scale <= 0 or np.isnan(now[i]):
                continue
            change = abs(now[i] - state.windows[before, i]) / scale
            height = min(max((now[i] - state.level[0, i]) / scale, -HIGHEST), HIGHEST)
            features[0], features[1], features[2] = 1.0, risk.fast[h, i], risk.slow[h, i]
            features[3] = average
            features[4] = 0.0 if np.isnan(change) else np.log(change + FLOOR)
            features[5], features[6] = height, abs(height)
            features[7:] = 0.0
            for k in range(min(RHYTHMS, rules.seasons.size)):
                features[7 + 2 * k] = np.sin(2 * np.pi * t / rules.seasons[k])
                features[8 + 2 * k] = np.cos(2 * np.pi * t / rules.seasons[k])
            limit = np.log(rules.epsilon[i] / scale + FLOOR)
            proposed[i] = propose(risk, slot, h, i, limit, rules.delta)
        said = state.said[slot, h]
        declare(proposed, state.accounts[h], state.pools[h], rules.delta, unit, said)
        for i in range(n):
            state.counts[h, i, 2] += said[i] == 2


@jit()
def recover(state: Any, model: Any, risk: Any, rules: Any, t: int, expected: Any, out: Any) -> None:
    """Fill `out` (n, 3) for missing sensors: estimate, half-width, and whether it was declared."""
    n, horizons = state.missing.size, len(state.accounts)
    for i in range(n):
        out[i, 0] = out[i, 1] = np.nan
        out[i, 2] = 0.0
        h = min(state.missing[i], horizons)
        if h == 0 or t < h:
            continue
        out[i, 0] = expected[h - 1, i]
        if state.missing[i] > horizons:
            continue
        slot = (t - h) % len(state.windows)
        if risk.features[slot, h - 1, i, 0] == 1.0:
            out[i, 1] = model.scale[0, i] * half_width(risk, slot, h - 1, i, rules.delta)
        alone = True
        for j in range(n):
            strange = rules.workers[j] != rules.workers[i]
            alone = alone and not (strange and 0 < state.missing[j] <= h)
        out[i, 2] = 1.0 if alone and state.said[slot, h - 1, i] == 2 else 0.0


@jit()
def remember(state: Any, model: Any, rules: Any, now: Any, t: int) -> None:
    """Put the window into rings, means and moments; the model fills its gaps there."""
    n, slot, horizons = now.size, t % len(state.windows), len(state.accounts)
    joint = model.moments.shape[1] >= 2 * n
    filled = now.copy()
    if t > 0 and np.isnan(now).any():
        z = row_of(state, rules, now, t, 1, joint)
        before = (t - 1) % len(state.windows)
        if model.scale[0].max() > 0:
            z = conditional(model.precision[0, 0], z, np.isnan(z))
        for i in range(n):
            if np.isnan(now[i]):
                filled[i] = state.levels[before, i] + (0.0 if np.isnan(z[i]) else z[i])
            if abs(filled[i]) >= LARGEST:  # what wild values seem to tell would grow without end
                filled[i] = state.level[0, i]
    for i in range(n):
        if not np.isnan(now[i]):
            state.level[1, i] = state.level[1, i] * (1 - LEVEL_FORGET) + 1
            state.level[0, i] += (now[i] - state.level[0, i]) / state.level[1, i]
        elif np.isnan(filled[i]):
            filled[i] = state.level[0, i]
    state.windows[slot], state.filled[slot] = now, filled
    state.levels[slot] = state.level[0]
    for h in range(1, min(horizons, t) + 1 if joint else min(2, t + 1)):
        back = (t - h) % len(state.windows)
        z = row_of(state, rules, filled, t, h, joint)
        for i in range(n):
            z[i] = filled[i] - state.level[0, i]
            if joint:
                z[n + i] = state.filled[back, i] - state.level[0, i]
        learn_moments(model, h - 1, t % rules.every, z, rules.forget)
    if not joint and t > 0:
        z = row_of(state, rules, now, t, 1, joint)
        apart = np.empty(n)
        predict(model, 0, z, rules.workers, apart)
        model.residual[slot] = z[:n] - apart
        for h in range(min(horizons, t) + 1):
            back = (t - h) % len(state.windows)
            for i in range(n):
                product = model.residual[slot, i] * model.residual[back, i]
                if np.isfinite(product):
                    kept = (1 - rules.forget) * model.products[2, h, i]
                    model.products[2, h, i] = kept + product


@jit()
def advance(
    state: Any,
    model: Any,
    risk: Any,
    rules: Any,
    windows: Any,
    recovered: Any,
    said: Any,
    shadow: Any,
) -> None:
    """Take in windows, a row a round.

    `recovered` (rounds, n, 3) is filled as by `recover`; `said` and `shadow` (rounds, H, n), unless
    they are empty, with what had been declared of each window, and with its shadow predictions.
    """
    horizons, n = state.accounts.shape[:2]
    expected = np.empty((horizons, n))
    for r in range(len(windows)):
        t, now = state.clock[0], windows[r]
        expected[:] = np.nan
        look_back(state, model, risk, rules, now, t, expected)
        for i in range(n):
            state.missing[i] = state.missing[i] + 1 if np.isnan(now[i]) else 0
        recover(state, model, risk, rules, t, expected, recovered[r])
        if len(said):
            shadow[r] = expected
            for h in range(1, horizons + 1):
                said[r, h - 1] = state.said[(t - h) % len(state.windows), h - 1]
        remember(state, model, rules, now, t)
        look_ahead(state, model, risk, rules, now, t)
        state.clock[0] = t + 1
        if (t + 1) % rules.every:
            continue
        absorb(model, rules.forget)
        if t + 1 >= FIRST_FIT:
            refit(model, rules.workers)
            refit_weights(risk)
