"""The guard's rounds, compiled; windows one by one or many at once give the same state.

Gaps are normal. A window is predicted from the sensors that are there, in a real outage and in the
shadow prediction alike, so that an account counts errors under the gaps that occur. The inflation
is the factor by which gaps raise the standard deviation of an error. A guarantee covers gaps whose
inflation is at most a limit. This limit follows the inflations so that a share `RARE` of the rounds
is above it. A round above the limit is withdrawn. So guarantees cover the kind of gaps under which
errors were counted. Two workers that fail at once are not covered unless one of them is often
missing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aftlib.core.compiling import jit
from aftlib.guard.accounts import certify, learn, new_accounts, pool_unit
from aftlib.guard.prediction import (
    FIRST_FIT,
    absorb,
    begin_late,
    conditional,
    learn_moments,
    predict,
    refit,
)
from aftlib.guard.proposal import FLOOR, SEASONAL, half_width, learn_outcome, propose, refit_weights

LARGEST = 1e100
"""Limit on the size of windows and of values that fill gaps; its square is still finite."""
HIGHEST = 100.0
"""Largest deviation, in standard deviations, that enters the regression of the risk, so that one
extreme value does not dominate it."""
UNCOVERED = -1
"""Decision whose guarantee does not cover the gaps that came."""
RARE, STEP, HARMLESS = 0.01, 0.1, 0.01
"""Share of the rounds whose gaps no guarantee covers; how fast the limit follows; and the log
inflation that is always covered."""
LEVEL_FORGET = 1 / 100
"""The levels forget faster than the model, so that they follow a drift."""


class State(NamedTuple):
    """The state of a guard, besides its model and its risks; rings hold the last H + 1 rounds."""

    # (4,) number of rounds; of rounds in which a window came; of these, those in the moments, and
    # those that had come at the last fit
    clock: np.ndarray
    level: np.ndarray  # (2, n) forgetting mean of each sensor, and its weight
    windows: np.ndarray  # (H + 1, n) NaN where missing
    filled: np.ndarray  # (H + 1, n) the same with the model's values in the gaps
    levels: np.ndarray  # (H + 1, n) means as they were after each round
    missing: np.ndarray  # (n,) rounds since each sensor was last there
    decisions: np.ndarray  # (H + 1, H, n) 0 not proposed, 1 blocked, 2 certified
    allowed: np.ndarray  # (H + 1, H, n) `tolerance` at these decisions
    tolerance: np.ndarray  # (H, n) log inflation by gaps that a guarantee covers
    accounts: np.ndarray  # (H, n, 4)
    pools: np.ndarray  # (H, 4)
    counts: np.ndarray  # (H, n, 2) certified rounds with known outcome, and errors
    begun: np.ndarray  # (n,) round in which each sensor's accounts began


class Rules(NamedTuple):
    """The parameters of a guard."""

    epsilon: np.ndarray  # (n,)
    delta: float
    workers: np.ndarray  # (n,) number of each sensor's worker
    seasons: np.ndarray  # periods in rounds
    forget: float
    every: int  # most windows between two fits


def new_state(sensors: int, horizons: int) -> State:
    """Return the state before the first round."""
    ring, here = (horizons + 1, sensors), (horizons, sensors)
    accounts, pools = new_accounts(sensors, horizons)
    return State(
        clock=np.zeros(4, np.int64),
        level=np.zeros((2, sensors)),
        windows=np.full(ring, np.nan),
        filled=np.full(ring, np.nan),
        levels=np.zeros(ring),
        missing=np.zeros(sensors, np.int64),
        decisions=np.zeros((horizons + 1, *here), np.int64),
        allowed=np.zeros((horizons + 1, *here)),
        tolerance=np.zeros(here),
        accounts=accounts,
        pools=pools,
        counts=np.zeros((*here, 2)),
        begun=np.zeros(sensors, np.int64),
    )


@jit()
def harmonics(seasons: Any, t: int) -> Any:
    """Return sine and cosine of each season at round t, in turn."""
    waves, angles = np.empty(2 * seasons.size), 2 * np.pi * t / seasons
    waves[0::2], waves[1::2] = np.sin(angles), np.cos(angles)
    return waves


@jit()
def row_of(model: Any, now: Any, before: Any, level: Any, waves: Any) -> Any:
    """Return z of a model: windows now (in joint models, also before), less the level; seasons."""
    if is_joint(model, now.size):
        return np.concatenate((now - level, before - level, waves))
    return np.concatenate((now - level, waves))


@jit()
def is_joint(model: Any, sensors: int) -> bool:
    """Whether the model contains the windows of earlier rounds."""
    return model.moments.shape[1] >= 2 * sensors


@jit()
def expect(
    state: Any, model: Any, rules: Any, now: Any, waves: Any, t: int, h: int, out: Any
) -> None:
    """Predict each sensor's window as if its worker had failed h rounds ago.

    `out` (2, n) receives the estimates, and the inflation of their errors by gaps.
    """
    slot, joint = (t - h) % len(state.windows), is_joint(model, now.size)
    level = state.levels[slot]
    z = row_of(model, now, state.windows[slot], level, waves)
    predict(model, h - 1 if joint else 0, z, rules.workers, out[0], out[1])
    out[0] += level
    if not joint:
        echo = model.products[0, h] / model.products[0, 0] * model.residual[slot]
        out[0] += np.where(np.isfinite(echo), echo, 0.0)


@jit()
def is_covered(inflation: float, allowed: float) -> bool:
    """Whether a guarantee covers gaps that raise the error by this factor."""
    return np.log(inflation) <= allowed + HARMLESS


@jit()
def follow(tolerance: Any, h: int, i: int, inflation: float) -> None:
    """Move the limit on the inflation by gaps, so that a share `RARE` of the rounds exceeds it."""
    limit = tolerance[h, i]
    if is_covered(inflation, limit):
        tolerance[h, i] = max(limit - STEP * RARE, 0.0)
    else:
        tolerance[h, i] = min(limit + STEP * (1 - RARE), np.log(inflation))


@jit()
def look_back(
    state: Any, model: Any, risk: Any, rules: Any, now: Any, waves: Any, t: int, out: Any
) -> None:
    """Shadow-predict the current window at every horizon, and book the outcomes.

    A decision becomes `UNCOVERED`, and is not counted, if it does not cover the actual gaps.
    """
    horizons, n = state.accounts.shape[:2]
    for h in range(min(horizons, t)):
        slot = (t - h - 1) % len(state.windows)
        expect(state, model, rules, now, waves, t, h + 1, out[h])
        inflation = out[h, 1]
        error, decisions = np.abs(now - out[h, 0]), state.decisions[slot, h]
        wrong = np.where(error > rules.epsilon, 1.0, 0.0 * error)
        for i in range(n):
            covered = is_covered(inflation[i], state.allowed[slot, h, i])
            if decisions[i] > 0 and not covered:
                decisions[i] = UNCOVERED
            if np.isnan(error[i]):
                continue
            if decisions[i] == 2:
                state.counts[h, i, 0] += 1
                state.counts[h, i, 1] += wrong[i]
            if model.scale[0, i] > 0:
                y = np.log(error[i] / (model.scale[0, i] * inflation[i]) + FLOOR)
                learn_outcome(risk, slot, h, i, y, wrong[i])
                if risk.features[slot, h, i, 0] == 1.0:
                    follow(state.tolerance, h, i, inflation[i])
        learn(wrong, decisions, state.accounts[h], state.pools[h], rules.delta, pool_unit(n))


@jit()
def look_ahead(state: Any, model: Any, risk: Any, rules: Any, now: Any, waves: Any, t: int) -> None:
    """Certify which sensors could be lost from now on, and for how long."""
    horizons, n = state.accounts.shape[:2]
    slot, before = t % len(state.windows), (t - 1) % len(state.windows)
    usable = (model.scale[0] > 0) & ~np.isnan(now)
    proposed, seasonal = np.zeros(n, np.bool_), np.zeros(SEASONAL)
    seasonal[: min(waves.size, SEASONAL)] = waves[:SEASONAL]
    for h in range(horizons):
        average = risk.fast[h].mean()
        risk.features[slot, h, :, 0] = usable
        risk.risk[slot, h] = -1.0
        for i in range(n):
            proposed[i] = False
            if not usable[i]:
                continue
            scale, features = model.scale[0, i], risk.features[slot, h, i]
            change = abs(now[i] - state.windows[before, i]) / scale
            height = min(max((now[i] - state.level[0, i]) / scale, -HIGHEST), HIGHEST)
            features[1], features[2], features[3] = risk.fast[h, i], risk.slow[h, i], average
            features[4] = 0.0 if np.isnan(change) else np.log(change + FLOOR)
            features[5], features[6] = height, abs(height)
            features[7:] = seasonal
            limit = np.log(rules.epsilon[i] / scale + FLOOR)
            proposed[i] = propose(risk, slot, h, i, limit, rules.delta)
        decisions = state.decisions[slot, h]
        certify(proposed, state.accounts[h], state.pools[h], rules.delta, pool_unit(n), decisions)
        state.allowed[slot, h] = state.tolerance[h]


@jit()
def recover(state: Any, model: Any, risk: Any, rules: Any, t: int, expected: Any, out: Any) -> None:
    """Fill `out` (n, 3) for missing sensors: estimate, half-width, and whether it was certified."""
    n, horizons = state.missing.size, len(state.accounts)
    out[:, :2], out[:, 2] = np.nan, 0.0
    for i in range(n):
        h = min(state.missing[i], horizons)
        if h == 0 or t < h:
            continue
        out[i, 0] = expected[h - 1, 0, i]
        if state.missing[i] > horizons:
            continue
        slot = (t - h) % len(state.windows)
        if risk.features[slot, h - 1, i, 0] == 1.0:
            width = half_width(risk, slot, h - 1, i, rules.delta)
            out[i, 1] = model.scale[0, i] * expected[h - 1, 1, i] * width
        out[i, 2] = 1.0 if state.decisions[slot, h - 1, i] == 2 else 0.0


@jit()
def fill_gaps(state: Any, model: Any, now: Any, waves: Any, t: int) -> Any:
    """Return the window with the model's values in its gaps."""
    filled, before = now.copy(), (t - 1) % len(state.windows)
    if t == 0 or not np.isnan(now).any():
        return filled
    z = row_of(model, now, state.windows[before], state.levels[before], waves)
    if model.scale[0].max() > 0:
        z = conditional(model.precision[0, 0], z, np.isnan(z))
    for i in np.flatnonzero(np.isnan(now)):
        filled[i] = state.levels[before, i] + (0.0 if np.isnan(z[i]) else z[i])
        if abs(filled[i]) >= LARGEST:  # values filled from very large ones could grow without end
            filled[i] = state.level[0, i]
    return filled


