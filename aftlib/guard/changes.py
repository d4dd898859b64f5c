"""Changes of a guard's sensors, workers, ε or δ: its statistics are copied into a new guard.

The theorem for changes is in `guard.accounts`. When sensors leave, the new model is the marginal
distribution of the others: their moments, and the Schur complement of each fit's precision. A
sensor that joins is treated as one that never sent a window. So the fit in use still contains no
window after a failure, and a real outage gets the same estimates as its shadow prediction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from aftlib.guard.accounts import continue_pools, new_accounts
from aftlib.guard.prediction import absorb, fit_gain, inverse
from aftlib.guard.rounds import FORGET, Rounds, State


def carry_over(old: Rounds, new: Rounds, origin: np.ndarray) -> None:
    """Copy the state of an old guard, which stays unchanged, into a new one.

    `origin` (n,) has the old number of each new sensor, −1 for one that joins.
    """
    limits = np.where(origin < 0, np.nan, old.rules.epsilon[origin])
    # sensors whose accounts begin now
    fresh = (new.rules.epsilon != limits) | (new.rules.delta != old.rules.delta)
    carry_state(old.state, new.state, origin, fresh)
    carry_model(old, new, origin)
    for name, values in vars(old.risk).items():
        take(values, getattr(new.risk, name), origin, 2 if name in ("features", "risk") else 1)
    new.risk.risk[..., fresh] = -1.0  # the old risks belong to another ε or δ


def carry_state(old: State, new: State, origin: np.ndarray, fresh: np.ndarray) -> None:
    """Copy windows, levels and accounts; a sensor that joins counts as missing so far."""
    for name, values in vars(old).items():
        if not isinstance(values, np.ndarray):
            setattr(new, name, values)
        elif name != "pools":
            take(values, getattr(new, name), origin, -1)
    joined = origin < 0
    new.missing[joined] = old.rounds
    new.filled[:, joined] = np.where(np.isnan(old.filled[:, :1]), np.nan, 0.0)
    accounts, pools = new_accounts(fresh.size, len(old.pools))
    new.accounts[:, fresh] = accounts[:, fresh]
    new.pools = pools if fresh.all() else continue_pools(old.pools, old.begun.size, fresh.size)
    new.decisions[..., fresh] = 0
    new.number[:, fresh] = new.errors[:, fresh] = 0.0
    new.begun[fresh] = old.rounds


def carry_model(old: Rounds, new: Rounds, origin: np.ndarray) -> None:
    """Copy the old moments and fits; entries of new sensors start independent of the others."""
    copies = {name: getattr(old.model, name).copy() for name in ("moments", "recent", "rows")}
    model, target = replace(old.model, **copies), new.model
    absorb(model, FORGET, old.state.seen - old.state.absorbed)
    new.state.absorbed = old.state.seen
    entries = entries_of(old, new, origin)
    known = np.flatnonzero(entries >= 0)
    here, there = np.ix_(known, known), np.ix_(entries[known], entries[known])
    for m in range(len(target.weight)):
        k = min(m, len(model.weight) - 1)
        target.weight[m], target.recent_weight[m] = model.weight[k], model.recent_weight[k]
        target.moments[m][here] = model.moments[k][there]
        target.recent[m][here] = model.recent[k][there]
        for fit in np.flatnonzero(model.scale.max(axis=1) > 0).tolist():
            target.precision[fit, m] = np.eye(len(entries))
            target.precision[fit, m][here] = marginal(model.precision[fit, k], entries[known])
    for fit in np.flatnonzero(model.scale.max(axis=1) > 0).tolist():
        fit_gain(target, fit, new.rules.workers)
    target.late[known] = model.late[entries[known]]
    if old.joint != new.joint:
        target.late[:] = entries < 0
        target.recent[:], target.recent_weight[:] = 0.0, 0.0
    for name in ("scale", "residual", "echo", "products"):
        take(getattr(model, name), getattr(target, name), origin, -1)


def entries_of(old: Rounds, new: Rounds, origin: np.ndarray) -> np.ndarray:
    """Return the place of each entry of the new z in the old model's z; −1 for a new entry.

    The models differ in kind if only one of them has more sensors than `prediction.JOINT`.
    """
    n, size = old.rules.workers.size, old.model.moments.shape[1]
    entries = [origin]
    if new.joint:
        entries.append(np.where((origin >= 0) & old.joint, n + origin, -1))
    return np.concatenate([*entries, np.arange(size - 2 * old.rules.seasons.size, size)])


def marginal(precision: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the precision of some variables without the others."""
    gone = np.setdiff1d(np.arange(len(precision)), at)
    own, across = precision[np.ix_(at, at)], precision[np.ix_(at, gone)]
    result = own - across @ inverse(precision[np.ix_(gone, gone)]) @ across.T if gone.size else own
    return np.asarray((result + result.T) / 2)


def take(old: np.ndarray, new: np.ndarray, origin: np.ndarray, axis: int) -> None:
    """Copy along an axis the entries of the sensors that stay."""
    here: Any = np.flatnonzero(origin >= 0)
    np.moveaxis(new, axis, 0)[here] = np.moveaxis(old, axis, 0)[origin[here]]
