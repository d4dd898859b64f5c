"""The rounds of many guards: one per group of a stream, or that of a `Guard` alone.

The arrays have a leading axis of guards, so a round has NumPy's cost per call once for all of them.

A round looks back, learns and looks ahead (`Guards.advance`). Looking back, it predicts the window
as if each sensor had been lost 1 … H rounds ago, and books the outcomes of those rounds' decisions.
A missing sensor's estimate is the prediction for the round of its loss; beyond H rounds it is that
of horizon H, never certified. Then the round learns the window. Looking ahead, it decides which
sensors may be lost from now on. At last the window enters the rings, and due models are fitted.

Gaps are normal. A window is predicted from the sensors that are there, in a real outage and in the
shadow prediction alike. The inflation is the factor by which gaps raise the standard deviation of
an error. A guarantee covers gaps whose inflation is at most ρ*, which follows the inflations so
that a share `RARE` of the rounds is above it. Such a round is withdrawn, as the theorem of
`accounts` permits. So guarantees cover the kind of gaps under which errors were counted. Two
workers that fail at once are not covered unless one of them is often missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Self

import numpy as np

from aftlib.guard.accounts import CERTIFIED, Accounts, slack
from aftlib.guard.estimator import LARGEST, History, Recovered, Rules
from aftlib.guard.prediction import FIRST_FIT, JOINT, Model, most_between_fits
from aftlib.guard.predictor import Predictor, predict_each
from aftlib.guard.proposal import FEATURES, RESIDUALS, SEASONS, Risk, log_ratio
from aftlib.guard.state import State, at_horizons, pushed, type_of, views_of

HIGHEST = 100.0
"""Largest deviation, in σ, in the regression of the risk, so that no extreme value dominates it."""
UNCOVERED = -1
"""Decision whose guarantee does not cover the gaps that came."""
RARE = 0.01
"""Share of the rounds whose gaps no guarantee covers."""
INFLATION_STEP = 0.1
"""How fast log ρ* follows the inflations."""
HARMLESS = 0.01
"""Logarithm of an inflation that is always covered."""
WIDTH_STEP = 0.005
"""γ of the half-widths. A half-width leaves out the share `State.outside` of the last errors. An
error above it lowers the share by γ(1 − δ); any other raises it by γδ. Without a share above 0 the
half-width is infinite. So at most δT + δ/γ + 1 of T errors are missed, whatever the data."""
LEVEL_FORGET = 1 / 100
"""The levels forget faster than the model, so that they follow a drift."""
TOGETHER = 16
"""Most guards in one round, whose arrays a processor's cache can hold."""


