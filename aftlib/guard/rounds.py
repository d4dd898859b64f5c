"""The guard's rounds; windows one by one or many at once give the same state.

A round has four steps (`Rounds.advance`). It looks back: it predicts the window as if each sensor
had been lost 1 … H rounds ago, and books the outcomes of the decisions of those rounds. A missing
window's estimate is the prediction for the round of its loss. Then the round learns the window, and
looks ahead: it decides which sensors may be lost from now on. Rings store what the next H rounds
need of a round, such as its decisions, at the place `rounds` mod (H + 1).

Gaps are normal. A window is predicted from the sensors that are there, in a real outage and in the
shadow prediction alike, so that an account counts errors under the gaps that occur. The inflation
is the factor by which gaps raise the standard deviation of an error. A guarantee covers gaps whose
inflation is at most a limit. This limit follows the inflations so that a share `RARE` of the rounds
is above it. A round above the limit is withdrawn. So guarantees cover the kind of gaps under which
errors were counted. Two workers that fail at once are not covered unless one of them is often
missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import aftlib.guard.prediction as prediction
import aftlib.guard.proposal as proposal
from aftlib.guard.accounts import CERTIFIED, certify, learn, new_accounts
from aftlib.guard.prediction import IN_USE

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
FORGET = 1 / 600
"""Share of its memory that the model forgets per window: it remembers about 600."""


@dataclass
class State:
    """The state of a guard, besides its model and its risks; rings hold the last H + 1 rounds."""

    rounds: int  # so far
    seen: int  # of these, those in which a window came
    fitted: int  # of these, those that had come at the last fit
    level: np.ndarray  # (n,) forgetting mean of each sensor
    level_weight: np.ndarray  # (n,) and its weight
    windows: np.ndarray  # (H + 1, n) NaN where missing
    filled: np.ndarray  # (H + 1, n) the same with the model's values in the gaps
    levels: np.ndarray  # (H + 1, n) means as they were after each round
    missing: np.ndarray  # (n,) rounds since each sensor was last there
    decisions: np.ndarray  # (H + 1, H, n)
    allowed: np.ndarray  # (H + 1, H, n) `tolerance` at these decisions
    tolerance: np.ndarray  # (H, n) log inflation by gaps that a guarantee covers
    accounts: np.ndarray  # (H, n)
    pools: np.ndarray  # (H,)
    number: np.ndarray  # (H, n) certified rounds with known outcome
    errors: np.ndarray  # (H, n) of these, the wrong ones


@dataclass(frozen=True)
class Rules:
    """The parameters of a guard."""

    epsilon: np.ndarray  # (n,)
    delta: float
    workers: np.ndarray  # (n,) number of each sensor's worker
    seasons: np.ndarray  # periods in rounds
    every: int  # most windows between two fits, of which the model stores the rows


@dataclass(frozen=True)
class Recovered:
    """Estimates of the missing windows, one row per round.

    Attributes
    ----------
    estimate : ndarray, shape (rounds, n)
        Estimates of the missing windows; NaN for the others, or where nothing is known yet.
    half_width : ndarray, shape (rounds, n)
        Half-width of this one estimate: a share 1 − δ of the last comparable errors were within it.
        It may be above ε, which is a limit for all certified estimates together. NaN where too few
        errors are known.
    declared : ndarray of bool, shape (rounds, n)
        Whether an error of at most ε was guaranteed before the loss.
    """

    estimate: np.ndarray
    half_width: np.ndarray
    declared: np.ndarray


def new_state(sensors: int, horizons: int) -> State:
    """Return the state before the first round."""
    ring, here = (horizons + 1, sensors), (horizons, sensors)
    accounts, pools = new_accounts(sensors, horizons)
    return State(
        rounds=0, seen=0, fitted=0, level=np.zeros(sensors), level_weight=np.zeros(sensors),
        windows=np.full(ring, np.nan), filled=np.full(ring, np.nan), levels=np.zeros(ring),
        missing=np.zeros(sensors, np.int64), decisions=np.zeros((horizons + 1, *here), np.int64),
        allowed=np.zeros((horizons + 1, *here)), tolerance=np.zeros(here), accounts=accounts,
        pools=pools, number=np.zeros(here), errors=np.zeros(here),
    )  # fmt: skip


class Rounds:
    """The state of a guard with its model and risks, and the step from one round to the next."""

    def __init__(
        self, rules: Rules, state: State, model: prediction.Model, risk: proposal.Risk
    ) -> None:
        self.rules, self.state, self.model, self.risk = rules, state, model, risk

    @classmethod
    def begin(cls, rules: Rules, horizons: int) -> Rounds:
        """Return the state before the first round."""
        n = rules.workers.size
        model = prediction.new_model(n, horizons, rules.seasons.size, rules.every)
        return cls(rules, new_state(n, horizons), model, proposal.new_risk(n, horizons))

    @property
    def horizons(self) -> int:
        """Number H of horizons."""
        return len(self.state.accounts)

    @property
    def joint(self) -> bool:
        """Whether the model contains the windows of earlier rounds."""
        return self.model.moments.shape[1] >= 2 * self.rules.workers.size

    # Where nothing is known yet, steps divide by zero and compare NaN; each treats the results.
    @np.errstate(all="ignore")
    def advance(self, now: np.ndarray) -> tuple[Recovered, np.ndarray]:
        """Process a window; return the estimates of missing sensors and all shadow predictions.

        The shadow predictions have shape (H, n); NaN before there are so many rounds.
        """
        state, horizons = self.state, self.horizons
        absent = np.isnan(now)
        empty, waves = bool(absent.all()), self._harmonics()
        shadow, inflation = np.full((2, horizons, now.size), np.nan)
        if state.rounds and not (empty and state.missing.min() >= horizons):
            self._look_back(now, waves, shadow, inflation)
        state.missing = np.where(absent, state.missing + 1, 0)
        # after `_look_back`, which withdraws decisions
        estimates = self._recover(np.flatnonzero(absent), shadow, inflation)
        if empty:
            self._forget()
        else:
            self._remember(now, absent, waves)
        self._look_ahead(now, absent, waves)
        state.rounds += 1
        state.seen += not empty
        if not empty and self._is_due():
            prediction.absorb(self.model, FORGET, state.seen - state.fitted)
            state.fitted = state.seen
            if state.seen >= prediction.FIRST_FIT:
                prediction.refit(self.model, self.rules.workers)
                proposal.refit_weights(self.risk)
        return estimates, shadow

    def _slots(self) -> np.ndarray:
        """Return the places in the rings of the rounds 1 … min(H, t) before this round t."""
        t = self.state.rounds
        return (t - 1 - np.arange(min(self.horizons, t))) % (self.horizons + 1)

    def _harmonics(self) -> np.ndarray:
        """Return sine and cosine of each season at this round, in turn."""
        angles = 2 * np.pi * self.state.rounds / self.rules.seasons
        return np.stack([np.sin(angles), np.cos(angles)], axis=1).ravel()

    def _rows(
        self, now: np.ndarray, before: np.ndarray, level: np.ndarray, waves: np.ndarray
    ) -> np.ndarray:
        """Return a row z for each row of `before`: windows now and before, less level; seasons.

        Models that are not joint have no windows before; then only the number of rows counts.
        """
        n, z = now.size, np.empty((len(before), self.model.moments.shape[1]))
        z[:, :n] = now - level
        if self.joint:
            z[:, n : 2 * n] = before - level
        z[:, z.shape[1] - waves.size :] = waves
        return z

    def _look_back(
        self, now: np.ndarray, waves: np.ndarray, shadow: np.ndarray, inflation: np.ndarray
    ) -> None:
        """Shadow-predict the current window at every horizon, and book the outcomes.

        `shadow` and `inflation` (H, n) are filled with the predictions and the inflation of their
        errors by gaps. A decision becomes `UNCOVERED`, and is not counted, if it does not cover the
        actual gaps.
        """
        state, model, risk, rules = self.state, self.model, self.risk, self.rules
        slots = self._slots()
        k = len(slots)
        places = slots, np.arange(k)
        level = state.levels[slots]
        z = self._rows(now, state.windows[slots], level, waves)
        shadow[:k], inflation[:k] = prediction.predict(model, z, rules.workers)
        shadow[:k] += level
        if not self.joint:
            echo = model.echo[IN_USE, 1 : k + 1] / model.echo[IN_USE, 0] * model.residual[slots]
            shadow[:k] += np.where(np.isfinite(echo), echo, 0.0)

        error, factor = np.abs(now - shadow[:k]), inflation[:k]
        known = ~np.isnan(error)
        wrong = np.where(error > rules.epsilon, 1.0, 0.0 * error)  # NaN where unknown
        log_factor = np.log(factor)
        decisions = state.decisions[places]
        decisions[(decisions > 0) & (log_factor > state.allowed[places] + HARMLESS)] = UNCOVERED
        state.decisions[places] = decisions
        counted = known & (decisions == CERTIFIED)
        state.number[:k] += counted
        state.errors[:k] += np.where(counted, wrong, 0.0)
        scale = model.scale[IN_USE]
        scored = known & (scale > 0)
        y = np.log(error / (scale * factor) + proposal.FLOOR)
        proposal.learn_outcomes(risk, slots, scored, y, wrong, rules.delta)
        usable = risk.features[slots, np.arange(k), :, proposal.USABLE] == 1
        limit = state.tolerance[:k]
        lower = np.maximum(limit - STEP * RARE, 0.0)
        higher = np.minimum(limit + STEP * (1 - RARE), log_factor)
        followed = np.where(log_factor <= limit + HARMLESS, lower, higher)
        state.tolerance[:k] = np.where(scored & usable, followed, limit)
        learn(wrong, decisions, state.accounts[:k], state.pools[:k], rules.delta)

    def _recover(self, gone: np.ndarray, shadow: np.ndarray, inflation: np.ndarray) -> Recovered:
        """Return the estimates of the sensors `gone`, from the horizons of their losses."""
        state, t = self.state, self.state.rounds
        value, half_width = np.full((2, shadow.shape[1]), np.nan)
        certified = np.zeros(shadow.shape[1], bool)
        gone = gone[t >= np.minimum(state.missing[gone], self.horizons)]
        value[gone] = shadow[np.minimum(state.missing[gone], self.horizons) - 1, gone]
        gone = gone[state.missing[gone] <= self.horizons]
        if gone.size:
            h = state.missing[gone] - 1
            slot = (t - h - 1) % len(state.windows)
            width = proposal.half_widths(self.risk, slot, h, gone, self.rules.delta)
            half_width[gone] = self.model.scale[IN_USE, gone] * inflation[h, gone] * width
            certified[gone] = state.decisions[slot, h, gone] == CERTIFIED
        return Recovered(value, half_width, certified)

    def _remember(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> None:
        """Put the window into rings, means and moments, with its gaps filled by the model."""
        state, model, t = self.state, self.model, self.state.rounds
        slot, filled = t % len(state.windows), self._fill_gaps(now, absent, waves)
        # a sensor's first window replaces what filled its gaps in the rounds before
        first = (state.level_weight == 0) & ~absent
        if first.any():
            state.filled = np.where(first & ~np.isnan(state.filled), now, state.filled)
        weight = state.level_weight * (1 - LEVEL_FORGET) + 1
        state.level_weight = np.where(absent, state.level_weight, weight)
        state.level = np.where(absent, state.level, state.level + (now - state.level) / weight)
        filled = np.where(np.isnan(filled), state.level, filled)
        state.windows[slot], state.filled[slot], state.levels[slot] = now, filled, state.level
        horizons = self.horizons if self.joint else 1
        before = state.filled[(t - 1 - np.arange(horizons)) % len(state.windows)]
        z = self._rows(filled, before, state.level, waves)
        seen = ~np.isnan(before[:, 0])  # else the model learns no pair of it
        prediction.learn_rows(model, state.seen - state.fitted, z, seen, FORGET)
        if not self.joint and t > 0:
            z = self._rows(now, now[np.newaxis], state.levels[self._slots()[0]], waves)
            residual = z[0, : now.size] - prediction.predict(model, z, self.rules.workers)[0][0]
            model.residual[slot] = residual
            slots = (t - np.arange(min(self.horizons, t) + 1)) % len(state.windows)
            product = residual * model.residual[slots]
            sums = model.products[: len(slots)]
            faded = (1 - FORGET) * sums + product
            model.products[: len(slots)] = np.where(np.isfinite(product), faded, sums)

    def _forget(self) -> None:
        """Put a round without any window into the rings; nothing is learned."""
        state, slot = self.state, self.state.rounds % len(self.state.windows)
        state.windows[slot] = state.filled[slot] = self.model.residual[slot] = np.nan
        state.levels[slot] = state.level

    def _fill_gaps(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> np.ndarray:
        """Return the window with the model's values in its gaps."""
        state, model = self.state, self.model
        if state.rounds == 0 or not absent.any():
            return now
        before = self._slots()[:1]
        level = state.levels[before[0]]
        z = self._rows(now, state.windows[before], level, waves)[0]
        if model.scale[IN_USE].max() > 0:
            z = prediction.conditional(model.precision[IN_USE, 0], z, np.isnan(z))
        values = level + np.nan_to_num(z[: now.size], nan=0.0, posinf=np.inf, neginf=-np.inf)
        # values filled from very large ones could grow without end
        values = np.where(np.abs(values) >= LARGEST, state.level, values)
        return np.where(absent, values, now)

    def _look_ahead(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> None:
        """Certify which sensors could be lost from now on, and for how long."""
        state, risk, rules, t = self.state, self.risk, self.rules, self.state.rounds
        slot, before = t % len(state.windows), (t - 1) % len(state.windows)
        scale = self.model.scale[IN_USE]
        usable = (scale > 0) & ~absent
        change = np.log(np.abs(now - state.windows[before]) / scale + proposal.FLOOR)
        level = np.clip((now - state.level) / scale, -HIGHEST, HIGHEST)
        proposal.write_features(risk, slot, usable, change, level, waves)
        limit = np.log(rules.epsilon / scale + proposal.FLOOR)
        proposed = proposal.propose(risk, slot, limit, rules.delta)
        state.decisions[slot] = certify(proposed, state.accounts, state.pools, rules.delta)
        state.allowed[slot] = state.tolerance

    def _is_due(self) -> bool:
        """Whether to fit the model: first after `FIRST_FIT` windows, then at growing intervals.

        At least H windows lie between two fits. So the fit in use, the last but one, has no window
        after a failure.
        """
        since, every = self.state.seen - self.state.fitted, self.rules.every
        if self.state.seen <= prediction.FIRST_FIT:
            return self.state.seen == prediction.FIRST_FIT or since >= every
        return since >= min(every, max(self.horizons, self.state.fitted // 2))