@jit()
def welcome(state: Any, model: Any, rules: Any, now: Any) -> None:
    """Begin with sensors that send their first window, which also fills their earlier rounds."""
    first = (state.level[1] == 0) & ~np.isnan(now)
    for i in np.flatnonzero(first):
        for k in np.flatnonzero(~np.isnan(state.filled[:, i])):
            state.filled[k, i] = now[i]
    if first.any() and state.clock[1] >= FIRST_FIT:
        absorb(model, rules.forget, state.clock[1] - state.clock[2])
        state.clock[2] = state.clock[1]
        begin_late(model, first)


@jit()
def remember(state: Any, model: Any, rules: Any, now: Any, waves: Any, t: int) -> None:
    """Put the window into rings, means and moments, with its gaps filled by the model."""
    n, slot, horizons = now.size, t % len(state.windows), len(state.accounts)
    joint, filled = is_joint(model, n), fill_gaps(state, model, now, waves, t)
    welcome(state, model, rules, now)
    for i in range(n):
        if not np.isnan(now[i]):
            state.level[1, i] = state.level[1, i] * (1 - LEVEL_FORGET) + 1
            state.level[0, i] += (now[i] - state.level[0, i]) / state.level[1, i]
        elif np.isnan(filled[i]):
            filled[i] = state.level[0, i]
    state.windows[slot], state.filled[slot] = now, filled
    state.levels[slot] = state.level[0]
    for h in range(1, (horizons if joint else 1) + 1):
        before = state.filled[(t - h) % len(state.windows)]
        if np.isnan(before[0]):  # there was no window, and the model learns no pair of it
            model.weight[h - 1] *= 1 - rules.forget
            model.recent_weight[h - 1] *= 1 - rules.forget
            continue
        z = row_of(model, filled, before, state.level[0], waves)
        learn_moments(model, h - 1, state.clock[1] - state.clock[2], z, rules.forget)
    if not joint and t > 0:
        before, apart = (t - 1) % len(state.windows), np.empty((2, n))
        z = row_of(model, now, now, state.levels[before], waves)
        predict(model, 0, z, rules.workers, apart[0], apart[1])
        model.residual[slot] = z[:n] - apart[0]
        for h in range(min(horizons, t) + 1):
            product = model.residual[slot] * model.residual[(t - h) % len(state.windows)]
            for k in np.flatnonzero(np.isfinite(product)):
                faded = (1 - rules.forget) * model.products[2, h, k]
                model.products[2, h, k] = faded + product[k]


