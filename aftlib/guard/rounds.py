"""The guard's rounds; windows one by one or many at once give the same state.

A round has four steps (`Rounds.advance`). It looks back: it predicts the window as if each sensor
had been lost 1 … H rounds ago, and books the outcomes of the decisions of those rounds. A missing
window's estimate is the prediction for the round of its loss. Then the round learns the window, and
looks ahead: it decides which sensors may be lost from now on.

What the next H rounds need of a round, such as its decisions, is stored in rings of H + 1 slots:
round t has slot t mod (H + 1).

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
from typing import Self

import numpy as np

from aftlib.guard.accounts import CERTIFIED, Accounts
from aftlib.guard.estimator import LARGEST, Recovered, Rules
from aftlib.guard.prediction import FIRST_FIT, Model
from aftlib.guard.predictor import Predictor, predict_each
from aftlib.guard.proposal import Risk, log_ratio

HIGHEST = 100.0
"""Largest deviation, in standard deviations, that enters the regression of the risk, so that one
extreme value does not dominate it."""
UNCOVERED = -1
"""Decision whose guarantee does not cover the gaps that came."""
RARE = 0.01
"""Share of the rounds whose gaps no guarantee covers."""
STEP = 0.1
"""How fast the limit on the inflation follows."""
HARMLESS = 0.01
"""Logarithm of an inflation that is always covered."""
GAIN = 0.005
"""γ of the half-widths. After each error that one misses, the next ones leave out a share γ(1 − δ)
less of the last errors, and γδ more after each that one covers. Where nothing may be left out, a
half-width is infinite. So at most δT + δ/γ + 1 of T errors are missed, whatever the data."""
LEVEL_FORGET = 1 / 100
"""The levels forget faster than the model, so that they follow a drift."""


@dataclass
class State:
    """The state of a guard, besides its accounts, its model and its risks.

    Index i of the last axis is sensor i; index h − 1 of an axis H is horizon h; an axis H + 1 is a
    ring with a slot per round.
    """

    rounds: int  # so far
    phase: float  # of the seasons at round 0, in rounds
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
    number: np.ndarray  # (H, n) certified rounds with known outcome
    errors: np.ndarray  # (H, n) of these, the wrong ones
    outside: np.ndarray  # (H, n) share of the last errors above a half-width

    @classmethod
    def begin(cls, sensors: int, horizons: int, delta: float) -> Self:
        """Return the state before the first round."""
        ring = horizons + 1, sensors
        each = horizons, sensors
        return cls(
            rounds=0,
            phase=0.0,
            seen=0,
            fitted=0,
            level=np.zeros(sensors),
            level_weight=np.zeros(sensors),
            windows=np.full(ring, np.nan),
            filled=np.full(ring, np.nan),
            levels=np.zeros(ring),
            missing=np.zeros(sensors, np.int64),
            decisions=np.zeros((horizons + 1, *each), np.int64),
            allowed=np.zeros((horizons + 1, *each)),
            tolerance=np.zeros(each),
            number=np.zeros(each),
            errors=np.zeros(each),
            outside=np.full(each, delta),
        )

    @property
    def slot(self) -> int:
        """Slot of the round that is being processed."""
        return self.rounds % len(self.windows)

    def slots_before(self, number: int) -> np.ndarray:
        """Return the slots of the rounds 1 … `number` before this one."""
        return (self.rounds - 1 - np.arange(number)) % len(self.windows)


@dataclass(frozen=True)
class Lookback:
    """Predictions of a window as if each sensor had been lost 1 … H rounds ago, shape (H, n).

    Both arrays are NaN for losses before the first round.
    """

    shadow: np.ndarray  # the shadow predictions
    inflation: np.ndarray  # factor by which gaps raise the standard deviation of their errors


@dataclass
class Rounds:
    """The whole state of a guard, and the step from one round to the next."""

    rules: Rules
    state: State
    accounts: Accounts
    model: Model
    risk: Risk
    predictor: Predictor | None = None

    @classmethod
    def begin(cls, rules: Rules, predictor: Predictor | None = None) -> Self:
        """Return the state before the first round."""
        n = rules.workers.size
        horizons = rules.horizons
        return cls(
            rules,
            State.begin(n, horizons, rules.delta),
            Accounts.open(n, rules.delta, horizons),
            Model.begin(n, horizons, rules.seasons.size, most_between_fits(rules)),
            Risk.begin(n, horizons),
            predictor,
        )

    def advance(self, now: np.ndarray) -> tuple[Recovered, np.ndarray]:
        """Process a window; return the estimates of missing sensors and all shadow predictions.

        The shadow predictions have shape (H, n); NaN before there are so many rounds.
        """
        state = self.state
        absent = np.isnan(now)
        empty = bool(absent.all())
        waves = self._harmonics()
        nothing_due = empty and state.missing.min() >= self.rules.horizons
        past = 0 if nothing_due else min(self.rules.horizons, state.rounds)
        look = self._look_back(now, waves, past)
        if past:
            self._book_outcomes(now, look, past)
        state.missing = np.where(absent, state.missing + 1, 0)
        recovered = self._recover(np.flatnonzero(absent), look)  # if the decisions cover the gaps
        if empty:
            self._forget()
        else:
            self._learn(now, absent, waves)
        self._look_ahead(now, absent, waves)
        if self.predictor is not None:
            self._teach(self.predictor)
        state.rounds += 1
        state.seen += not empty
        if not empty and self._is_due():
            self.model.absorb(state.seen - state.fitted)
            state.fitted = state.seen
            if state.seen >= FIRST_FIT:
                self.model.refit(self.rules.workers)
                self.risk.refit()
        return recovered, look.shadow

    def _harmonics(self) -> np.ndarray:
        """Return sine and cosine of each season at this round, in turn."""
        angles = 2 * np.pi * (self.state.rounds + self.state.phase) / self.rules.seasons
        return np.stack([np.sin(angles), np.cos(angles)], axis=1).ravel()

    def _look_back(self, now: np.ndarray, waves: np.ndarray, past: int) -> Lookback:
        """Shadow-predict the current window at the horizons 1 … `past`."""
        shadow = np.full((self.rules.horizons, now.size), np.nan)
        inflation = shadow.copy()
        if past:
            slots = self.state.slots_before(past)
            level = self.state.levels[slots]
            z = self.model.rows_of(now, self.state.windows[slots], level, waves)
            shadow[:past], inflation[:past] = self.model.predict(z, self.rules.workers)
            shadow[:past] += level
            if not self.model.joint:
                shadow[:past] += self.model.echoes(slots)
            if self.predictor is not None:
                last = self.state.windows[self.state.slots_before(self.rules.horizons)[::-1]]
                windows = np.vstack([last, now])
                own = predict_each(self.predictor, windows, self.rules.workers, past)
                shadow[:past] = np.where(np.isfinite(own), own, shadow[:past])
        return Lookback(shadow, inflation)

    def _teach(self, predictor: Predictor) -> None:
        """Let a predictor learn the window of H rounds ago, from before each covered failure."""
        window = self.state.windows[self.state.slots_before(self.rules.horizons)[-1]]
        if not np.isnan(window).all():
            predictor.learn(window.copy())

    def _book_outcomes(self, now: np.ndarray, look: Lookback, past: int) -> None:
        """Learn the errors of the shadow predictions at the horizons 1 … `past`.

        A decision becomes `UNCOVERED`, and is not counted, if it does not cover the actual gaps.
        """
        state = self.state
        slots = state.slots_before(past)
        due = slots, np.arange(past)  # what was decided h rounds ago for horizon h
        inflation = look.inflation[:past]
        log_inflation = np.log(inflation)
        error = np.abs(now - look.shadow[:past])
        wrong = np.where(error > self.rules.epsilon, 1.0, 0.0 * error)  # NaN where unknown

        decisions = state.decisions[due]
        rare = log_inflation > state.allowed[due] + HARMLESS
        decisions[(decisions > 0) & rare] = UNCOVERED
        state.decisions[due] = decisions
        counted = ~np.isnan(error) & (decisions == CERTIFIED)
        state.number[:past] += counted
        state.errors[:past] += np.where(counted, wrong, 0.0)
        self.accounts.book(decisions, wrong)

        scale = self.model.scale
        scored = ~np.isnan(error) & (scale > 0)
        y = log_ratio(error, scale * inflation)
        missed = self.risk.learn(slots, scored, y, state.outside[:past])
        state.outside[:past] += np.nan_to_num(GAIN * (self.rules.delta - missed))
        limit = state.tolerance[:past]
        lower = np.maximum(limit - STEP * RARE, 0.0)
        higher = np.minimum(limit + STEP * (1 - RARE), log_inflation)
        followed = np.where(log_inflation <= limit + HARMLESS, lower, higher)
        state.tolerance[:past] = np.where(scored & self.risk.was_usable(slots), followed, limit)

    def _recover(self, gone: np.ndarray, look: Lookback) -> Recovered:
        """Return the estimates of the sensors `gone`, from the horizons of their losses."""
        state = self.state
        horizons = self.rules.horizons
        value = np.full(state.missing.size, np.nan)
        half_width = value.copy()
        certified = np.zeros(value.size, bool)
        gone = gone[state.rounds >= np.minimum(state.missing[gone], horizons)]
        value[gone] = look.shadow[np.minimum(state.missing[gone], horizons) - 1, gone]
        gone = gone[state.missing[gone] <= horizons]
        if gone.size:
            h = state.missing[gone] - 1
            slot = (state.rounds - h - 1) % len(state.windows)
            width = self.risk.half_widths(slot, h, gone, state.outside[h, gone])
            half_width[gone] = self.model.scale[gone] * look.inflation[h, gone] * width
            certified[gone] = state.decisions[slot, h, gone] == CERTIFIED
        return Recovered(value, half_width, certified)

    def _learn(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> None:
        """Put the window into rings, means and moments, with its gaps filled by the model."""
        state = self.state
        model = self.model
        filled = self._fill_gaps(now, absent, waves)
        # a sensor's first window replaces what filled its gaps in the rounds before
        first = (state.level_weight == 0) & ~absent
        if first.any():
            state.filled = np.where(first & ~np.isnan(state.filled), now, state.filled)
        weight = state.level_weight * (1 - LEVEL_FORGET) + 1
        state.level_weight = np.where(absent, state.level_weight, weight)
        state.level = np.where(absent, state.level, state.level + (now - state.level) / weight)
        filled = np.where(np.isnan(filled), state.level, filled)
        state.windows[state.slot] = now
        state.filled[state.slot] = filled
        state.levels[state.slot] = state.level
        before = state.filled[state.slots_before(len(model.moments))]
        z = model.rows_of(filled, before, state.level, waves)
        seen = ~np.isnan(before[:, 0])  # else the model learns no pair of it
        model.learn_rows(state.seen - state.fitted, z, seen)
        if not model.joint and state.rounds > 0:
            last = state.levels[state.slots_before(1)]
            z = model.rows_of(now, now[np.newaxis], last, waves)
            values, _ = model.predict(z, self.rules.workers)
            past = min(self.rules.horizons, state.rounds)
            slots = np.append(state.slot, state.slots_before(past))
            model.learn_residual(z[0, : now.size] - values[0], slots)

    def _forget(self) -> None:
        """Put a round without any window into the rings; nothing is learned."""
        state = self.state
        state.windows[state.slot] = np.nan
        state.filled[state.slot] = np.nan
        state.levels[state.slot] = state.level
        self.model.residual[state.slot] = np.nan

    def _fill_gaps(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> np.ndarray:
        """Return the window with the model's values in its gaps."""
        state = self.state
        if state.rounds == 0 or not absent.any():
            return now
        before = state.slots_before(1)
        level = state.levels[before[0]]
        z = self.model.fill(self.model.rows_of(now, state.windows[before], level, waves)[0])
        values = level + np.nan_to_num(z[: now.size], nan=0.0, posinf=np.inf, neginf=-np.inf)
        # values filled from very large ones could grow without end
        values = np.where(np.abs(values) >= LARGEST, state.level, values)
        return np.where(absent, values, now)

    def _look_ahead(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> None:
        """Certify which sensors could be lost from now on, and for how long."""
        state = self.state
        scale = self.model.scale
        usable = (scale > 0) & ~absent
        before = state.windows[state.slots_before(1)[0]]
        change = log_ratio(np.abs(now - before), scale)
        with np.errstate(divide="ignore", invalid="ignore"):  # such sensors are not usable
            level = np.clip((now - state.level) / scale, -HIGHEST, HIGHEST)
        self.risk.write_features(state.slot, usable, change, level, waves)
        limit = log_ratio(self.rules.epsilon, scale)
        budget = self.accounts.relative_budget()
        proposed = self.risk.propose(state.slot, limit, budget, self.rules.delta)
        state.decisions[state.slot] = self.accounts.certify(proposed)
        state.allowed[state.slot] = state.tolerance

    def _is_due(self) -> bool:
        """Whether to fit the model: first after `FIRST_FIT` windows, then at growing intervals.

        At least H windows lie between two fits. So the fit in use, the last but one, has no window
        after a failure.
        """
        state = self.state
        since = state.seen - state.fitted
        every = most_between_fits(self.rules)
        if state.seen <= FIRST_FIT:
            return state.seen == FIRST_FIT or since >= every
        return since >= min(every, max(self.rules.horizons, state.fitted // 2))


def most_between_fits(rules: Rules) -> int:
    """Return the most windows between two fits, of which the model stores the rows.

    A fit costs O(n³) and a window O(n²), so a guard of many sensors fits less often.
    """
    return max(rules.horizons, rules.workers.size // 3)
