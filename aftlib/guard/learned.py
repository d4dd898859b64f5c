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
from aftlib.guard.guards import PARTS, Guards

LEARNED = [
    (part, each.name, each.metadata["axes"])
    for part, kind in PARTS.items()
    for each in fields(kind)
    if each.metadata.get("learned")
]
"""Arrays with which another guard begins: the part of a guard, the name, and the axes."""
_DIGEST = 16
_FIX = "make a new plan with aft plan, or give learned=None to begin without"


@dataclass(frozen=True, eq=False)
class Learned:
    """The model and the risks of a guard of n sensors."""

    names: Sequence[str]  # the sensors, in order
    terms: Mapping[str, Any]  # of the stream whose windows were learned; empty if unknown
    seen: int  # windows
    phase: float  # of the seasons at the next window, in windows
    arrays: Mapping[str, np.ndarray]  # by name

    @classmethod
    def of(cls, guards: Guards, names: Sequence[str], terms: Mapping[str, Any]) -> Self:
        """Return what a set of one guard learned, which stays as it is."""
        guards = Guards(guards.rules, guards.rows.copy())
        state = guards.state
        guards.model.absorb(state.seen - state.absorbed)
        return cls(
            names=list(names),
            terms=terms,
            seen=int(state.seen[0]),
            phase=float(state.rounds[0] + state.phase[0]),
            arrays={name: guards.rows[part][name][0] for part, name, _ in LEARNED},
        )

    def begin(self, rules: Rules, names: Sequence[str]) -> Guards:
        """Return a set of one guard that begins with it, with new accounts.

        `names` are the same sensors in the order of `rules`, and the seasons are the same. A model
        of more horizons begins anew for those that were not learned. ValueError when the sensors
        are others.
        """
        guards = Guards.begin(rules)
        state = guards.state
        place = np.array(places_of("workers", self.names, names))
        n = place.size
        columns = np.arange(guards.model.moments.shape[-1])
        columns[:n] = place
        if guards.model.joint:
            columns[n : 2 * n] = n + place
        order = {"n": place, "d": columns}
        for part, name, axes in LEARNED:
            array = guards.rows[part][name][0]
            learned = self.arrays[name]
            for axis, kind in enumerate(axes):
                if kind in order:
                    learned = learned.take(order[kind], axis)
            both = tuple(map(slice, np.minimum(array.shape, learned.shape)))  # their horizons
            array[both] = learned[both]
        state.seen[...] = self.seen
        state.absorbed[...] = self.seen
        state.phase[...] = self.phase
        state.levels[...] = state.level
        state.away[...] = rules.horizons  # no window of before is there
        guards.refit()  # makes it the last fit
        guards.refit()  # uses it
        return guards

    def to_text(self) -> str:
        """Return it as text; the same text for the same contents."""
        about = {name: value for name, value in vars(self).items() if name != "arrays"}
        encoded = np.frombuffer(json.dumps(about).encode(), np.uint8)
        data = pack_arrays(about=encoded, **self.arrays)
        return b64encode(_digest_of(data) + data).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return what `to_text` wrote; ValueError, with the fix, when the text is damaged."""
        try:
            whole = b64decode(text, validate=True)
            data = whole[_DIGEST:]
            if whole[:_DIGEST] != _digest_of(data):
                raise ValueError("its checksum does not fit")
            arrays = unpack_arrays(data)
            about = json.loads(arrays.pop("about").tobytes())
            if {*arrays} != {name for _, name, _ in LEARNED}:
                raise ValueError("its parts are those of another version")
        except ValueError as error:
            raise ValueError(
                f"learned must be what a plan's guard learned, got a damaged text ({error}): {_FIX}"
            ) from error
        return cls(**about, arrays=arrays)

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
    if rules.delta != guards.rules.delta:
        return changed
    place = np.array(places_of("workers", names, new_names))
    old_state = guards.state
    new_state = changed.state
    new_state.outside[...] = old_state.outside[..., place]
    old_workers = guards.rules.workers[place]
    same_then = np.equal.outer(old_workers, old_workers)
    same_now = np.equal.outer(rules.workers, rules.workers)
    alike = (same_then == same_now).all(axis=1)  # a sensor's worker has the same sensors
    alike &= rules.epsilon == guards.rules.epsilon[place]
    if alike.any():
        before = place[alike]
        changed.accounts.single[..., alike] = guards.accounts.single[..., before]
        changed.accounts.pools[...] = guards.accounts.pools
        new_state.number[..., alike] = old_state.number[..., before]
        new_state.errors[..., alike] = old_state.errors[..., before]
        new_state.rounds[...] = old_state.rounds  # `slack` computes the most credits from them
        new_state.phase[...] -= old_state.rounds
    return changed


def _digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()
