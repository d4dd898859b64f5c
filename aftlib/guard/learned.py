"""What a guard learned: its model and its risks, without accounts and without its last windows.

Another guard begins with it, and certifies from its first window on. The theorem of
`guard.accounts` holds for it as it is: the proof needs that an account begins with c₀, and that
outcomes are booked in order. Predictions, and with them errors, and proposals may be any. So the
accounts begin anew, and it does not matter what was learned, or from which data.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from aftlib.core.labels import places_of
from aftlib.core.storage import pack_arrays, unpack_arrays
from aftlib.guard.estimator import Rules
from aftlib.guard.guards import Guards
from aftlib.guard.prediction import FIRST_FIT
from aftlib.guard.proposal import pairs_of

_OF_RISK = ("fast", "slow", "moment", "residuals", "residual_count")
_DIGEST = 16
_FIX = "make a new plan with aft plan, or give learned=None to begin without"


@dataclass(frozen=True, eq=False)
class Learned:
    """The model and the risks of a guard of n sensors; the arrays are those of its parts."""

    names: Sequence[str]  # the sensors, in order
    terms: Mapping[str, Any]  # of the stream whose windows were learned; empty if unknown
    seen: int  # windows
    phase: float  # of the seasons at the next window, in windows
    level: np.ndarray
    level_weight: np.ndarray
    tolerance: np.ndarray  # `log_covered`, under its name in stored plans
    moments: np.ndarray
    weight: np.ndarray
    products: np.ndarray
    fast: np.ndarray
    slow: np.ndarray
    normal: np.ndarray
    moment: np.ndarray
    residuals: np.ndarray
    residual_count: np.ndarray

    @classmethod
    def of(cls, guards: Guards, names: Sequence[str], terms: Mapping[str, Any]) -> Self:
        """Return what a set of one guard learned, which stays as it is."""
        guards = Guards(guards.rules, guards.rows.copy())
        state = guards.state
        model = guards.model
        risk = guards.risk
        model.absorb(int(state.seen[0] - state.absorbed[0]))
        return cls(
            names=list(names),
            terms=terms,
            seen=int(state.seen[0]),
            phase=float(state.rounds[0] + state.phase[0]),
            level=state.level[0],
            level_weight=state.level_weight[0],
            tolerance=state.log_covered[0],
            moments=model.moments[0],
            weight=model.weight[0],
            products=model.products[0],
            normal=risk.full_normal[0],
            **{name: getattr(risk, name)[0] for name in _OF_RISK},
        )

    def begin(self, rules: Rules, names: Sequence[str]) -> Guards:
        """Return a set of one guard that begins with it, with new accounts.

        `names` are the same sensors in the order of `rules`, and the seasons are the same. A model
        of more horizons begins anew for those that were not learned. ValueError when the arrays do
        not fit.
        """
        guards = Guards.begin(rules)
        state = guards.state
        model = guards.model
        risk = guards.risk
        place = np.array(places_of("workers", self.names, names))
        n = place.size
        count = min(rules.horizons, len(self.fast))
        models = min(model.weight.shape[1], len(self.moments))
        before = n + place if model.joint else place[:0]
        of_sensors = np.concatenate([place, before])
        columns = np.append(of_sensors, np.arange(of_sensors.size, self.moments.shape[1]))
        state.seen[...] = self.seen
        state.absorbed[...] = self.seen
        state.phase[...] = self.phase
        state.level[...] = self.level[place]
        state.level_weight[...] = self.level_weight[place]
        state.levels[...] = state.level
        state.away[...] = rules.horizons  # no window of before is there
        state.log_covered[:, :count] = self.tolerance[:count, place]
        model.moments[:, :models] = self.moments[:models][:, columns][:, :, columns]
        model.weight[:, :models] = self.weight[:models]
        model.products[:, : count + 1] = self.products[: count + 1, place]
        one, other = pairs_of(risk.normal.shape[-1])
        risk.normal[:, :count] = self.normal[:count, place][..., one, other]
        for name in _OF_RISK:
            getattr(risk, name)[:, :count] = getattr(self, name)[:count, place]
        if self.seen >= FIRST_FIT:
            model.last_weight[...] = model.weight
            model.last_echo[...] = model.products
            # what was learned is both the fit in use and the last one
            model.refit(0, rules.workers)
            risk.refit()
        return guards

    def to_text(self) -> str:
        """Return it as text; the same text for the same contents."""
        content = dict(vars(self))
        about = {name: content.pop(name) for name in ("names", "terms", "seen", "phase")}
        encoded = np.frombuffer(json.dumps(about).encode(), np.uint8)
        data = pack_arrays(about=encoded, **content)
        return b64encode(_digest_of(data) + data).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return what `to_text` wrote; ValueError, with the fix, when the text is damaged."""
        try:
            whole = b64decode(text, validate=True)
            data = whole[_DIGEST:]
            if whole[:_DIGEST] != _digest_of(data):
                raise ValueError("its checksum does not fit")
            parts: dict[str, Any] = dict(unpack_arrays(data))
            parts |= json.loads(parts.pop("about").tobytes())
            if {*parts} != {field.name for field in fields(cls)}:
                raise ValueError("its parts are those of another version")
        except ValueError as error:
            raise ValueError(
                f"learned must be what a plan's guard learned, got a damaged text ({error}): {_FIX}"
            ) from error
        return cls(**parts)

    def require_terms(self, **terms: Any) -> None:
        """Refuse other sensors or windows than those that were learned."""
        own = {**self.terms, "workers": sorted(self.names)}
        for name, value in terms.items():
            if own.get(name) not in (None, value):
                unit = " µs" if name in ("window", "slide", "seasons") else ""
                raise ValueError(
                    f"{name} must be as in the plan, whose guard learned such windows: "
                    f"{own[name]!r:.300}{unit}, got {value!r:.300}{unit}; leave it as it is, {_FIX}"
                )


