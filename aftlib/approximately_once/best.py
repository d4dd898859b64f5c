"""A search for the best assignment, a bound on all assignments, and simultaneous crashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np

from aftlib.approximately_once.assignment import (
    Assignment,
    assess,
    assign_greedy,
    assign_random,
    worker_sizes,
)
from aftlib.core.checks import require_number
from aftlib.core.covariance import correlated_groups
from aftlib.core.extremes import DrawnWindows
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement

MOST_KEYS = 12
"""Most keys of a part, because all its subsets, at most 2¹², may be tried."""
DRAWS = 5
"""Random assignments among the candidates for the best one."""
STEPS, CANDIDATES = 40, 256
"""Most swaps for each number of workers that is tried, and most keys compared for a swap."""


@dataclass(frozen=True, eq=False, repr=False)
class BestAssignment(Assignment):
    """An `Assignment` with an upper bound on the estimable workers of any assignment.

    Attributes
    ----------
    bound : int
        No assignment of these keys to workers of these sizes has more estimable workers. For minima
        and maxima it is only the number of workers.
    """

    bound: int


def assign_best(
    model: GaussianModel,
    workers: int,
    requirement: Requirement,
    *,
    uneven: bool = False,
    capacities: Sequence[int] | None = None,
) -> BestAssignment:
    """Assign keys so that as many workers as possible are estimable, and bound their number.

    Parameters
    ----------
    model : GaussianModel
        Model of the n keys' aggregates.
    workers : int
        Number m of workers.
    requirement : Requirement
        ε and δ of the estimates.
    uneven : bool
        Whether workers may differ in size by one, so that m may be any number in 1 … n.
    capacities : sequence of int, optional
        Most keys that each of the m workers can take. Workers get equally many keys (± 1), or their
        capacity if it is smaller.

    Returns
    -------
    BestAssignment
        Workers are in the order of the capacities, if given. If no two workers differ by more than
        one key, it has at least as many estimable workers as `assign_greedy`, `assign_spread` and
        five random assignments.

    Raises
    ------
    ValueError
        When m does not divide n (unless `uneven`), or the capacities are not m numbers that hold
        all keys.

    Notes
    -----
    Cut the keys into parts P_b in any way. Let p_b keys of P_b be estimable when lost alone, and
    let a_b be the size of the largest subset of P_b that is estimable when only it is lost. Losing
    more keys never makes a variance smaller (Var(X_i | X∖A) ≤ Var(X_i | X∖B) for A ⊆ B), so a
    subset of an estimable worker is estimable itself. Hence an estimable worker holds at most a_b
    keys of P_b, all of them among the p_b. So k estimable workers together hold at most
    min(p_b, k·a_b) keys of P_b. With worker sizes c₁ ≤ c₂ ≤ … ≤ c_m they hold at least
    c₁ + … + c_k keys in all:

        Σ_b min(p_b, k·a_b) ≥ c₁ + … + c_k.

    `bound` is the largest k ≤ m for which this holds. Assume that groups are independent, the keys
    of a group are exchangeable, and workers have equal sizes. Then dealing out min(p_b, k·a_b) keys
    of each group in turn reaches the bound.

    For minima and maxima, `DrawnWindows`, keys are dealt out and swapped by variances, and
    assignments are compared by reliabilities counted on drawn windows. Such a reliability may rise
    as more keys are lost, so that the proof does not apply and `bound` is m.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel, Requirement, assign_best
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> best = assign_best(GaussianModel(np.zeros(4), pairs), 2, Requirement(0.9, 0.05))
    >>> best.workers, int(best.estimable.sum()), best.bound
    (((0, 2), (1, 3)), 2, 2)
    """
    sizes = _sizes(model, workers, requirement, uneven, capacities)
    m = len(sizes)
    groups = correlated_groups(model.covariance)
    parts = [  # of at most `MOST_KEYS` keys that are neighbours in their group's order
        part for group in groups for part in np.array_split(group, -(-len(group) // MOST_KEYS))
    ]
    lone = requirement.is_met_by(requirement.reliability(1 / np.diag(model.precision)))
    alive = np.array([int(lone[part].sum()) for part in parts])
    bound = m
    if not isinstance(model, DrawnWindows):
        known: dict[bytes, int] = {}
        most = [_most_estimable(model, part[lone[part]], requirement, known) for part in parts]
        held = np.minimum(alive, np.outer(range(m + 1), most)).sum(axis=1)
        bound = int(np.flatnonzero(held >= np.cumsum([0, *sorted(sizes)])).max())
    candidates = [assess(model, _deal(parts, lone, sizes, m), requirement)]
    if max(sizes) - min(sizes) <= 1:
        problem, order = (model, m, requirement), np.concatenate(groups)
        candidates.append(assign_greedy(*problem, uneven=True))
        # as `assign_spread`
        candidates.append(assess(model, [order[i::m].tolist() for i in range(m)], requirement))
        draws = np.random.default_rng(0).spawn(DRAWS)
        candidates += [assign_random(*problem, rng, uneven=True) for rng in draws]
    best = max(candidates, key=_merit)

    low, high = int(best.estimable.sum()), bound
    while low < high:  # search the largest k that dealing out and swapping reaches
        k = (low + high + 1) // 2
        improved = _improve(model, _deal(parts, lone, sizes, k), sizes, k, requirement)
        trial = assess(model, improved, requirement)
        best = max(best, trial, key=_merit)
        low, high = (k, high) if best.estimable.sum() >= k else (low, k - 1)
        low = max(low, int(best.estimable.sum()))
    # other functions return the larger workers first, or workers in the order of closing
    larger = np.argsort([-len(keys) for keys in best.workers], kind="stable")
    like = larger[np.argsort(np.argsort([-size for size in sizes], kind="stable"))]
    ordered = tuple(best.workers[i] for i in like)
    reached = best.reliability[like], best.estimable[like]
    return BestAssignment(ordered, *reached, bound, names=model.names)


def _merit(assignment: Assignment) -> tuple[int, float]:
    return int(assignment.estimable.sum()), float(assignment.reliability.mean())


def _sizes(
    model: GaussianModel,
    workers: int,
    requirement: Requirement,
    uneven: bool,
    capacities: Sequence[int] | None,
) -> list[int]:
    if capacities is None:
        return worker_sizes(model, workers, requirement, uneven)
    n = model.size
    if workers != len(capacities):
        raise ValueError(
            f"capacities must be one number for each of {workers!r} workers, "
            f"got {list(capacities)!r}; give a capacity for each"
        )
    for capacity in capacities:
        require_number("each of capacities", capacity, least=1, whole=True)
    if not sum(capacities) >= n >= workers:
        raise ValueError(
            f"capacities must hold {n} keys, at least one per worker, got {list(capacities)}, "
            f"which hold {sum(capacities)}; give larger capacities or other workers"
        )
    level = next(level for level in range(1, n + 1) if np.minimum(capacities, level).sum() >= n)
    filled = np.minimum(capacities, level)
    at_level = np.flatnonzero(filled == level)
    filled[at_level[len(at_level) - (filled.sum() - n) :]] -= 1
    return filled.tolist()


def _most_estimable(
    model: GaussianModel, keys: np.ndarray, requirement: Requirement, known: dict[bytes, int]
) -> int:
    """Size of the largest estimable subset of at most `MOST_KEYS` keys, each estimable alone."""
    if not len(keys):
        return 0
    block = model.precision[np.ix_(keys, keys)]
    name = (block * requirement.max_variance).round(12).tobytes()  # independent of the unit
    if name not in known:

        def met(variances: np.ndarray) -> bool:
            return bool(requirement.is_met_by(requirement.reliability(np.max(variances))))

        def possible(size: int) -> bool:
            sets = keys[np.array(list(combinations(range(len(keys)), size)))]
            blocks = model.precision[sets[:, :, None], sets[:, None, :]]
            variances = np.einsum("sii->si", np.linalg.inv(blocks))  # of a key, given all others
            return met(variances.max(axis=1).min())

        # leaving out the worst key again and again gives an estimable set, mostly the largest
        left = keys
        while len(left) > 1 and not met(variances := model.block_variance(left)):
            left = np.delete(left, variances.argmax())
        # a subset of an estimable set is estimable, so no size above the first that fails succeeds
        size = len(left)
        while size < len(keys) and possible(size + 1):
            size += 1
        known[name] = size
    return known[name]


def _deal(
    parts: Sequence[np.ndarray], lone: np.ndarray, sizes: Sequence[int], k: int
) -> list[list[int]]:
    """Deal out the parts' keys to the k smallest workers in turn; the others take the rest."""
    order = np.argsort(sizes, kind="stable").tolist()
    chosen, space = order[:k], sum(sizes[i] for i in order[:k])
    # Leave over keys that are not estimable alone first, then keys of the largest part.
    left = [key for part in parts for key in part[~lone[part]].tolist()]
    spare = [part[lone[part]].tolist() for part in parts]
    while sum(map(len, spare)) > space:
        left.append(max(spare, key=len).pop())
    queue = [key for part in spare for key in part]
    missing = space - len(queue)
    queue, left = queue + left[:missing], left[missing:]

    members: list[list[int]] = [[] for _ in sizes]
    turn = 0
    for key in queue:
        while len(members[chosen[turn % k]]) == sizes[chosen[turn % k]]:
            turn += 1
        members[chosen[turn % k]].append(key)
        turn += 1
    for i in order[k:]:
        members[i], left = left[: sizes[i]], left[sizes[i] :]
    return members