@jit()
def pass_empty(state: Any, model: Any, risk: Any, t: int) -> None:
    """Put a round without any window into the rings, without learning or certifying anything."""
    slot = t % len(state.windows)
    state.windows[slot] = state.filled[slot] = model.residual[slot] = np.nan
    state.levels[slot] = state.level[0]
    state.decisions[slot] = 0
    state.allowed[slot] = 0.0
    risk.features[slot] = 0.0
    risk.risk[slot] = -1.0


@jit()
def is_due(seen: int, last: int, horizons: int, every: int) -> bool:
    """Whether to fit the model: first after `FIRST_FIT` windows, then at growing intervals.

    At least H windows lie between two fits, so that the fit in use has no window after a failure.
    """
    if seen <= FIRST_FIT:
        return seen == FIRST_FIT or seen - last >= every
    return seen - last >= min(every, max(horizons, last // 2))


@jit()
def advance(
    state: Any, model: Any, risk: Any, rules: Any, windows: Any, recovered: Any, history: Any
) -> None:
    """Process windows, one row per round.

    `recovered` (rounds, n, 3) is filled by `recover`. The arrays of `history`, (rounds, H, n) each
    unless they are empty, receive the earlier decisions on each window and its shadow predictions.
    """
    horizons, n = state.accounts.shape[:2]
    decisions, shadow = history
    expected = np.empty((horizons, 2, n))
    for r in range(len(windows)):
        t, now = state.clock[0], windows[r]
        expected[:], waves = np.nan, harmonics(rules.seasons, t)
        if state.missing.min() < horizons or not np.isnan(now).all():
            look_back(state, model, risk, rules, now, waves, t, expected)
        state.missing[:] = np.where(np.isnan(now), state.missing + 1, 0)
        recover(state, model, risk, rules, t, expected, recovered[r])
        if len(decisions):
            shadow[r] = expected[:, 0]
            for h in range(horizons):
                decisions[r, h] = state.decisions[(t - h - 1) % len(state.windows), h]
        state.clock[0] = t + 1
        if np.isnan(now).all():
            pass_empty(state, model, risk, t)
            continue
        remember(state, model, rules, now, waves, t)
        look_ahead(state, model, risk, rules, now, waves, t)
        state.clock[1] += 1
        if not is_due(state.clock[1], state.clock[3], horizons, rules.every):
            continue
        absorb(model, rules.forget, state.clock[1] - state.clock[2])
        state.clock[2:] = state.clock[1]
        if state.clock[1] >= FIRST_FIT:
            refit(model, rules.workers)
            refit_weights(risk)