def change_rules(
    guards: Guards, names: Sequence[str], rules: Rules, new_names: Sequence[str]
) -> Guards:
    """Return a set of one guard of other rules for the same sensors, with what this one learned.

    A sensor's accounts go on if δ, its ε and the sensors of its worker are the same. The others
    begin anew, and then their slack is counted once more. The pools go on unless all begin anew,
    and the half-widths' shares if δ is the same. ValueError when horizons or seasons change, or
    when the guard has a predictor, because nothing tells a predictor about other rules.
    """
    own = vars(guards.rules)
    same = map(np.array_equal, vars(rules).values(), own.values())
    if [*names] == [*new_names] and all(same):
        return guards
    for name in ("horizons", "seasons"):
        value = getattr(rules, name)
        if not np.array_equal(value, own[name]):
            raise ValueError(
                f"{name} must stay {own[name]}, got {value}: leave them, or begin a new guard"
            )
    if guards.predictors:
        raise ValueError(
            f"predictor must be None when rules change, got {type(guards.predictors[0]).__name__}: "
            "begin a new guard with it"
        )
    changed = Learned.of(guards, names, {}).begin(rules, new_names)
    place = np.array(places_of("workers", names, new_names))
    old_state = guards.state
    new_state = changed.state
    if rules.delta != guards.rules.delta:
        return changed
    new_state.outside[...] = old_state.outside[..., place]
    old_workers = guards.rules.workers[place]
    same_then = np.equal.outer(old_workers, old_workers)
    same_now = np.equal.outer(rules.workers, rules.workers)
    alike = (same_then == same_now).all(axis=1)  # a sensor's worker has the same sensors
    alike &= rules.epsilon == guards.rules.epsilon[place]
    if alike.any():
        kept_new = np.flatnonzero(alike)
        kept_old = place[kept_new]
        changed.accounts.single[..., kept_new] = guards.accounts.single[..., kept_old]
        changed.accounts.pools[...] = guards.accounts.pools
        new_state.number[..., kept_new] = old_state.number[..., kept_old]
        new_state.errors[..., kept_new] = old_state.errors[..., kept_old]
        new_state.rounds[...] = old_state.rounds  # `slack` computes the most credits from them
        new_state.phase[...] -= old_state.rounds
    return changed


def _digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()