def _improve(
    model: GaussianModel,
    dealt: list[list[int]],
    sizes: Sequence[int],
    k: int,
    requirement: Requirement,
) -> list[list[int]]:
    """Swap keys as long as that brings the k smallest workers nearer to being estimable."""
    chosen = set(np.argsort(sizes, kind="stable")[:k].tolist())
    members = [np.array(keys) for keys in dealt]
    limit, rng = requirement.max_variance, np.random.default_rng(0)

    def excess(variances: np.ndarray) -> np.ndarray:
        return np.maximum(variances / limit - 1, 0).sum(axis=0)

    def inverse(i: int) -> np.ndarray:
        return np.linalg.inv(model.precision[np.ix_(members[i], members[i])])

    known, over = {i: inverse(i) for i in chosen}, np.zeros(len(sizes))
    for i in chosen:
        over[i] = excess(np.diag(known[i]))
    for _ in range(STEPS):
        worst = int(over.argmax())
        if over[worst] <= 0:
            break
        out = int(np.diag(known[worst]).argmax())
        places = [(i, j) for i in range(len(sizes)) if i != worst for j in range(len(members[i]))]
        others = np.array(places).reshape(-1, 2)
        if len(others) > CANDIDATES:
            others = others[rng.choice(len(others), CANDIDATES, replace=False)]
        keys = np.array([members[i][j] for i, j in others.tolist()], dtype=np.intp)
        at = np.full(len(others), out)
        given = excess(_swapped(model.precision, members[worst], known[worst], at, keys))
        gain, after = over[worst] - given, np.zeros(len(others))
        for i in chosen.intersection(others[:, 0].tolist()):
            mine = np.flatnonzero(others[:, 0] == i)
            at, keys = others[mine, 1], np.full(len(mine), members[worst][out])
            after[mine] = excess(_swapped(model.precision, members[i], known[i], at, keys))
            gain[mine] += over[i] - after[mine]
        p = int(gain.argmax()) if len(gain) else 0
        if not len(gain) or gain[p] <= 1e-12:
            break
        i, j = others[p].tolist()
        members[worst][out], members[i][j] = members[i][j], members[worst][out]
        over[worst], over[i] = given[p], after[p]
        known |= {moved: inverse(moved) for moved in (worst, i) if moved in chosen}
    return [keys.tolist() for keys in members]