class Guards:
    """Guards of the same rules, whose whole state is a row each of one structured array.

    `rows` has the type of `row_type`. It is changed in place and never copied, so it may lie in a
    file. `predictors` are either none or one per guard.
    """

    def __init__(
        self, rules: Rules, rows: np.ndarray, predictors: Sequence[Predictor] = ()
    ) -> None:
        self.rules = rules
        self.rows = rows
        self.predictors = predictors
        self.state = State(**views_of(rows["state"]))
        self.accounts = Accounts(**views_of(rows["accounts"]), delta=rules.delta)
        self.model = Model(**views_of(rows["model"]))
        self.risk = Risk(**views_of(rows["risk"]))

    def __reduce__(self) -> tuple[type[Self], tuple[Rules, np.ndarray, Sequence[Predictor]]]:
        """Return what a copy is made from; the views are made again."""
        return type(self), (self.rules, self.rows, self.predictors)

    @classmethod
    def begin(cls, rules: Rules, number: int = 1, predictors: Sequence[Predictor] = ()) -> Self:
        """Return guards as before the first round."""
        guards = cls(rules, np.zeros(number, row_type(rules)), predictors)
        for part, kind in PARTS.items():
            for each in fields(kind):
                if each.metadata.get("first"):  # all others are 0
                    guards.rows[part][each.name] = each.metadata["first"]
        guards.state.outside[...] = rules.delta
        guards.accounts.begin()
        return guards

    @contextmanager
    def select(self, members: np.ndarray) -> Iterator[Self]:
        """Give the guards at the ascending places `members` as a set, whose changes are theirs."""
        predictors = [self.predictors[g] for g in members] if self.predictors else ()
        first = members[0]
        adjacent = members[-1] - first + 1 == members.size
        rows = self.rows[first : first + members.size] if adjacent else self.rows[members]
        yield type(self)(self.rules, rows, predictors)
        if not adjacent:
            self.rows[members] = rows

    def update(self, windows: np.ndarray, members: np.ndarray) -> Recovered:
        """Process a window (m, n) of each of the guards at the ascending places `members` (m,)."""
        recovered = Recovered.empty(windows.shape)
        for first in range(0, members.size, TOGETHER):
            here = slice(first, first + TOGETHER)
            with self.select(members[here]) as guards:
                recovered.put(here, guards.advance(windows[here])[0])
        return recovered

    def skip(self, rounds: np.ndarray, members: np.ndarray) -> None:
        """Process `rounds` (m,) windows in which no sensor sent anything.

        It costs at most H + 1 windows. Then all rounds of the rings are alike.
        """
        most = self.rules.horizons + 1
        for done in range(min(most, rounds.max(initial=0))):
            here = members[rounds > done]
            self.update(np.full((here.size, self.rules.workers.size), np.nan), here)
        rest = np.maximum(rounds - most, 0)
        self.state.rounds[members] += rest
        self.state.away[members] += rest[:, np.newaxis]

    @property
    def recoverable(self) -> np.ndarray:
        """Whether window h from now would be certified if the loss begins now, (G, H, n)."""
        state = self.state
        horizons = self.rules.horizons
        away = state.away[:, np.newaxis]
        ahead = np.arange(horizons)[:, np.newaxis] + away
        g, _, i = np.ogrid[: len(ahead), :1, : self.rules.workers.size]
        within = np.minimum(ahead, horizons - 1)
        # between two rounds, index k of the ring is k rounds old
        decisions = state.decisions[g, np.minimum(away, horizons - 1), within, i]
        return np.asarray((ahead < horizons) & (decisions == CERTIFIED))

    @property
    def outcomes(self) -> np.ndarray:
        """Guarantees with known outcome, the wrong ones, and the slack, (3, G, H, n)."""
        state = self.state
        first = [slack(rounds, self.rules.delta) for rounds in state.rounds.tolist()]
        further = np.arange(self.rules.horizons) * (1 - self.rules.delta)
        bounds = np.add.outer(first, further)[..., np.newaxis]
        return np.stack([state.number, state.errors, np.broadcast_to(bounds, state.number.shape)])

    def advance(self, now: np.ndarray) -> tuple[Recovered, History]:
        """Process a window of each guard, (G, n).

        Each step reads the rings as of the round before. So outcomes are booked before `away`
        changes, estimates read the decisions before these move on, and the windows move on last.
        Returns the estimates of missing sensors and what is known of a loss of each, by guard.
        """
        state = self.state
        absent = np.isnan(now)
        empty = absent.all(1)
        waves = self._harmonics()
        past = np.minimum(self.rules.horizons, state.rounds)
        past[empty & (state.away.min(1) >= self.rules.horizons)] = 0  # nothing is due
        shadow, inflation = self._look_back(now, waves, past)
        history = History(self._book_outcomes(now, shadow, inflation), shadow)
        state.away[...] = np.where(absent, state.away + 1, 0)
        recovered = self._recover(absent, shadow, inflation)  # UNCOVERED certifies nothing
        filled = self._learn(now, absent, waves)
        self._look_ahead(now, absent, waves)
        self._teach()
        state.windows[...] = pushed(state.windows, now)
        state.filled[...] = pushed(state.filled, filled)
        state.levels[...] = pushed(state.levels, state.level)
        state.rounds[...] += 1
        state.seen[...] += ~empty
        self._fit()
        return recovered, history

    def _harmonics(self) -> np.ndarray:
        """Return sine and cosine of each season at this round, in turn, (G, 2k)."""
        rounds = self.state.rounds + self.state.phase
        angles = 2 * np.pi * rounds[:, np.newaxis] / self.rules.seasons
        return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(angles), -1)

    def _look_back(
        self, now: np.ndarray, waves: np.ndarray, past: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict the current window as if each sensor had been lost 1 … `past` (G,) rounds ago.

        Returns these shadow predictions, and the factors by which gaps raise the standard
        deviations of their errors; both have shape (G, H, n), NaN beyond `past`. Beyond `JOINT`
        sensors the model learns its residual.
        """
        state = self.state
        z = self.model.rows_of(now, state.windows, state.levels, waves)
        shadow, inflation = self.model.predict(z, past, self.rules.workers)
        residual = z[:, 0, : now.shape[1]] - shadow[:, 0]
        shadow += state.levels
        if not self.model.joint:
            shadow += self.model.echoes()
            self.model.learn_residual(np.where(past[:, np.newaxis] > 0, residual, np.nan))
        for g, predictor in enumerate(self.predictors):
            windows = np.vstack([state.windows[g, ::-1], now[g]])
            own = predict_each(predictor, windows, self.rules.workers, past[g])
            shadow[g, : past[g]] = np.where(np.isfinite(own), own, shadow[g, : past[g]])
        unknown = np.arange(self.rules.horizons) >= past[:, np.newaxis]
        shadow[unknown] = np.nan
        inflation[unknown] = np.nan
        return shadow, inflation

    def _book_outcomes(
        self, now: np.ndarray, shadow: np.ndarray, inflation: np.ndarray
    ) -> np.ndarray:
        """Learn the errors of the shadow predictions; return the decisions on them, (G, H, n).

        A decision that does not cover the actual gaps becomes `UNCOVERED`, and is not counted.
        """
        state = self.state
        error = np.abs(now[:, np.newaxis] - shadow)
        known = ~np.isnan(error)
        wrong = np.where(known, error > self.rules.epsilon, np.nan)

        decisions = at_horizons(state.decisions)  # a view, so `_recover` sees UNCOVERED in the ring
        log_inflation = np.log(inflation)
        uncovered = log_inflation > at_horizons(state.log_covered_then) + HARMLESS
        decisions[(decisions > 0) & uncovered] = UNCOVERED
        counted = known & (decisions == CERTIFIED)
        state.number[...] += counted
        state.errors[...] += np.where(counted, wrong, 0.0)
        self.accounts.book(decisions, wrong)

        scale = self.model.scale[:, np.newaxis]
        scored = known & (scale > 0)
        y = log_ratio(error, scale * inflation)
        used, missed = self.risk.learn(scored, y, state.outside)
        state.outside[...] += np.nan_to_num(WIDTH_STEP * (self.rules.delta - missed))
        covered = state.log_covered
        lower = np.maximum(covered - INFLATION_STEP * RARE, 0.0)
        higher = np.minimum(covered + INFLATION_STEP * (1 - RARE), log_inflation)
        followed = np.where(log_inflation <= covered + HARMLESS, lower, higher)
        covered[...] = np.where(used, followed, covered)
        return decisions.copy()

    def _recover(self, absent: np.ndarray, shadow: np.ndarray, inflation: np.ndarray) -> Recovered:
        """Return the estimates of the sensors `absent`, from the horizons of their losses."""
        state = self.state
        horizons = self.rules.horizons
        recovered = Recovered.empty(absent.shape)
        predicted = absent & (state.rounds[:, np.newaxis] >= np.minimum(state.away, horizons))
        g, i = np.nonzero(predicted)
        recovered.estimate[g, i] = shadow[g, np.minimum(state.away[g, i], horizons) - 1, i]
        g, i = np.nonzero(predicted & (state.away <= horizons))
        if g.size:
            at = state.away[g, i] - 1
            width = self.risk.half_widths(g, at, i, state.outside[g, at, i])
            scale = self.model.scale[g, i] * inflation[g, at, i]
            recovered.half_width[g, i] = scale * width
            recovered.certified[g, i] = state.decisions[g, at, at, i] == CERTIFIED
        return recovered

    def _learn(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> np.ndarray:
        """Put the windows into means and moments; return them with gaps filled by the model.

        Of a window in which no sensor came, nothing is learned, and it stays as it is.
        """
        state = self.state
        model = self.model
        there = np.asarray(~absent.all(1))
        filled = self._fill_gaps(now, absent, waves)
        # a sensor's first window replaces what filled its gaps in the rounds before
        first = ((state.level_weight == 0) & ~absent)[:, np.newaxis]
        if first.any():
            replaced = first & ~np.isnan(state.filled)
            state.filled[...] = np.where(replaced, now[:, np.newaxis], state.filled)
        weight = state.level_weight * (1 - LEVEL_FORGET) + 1
        level = state.level + (now - state.level) / weight
        state.level_weight[...] = np.where(absent, state.level_weight, weight)
        state.level[...] = np.where(absent, state.level, level)
        filled = np.where(np.isnan(filled) & there[:, np.newaxis], state.level, filled)
        before = state.filled[:, : model.weight.shape[1]]
        z = model.rows_of(filled, before, state.level[:, np.newaxis], waves)
        # a row of `filled` has all sensors or none, so one of them tells
        paired = ~np.isnan(before[..., 0]) & there[:, np.newaxis]
        model.learn_rows(state.seen - state.absorbed, z, there, paired)
        return filled

    def _fill_gaps(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> np.ndarray:
        """Return the windows with the model's values in their gaps."""
        state = self.state
        filled = now.copy()
        with_gaps = absent.any(1) & ~absent.all(1)
        for g in np.flatnonzero(with_gaps & (state.rounds > 0)).tolist():
            one = slice(g, g + 1)
            level = state.levels[one, :1]
            z = self.model.rows_of(now[one], state.windows[one, :1], level, waves[one])
            values = self.model.fill(g, z[0, 0])[: now.shape[1]]
            values = level[0, 0] + np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
            # values filled from very large ones could grow without end
            values = np.where(np.abs(values) >= LARGEST, state.level[g], values)
            filled[g] = np.where(absent[g], values, now[g])
        return filled

    def _look_ahead(self, now: np.ndarray, absent: np.ndarray, waves: np.ndarray) -> None:
        """Certify which sensors could be lost from now on, and for how long."""
        state = self.state
        scale = self.model.scale
        usable = (scale > 0) & ~absent
        change = log_ratio(np.abs(now - state.windows[:, 0]), scale)
        with np.errstate(divide="ignore", invalid="ignore"):  # such sensors are not usable
            deviation = np.clip((now - state.level) / scale, -HIGHEST, HIGHEST)
        features = self.risk.features_of(usable, change, deviation, waves)
        log_epsilon = log_ratio(self.rules.epsilon, scale)
        budget = self.accounts.relative_budget()
        proposed = self.risk.propose(features, log_epsilon, budget, self.rules.delta)
        self.risk.remember(features)
        state.decisions[...] = pushed(state.decisions, self.accounts.certify(proposed))
        state.log_covered_then[...] = pushed(state.log_covered_then, state.log_covered)

    def _teach(self) -> None:
        """Let predictors learn the window of H rounds ago, from before each covered failure."""
        for g, predictor in enumerate(self.predictors):
            window = self.state.windows[g, -1]
            if not np.isnan(window).all():
                predictor.learn(window.copy())

    def _fit(self) -> None:
        """Fit the models that are due: first after `FIRST_FIT` windows, then at growing intervals.

        At least H windows lie between two fits. So the fit in use, the last but one, has no window
        after a failure.
        """
        state = self.state
        most = most_between_fits(self.rules)
        interval = np.minimum(most, np.maximum(self.rules.horizons, state.absorbed // 2))
        interval[state.seen < FIRST_FIT] = most
        interval[state.seen == FIRST_FIT] = 1
        due = np.flatnonzero(state.seen - state.absorbed >= interval)
        if due.size:
            with self.select(due) as guards:
                guards.refit()

    def refit(self) -> None:
        """Use the last fit, and absorb the windows since then; from `FIRST_FIT` on, fit them."""
        state = self.state
        enough = state.seen >= FIRST_FIT
        self.model.refit(state.seen - state.absorbed, enough, self.rules.workers)
        self.risk.refit()
        state.absorbed[...] = state.seen


PARTS: dict[str, Any] = {"state": State, "accounts": Accounts, "model": Model, "risk": Risk}
"""Classes of the parts of a guard's row."""


def row_type(rules: Rules) -> np.dtype:
    """Return the type of a guard's row: all arrays of its four parts, and no padding."""
    n = rules.workers.size
    joint = n <= JOINT
    harmonics = 2 * rules.seasons.size
    active = SEASONS + min(harmonics, FEATURES - SEASONS)
    sizes = {
        "n": n,
        "H": rules.horizons,
        "age": rules.horizons,
        "H+1": rules.horizons + 1,
        "models": rules.horizons if joint else 1,
        "d": (2 if joint else 1) * n + harmonics,
        "kept": most_between_fits(rules),
        "F": FEATURES,
        "F-3": FEATURES - 3,
        "3": 3,
        "pairs": active * (active + 1) // 2,
        "residuals": RESIDUALS,
    }
    return np.dtype([(name, type_of(part, sizes)) for name, part in PARTS.items()])
