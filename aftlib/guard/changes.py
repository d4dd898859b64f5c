"""Changes of a guard's sensors, workers, ε or δ: its statistics are copied into a new guard.

The theorem for changes is in `guard.accounts`. When sensors leave, the new model is the marginal
distribution of the others: their moments, and the Schur complement of each fit's precision. A
sensor that joins is treated as one that never sent a window. So the fit in use still contains no
window after a failure, and a real outage gets the same estimates as its shadow prediction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aftlib.guard.accounts import continue_pools, new_accounts
from aftlib.guard.prediction import Model, absorb, fit_gain, solve_in_units
from aftlib.guard.proposal import Risk
from aftlib.guard.rounds import Rules, State, is_joint

Parts = tuple[Rules, State, Model, Risk]


def carry_over(old: Parts, new: Parts, origin: np.ndarray) -> None:
    """Copy the state of an old guard, which stays unchanged, into a new one.

    `origin` (n,) has the old number of each new sensor, −1 for one that joins.
    """
    limits = np.where(origin < 0, np.nan, old[0].epsilon[origin])
    # sensors whose accounts begin now
    fresh = (new[0].epsilon != limits) | (new[0].delta != old[0].delta)
    carry_state(old[1], new[1], origin, fresh)
    carry_model(old, new, origin)
    for name in Risk._fields:
        axis = 2 if name in ("features", "risk") else 1
        take(getattr(old[3], name), getattr(new[3], name), origin, axis)
    new[3].risk[..., fresh] = -1.0  # the old risks belong to another ε or δ


def carry_state(old: State, new: State, origin: np.ndarray, fresh: np.ndarray) -> None:
    """Copy windows, levels and accounts; a sensor that joins counts as missing so far."""
    for name in set(State._fields) - {"clock", "pools"}:
        axis = 1 if name in ("accounts", "counts") else -1
        take(getattr(old, name), getattr(new, name), origin, axis)
    new.clock[:] = old.clock
    joined, rounds = origin < 0, old.clock[0]
    new.missing[joined] = rounds
    new.filled[:, joined] = np.where(np.isnan(old.filled[:, :1]), np.nan, 0.0)
    accounts, pools = new_accounts(fresh.size, len(old.pools))
    new.accounts[:, fresh] = accounts[:, fresh]
    new.pools[:] = pools if fresh.all() else continue_pools(old.pools, old.begun.size, fresh.size)
    new.decisions[..., fresh] = 0
    new.counts[:, fresh] = 0.0
    new.begun[fresh] = rounds


def carry_model(old: Parts, new: Parts, origin: np.ndarray) -> None:
    """Copy the old moments and fits; entries of new sensors start independent of the others."""
    model, target, clock = old[2], new[2], new[1].clock
    sums = {name: getattr(model, name).copy() for name in ("moments", "recent", "rows")}
    absorb(model._replace(**sums), old[0].forget, clock[1] - clock[2])
    clock[2] = clock[1]
    entries = entries_of(old, new, origin)
    known = np.flatnonzero(entries >= 0)
    here, there = np.ix_(known, known), np.ix_(entries[known], entries[known])
    for m in range(len(target.weight)):
        k = min(m, len(model.weight) - 1)
        target.weight[m], target.recent_weight[m] = model.weight[k], model.recent_weight[k]
        target.moments[m][here] = sums["moments"][k][there]
        target.recent[m][here] = sums["recent"][k][there]
        for fit in np.flatnonzero(model.scale.max(axis=1) > 0):
            target.precision[fit, m] = np.eye(len(entries))
            target.precision[fit, m][here] = marginal(model.precision[fit, k], entries[known])
            fit_gain(target, fit, m, new[0].workers)
    target.late[known] = model.late[entries[known]]
    if is_joint(model, old[0].workers.size) != is_joint(target, origin.size):
        target.late[:] = entries < 0
        target.recent[:], target.recent_weight[:] = 0.0, 0.0
    for name in ("scale", "residual", "products"):
        take(getattr(model, name), getattr(target, name), origin, -1)


def entries_of(old: Parts, new: Parts, origin: np.ndarray) -> np.ndarray:
    """Return the place of each entry of the new z in the old model's z; −1 for a new entry.

    The models differ in kind if only one of them has more sensors than `prediction.JOINT`.
    """
    n, size, waves = old[0].workers.size, old[2].moments.shape[1], 2 * old[0].seasons.size
    entries = [origin]
    if is_joint(new[2], origin.size):
        earlier = is_joint(old[2], n)
        entries.append(np.where((origin >= 0) & earlier, n + origin, -1))
    return np.concatenate([*entries, np.arange(size - waves, size)])


def marginal(precision: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the precision of some variables without the others."""
    gone = np.setdiff1d(np.arange(len(precision)), at)
    own, across = precision[np.ix_(at, at)], precision[np.ix_(at, gone)]
    if not gone.size:
        return own
    solved = solve_in_units(precision[np.ix_(gone, gone)], np.ascontiguousarray(across.T))
    result = own - across @ solved
    return (result + result.T) / 2


def take(old: np.ndarray, new: np.ndarray, origin: np.ndarray, axis: int) -> None:
    """Copy along an axis the entries of the sensors that stay."""
    here: Any = np.flatnonzero(origin >= 0)
    np.moveaxis(new, axis, 0)[here] = np.moveaxis(old, axis, 0)[origin[here]]