def _swapped(
    precision: np.ndarray,
    members: np.ndarray,
    inverse: np.ndarray,
    at: np.ndarray,
    keys: np.ndarray,
) -> np.ndarray:
    """Variances of a worker's keys after each swap, shape (members, swaps).

    Swap s replaces the key at place `at[s]` by `keys[s]`. Removing a key changes (Λ_AA)⁻¹ by an
    outer product, which makes the key's row 0. Adding a key changes it by another outer product. So
    a swap costs O(|A|) after one product with (Λ_AA)⁻¹.
    """
    swap = np.arange(len(at))
    b = precision[np.ix_(members, keys)]
    left = inverse[:, at]
    pivot = inverse[at, at]
    u = inverse @ b - left * (np.einsum("ij,ij->j", left, b) / pivot)
    s = precision[keys, keys] - np.einsum("ij,ij->j", b, u)
    variances = np.diag(inverse)[:, None] - left**2 / pivot + u**2 / s
    variances[at, swap] = 1 / s
    return variances


EFFORT = 2e9
"""Most multiplications of a call of `crash_together`: some seconds."""
_NUMBERS = 2e6  # most entries of the matrices that are inverted at once


def crash_together(model: GaussianModel, assignment: Assignment, crashes: int) -> np.ndarray:
    """Bound the largest variance of each worker's keys if this worker and others crash together.

    `crashes` is the number of crashed workers. Returns upper bounds, shape (m,), on the variance of
    a key given the keys of all remaining workers. Each is the largest over a worker's keys and over
    all choices of the other crashed workers. One crash is D1 eq. (7). ValueError when `crashes` is
    not a whole number in 1 … m, or the model is of minima or maxima.

    Notes
    -----
    Each independent group is bounded separately: only the workers that have keys of it matter.
    Losing more keys never makes a variance smaller, so only choices of exactly f = `crashes` of
    these workers are tried. If trying all takes at most `EFFORT`, the bound is exact. Otherwise the
    workers are merged into as many blocks as `EFFORT` permits. Any f workers lie in at most f
    blocks, so the loss of f whole blocks bounds the loss of f workers.

    Examples
    --------
    Two pairs; a worker that crashes alone is estimated from the other of its pair:

    >>> from aftlib import GaussianModel, Requirement, assign_spread
    >>> model = GaussianModel(np.zeros(4), np.kron(np.eye(2), [[1, 0.9], [0.9, 1]]))
    >>> assignment = assign_spread(model, 4, Requirement(0.9, 0.05))
    >>> [crash_together(model, assignment, f).round(2).tolist() for f in (1, 2)]
    [[0.19, 0.19, 0.19, 0.19], [1.0, 1.0, 1.0, 1.0]]
    """
    if isinstance(model, DrawnWindows):
        raise ValueError(
            "model must be of means or sums, got DrawnWindows: for minima and maxima the "
            "reliability does not follow from the variance; instead put the keys of workers that "
            "crash together on one worker, and call `assess`"
        )
    m = len(assignment.workers)
    require_number("crashes", crashes, least=1, most=m, whole=True)
    owner, most = assignment.worker_of, np.zeros(m)
    for group in model.groups:
        precision = model.precision[np.ix_(group, group)]
        sets = [np.flatnonzero(owner[group] == i) for i in np.unique(owner[group])]
        lost, effort = min(crashes, len(sets)), EFFORT * len(group) / model.size
        for count in range(len(sets), lost - 1, -1):
            parts = np.array_split(np.arange(len(sets)), count)
            blocks = [np.concatenate([sets[i] for i in part]) for part in parts]
            size = lost * max(map(len, blocks))
            if comb(count, lost) * size**3 <= effort:
                break
        np.maximum.at(most, owner[group], _largest_variances(precision, blocks, lost))
    return most


def _largest_variances(precision: np.ndarray, sets: Sequence[np.ndarray], lost: int) -> np.ndarray:
    """Largest diagonal entry of (Λ_DD)⁻¹ of each key over all unions D of `lost` sets with it."""
    n, width = len(precision), max(map(len, sets))
    places = np.full((len(sets), width), n)  # n marks an empty place
    for row, keys in zip(places, sets, strict=True):
        row[: len(keys)] = keys
    padded = np.zeros((n + 1, n + 1))
    padded[:n, :n] = precision

    worst, diagonal = np.zeros(n + 1), np.arange(lost * width)
    choices = combinations(range(len(sets)), lost)
    while some := list(islice(choices, max(1, int(_NUMBERS / len(diagonal) ** 2)))):
        keys = places[np.array(some)].reshape(len(some), -1)
        blocks = padded[keys[:, :, None], keys[:, None, :]]
        blocks[:, diagonal, diagonal] += keys == n
        np.maximum.at(worst, keys, np.einsum("sii->si", np.linalg.inv(blocks)))
    return worst[:n]
