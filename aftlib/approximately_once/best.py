"""An assignment at least as good as every other here, and a bound that none can pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from aftlib.approximately_once.assignment import (
    Assignment,
    assess,
    assign_greedy,
    assign_random,
    assign_spread,
    correlated_groups,
)
from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement

MOST_KEYS = 12
"""Keys of a part whose subsets are all tried: at most 2¹² of them."""
DRAWS = 5
"""Random assignments that a best one must not be worse than."""
STEPS, CANDIDATES = 40, 256
"""Swaps for each number of workers tried, and keys looked at for each swap."""


@dataclass(frozen=True)
class BestAssignment(Assignment):
    """An `Assignment` with an upper bound on what any assignment could do.

    Attributes
    ----------
    bound : int
        No assignment of these keys to workers of these sizes has more estimable workers.
    """

    bound: int


def assign_best(
    model: GaussianModel, workers: int | Sequence[int], requirement: Requirement
) -> BestAssignment:
    """Assign keys so that as many workers as possible are estimable, and bound their number.

    Parameters
    ----------
    model : GaussianModel
        Model of the n keys' aggregates.
    workers : int or sequence of int
        Number m of workers of n/m keys each, or the number of keys of each worker.
    requirement : Requirement
        ε and δ of the estimates.

    Returns
    -------
    BestAssignment
        With at least as many estimable workers as `assign_greedy`, `assign_spread` and five random
        assignments (of equal workers). With sizes given, workers are in their order.

    Raises
    ------
    ValueError
        When m does not divide n, or the sizes do not add up to n.

    Notes
    -----
    Cut the keys into parts P_b in any way. Let p_b of its keys be estimable when lost alone, and
    a_b be the size of the largest subset of P_b that is estimable when just it is lost. Losing more
    keys never makes a variance smaller (Var(X_i | X∖A) ≤ Var(X_i | X∖B) for A ⊆ B), so a subset of
    an estimable worker is estimable itself. Hence an estimable worker holds at most a_b keys of
    P_b, all of them among the p_b. If k workers are estimable they hold at most min(p_b, k·a_b) of
    P_b together, and at least what the k smallest workers hold:

        Σ_b min(p_b, k·a_b) ≥ c₁ + … + c_k,  c₁ ≤ c₂ ≤ … ≤ c_m.

    `bound` is the largest k ≤ m for which this holds. Where groups are independent, the keys of
    each are exchangeable and workers are of one size, dealing out min(p_b, k·a_b) keys of each
    group in turn reaches it.

    Examples
    --------
    >>> from aftlib import GaussianModel, Requirement
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> best = assign_best(GaussianModel(np.zeros(4), pairs), 2, Requirement(0.9, 0.05))
    >>> best.workers, int(best.estimable.sum()), best.bound
    (((0, 2), (1, 3)), 2, 2)
    """
    sizes = _sizes(model, workers)
    equal = len(set(sizes)) == 1
    m = len(sizes)
    parts = [part for group in correlated_groups(model) for part in _cut(group)]
    lone = requirement.is_met_by(requirement.reliability(1 / np.diag(model.precision)))
    alive = np.array([int(lone[part].sum()) for part in parts])
    known: dict[bytes, int] = {}
    most = np.array(
        [_most_estimable(model, part[lone[part]], requirement, known) for part in parts]
    )

    def fits(k: int) -> bool:
        return bool(np.minimum(alive, k * most).sum() >= sum(sorted(sizes)[:k]))

    bound = max(k for k in range(m + 1) if fits(k))
    found = [assess(model, list(_deal(parts, lone, sizes, m)), requirement)]
    if equal:
        found += [assign_greedy(model, m, requirement), assign_spread(model, m, requirement)]
        draws = np.random.default_rng(0).spawn(DRAWS)
        found += [assign_random(model, m, requirement, rng) for rng in draws]
    best = max(found, key=_merit)

    low, high = int(best.estimable.sum()), bound
    while low < high:  # the largest number that a dealt and then mended assignment reaches
        k = (low + high + 1) // 2
        dealt = list(_deal(parts, lone, sizes, k))
        tried = assess(model, _mend(model, dealt, sizes, k, requirement), requirement)
        best = max(best, tried, key=_merit)
        low, high = (k, high) if best.estimable.sum() >= k else (low, k - 1)
        low = max(low, int(best.estimable.sum()))
    return BestAssignment(best.workers, best.reliability, best.estimable, bound, names=model.names)


def _merit(assignment: Assignment) -> tuple[int, float]:
    return int(assignment.estimable.sum()), float(assignment.reliability.mean())


def _sizes(model: GaussianModel, workers: int | Sequence[int]) -> list[int]:
    n = model.size
    if isinstance(workers, int | np.integer):
        if workers < 1 or n % workers:
            divisors = ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)
            raise ValueError(
                f"workers must divide the {n} keys, got {workers!r}; choose one of {divisors}, "
                "or give the number of keys of each worker"
            )
        return [n // int(workers)] * int(workers)
    for size in workers:
        require_number("each of workers", size, least=1, whole=True)
    if sum(workers) != n:
        raise ValueError(
            f"workers must have {n} keys together, got {list(workers)} with {sum(workers)}"
        )
    return [int(size) for size in workers]


def _cut(group: np.ndarray) -> list[np.ndarray]:
    """Parts of a correlated group of at most `MOST_KEYS` keys that lie together in its order."""
    return np.array_split(group, -(-len(group) // MOST_KEYS))


def _variances(model: GaussianModel, sets: np.ndarray) -> np.ndarray:
    """Variance of every key of each set, given all others: shape (sets, keys) like `sets`."""
    blocks = model.precision[sets[:, :, None], sets[:, None, :]]
    return np.einsum("sii->si", np.linalg.inv(blocks))


def _most_estimable(
    model: GaussianModel, keys: np.ndarray, requirement: Requirement, known: dict[bytes, int]
) -> int:
    """Size of the largest estimable subset of at most `MOST_KEYS` keys, each estimable alone."""
    if not len(keys):
        return 0
    block = model.precision[np.ix_(keys, keys)]
    name = block.round(12).tobytes()
    if name not in known:
        good: set[tuple[int, ...]] = {(i,) for i in range(len(keys))}
        size = 1
        while True:  # a set is tried only where all its subsets of one key less are estimable
            larger = [
                (*chosen, i)
                for chosen in good
                for i in range(chosen[-1] + 1, len(keys))
                if all((*rest, i) in good for rest in combinations(chosen, size - 1))
            ]
            if not larger:
                break
            variance = _variances(model, keys[np.array(larger)]).max(axis=1)
            met = requirement.is_met_by(requirement.reliability(variance))
            good = {chosen for chosen, ok in zip(larger, met, strict=True) if ok}
            if not good:
                break
            size += 1
        known[name] = size
    return known[name]


def _deal(
    parts: Sequence[np.ndarray], lone: np.ndarray, sizes: Sequence[int], k: int
) -> Iterator[list[int]]:
    """Deal the parts' keys out to the k smallest workers in turn; the others take what is left."""
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))
    chosen, room = order[:k], sum(sizes[i] for i in order[:k])
    # Where keys must be left over, those that cannot be estimated go first, then from the fullest.
    spare = [sorted(part.tolist(), key=lambda key: bool(lone[key])) for part in parts]
    left = [key for part in spare for key in part if not lone[key]]
    spare = [[key for key in part if lone[key]] for part in spare]
    while sum(map(len, spare)) > room:
        left.append(max(spare, key=len).pop())
    queue = [key for part in spare for key in part]
    missing = room - len(queue)
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
    yield from members


def _mend(
    model: GaussianModel,
    dealt: list[list[int]],
    sizes: Sequence[int],
    k: int,
    requirement: Requirement,
) -> list[list[int]]:
    """Swap keys as long as that brings the k smallest workers nearer to being estimable."""
    chosen = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))[:k]
    members = [np.array(keys) for keys in dealt]
    limit, rng = requirement.max_variance, np.random.default_rng(0)

    def excess(sets: np.ndarray) -> np.ndarray:
        return np.maximum(_variances(model, sets) / limit - 1, 0).sum(axis=1)

    over = np.zeros(len(sizes))
    for i in chosen:
        over[i] = excess(members[i][None])[0]
    for _ in range(STEPS):
        worst = int(over.argmax())
        if over[worst] <= 0:
            break
        out = int(_variances(model, members[worst][None])[0].argmax())
        others = [(i, j) for i in range(len(sizes)) if i != worst for j in range(len(members[i]))]
        if len(others) > CANDIDATES:
            picked = rng.choice(len(others), CANDIDATES, replace=False)
            others = [others[p] for p in picked]
        taken = np.repeat(members[worst][None], len(others), axis=0)
        taken[:, out] = [members[i][j] for i, j in others]
        gain = over[worst] - excess(taken)
        after = np.zeros(len(others))
        for i in {i for i, _ in others} & set(chosen):
            mine = [p for p, (worker, _) in enumerate(others) if worker == i]
            given = np.repeat(members[i][None], len(mine), axis=0)
            given[np.arange(len(mine)), [others[p][1] for p in mine]] = members[worst][out]
            after[mine] = excess(given)
            gain[mine] += over[i] - after[mine]
        p = int(gain.argmax())
        if gain[p] <= 1e-12:
            break
        i, j = others[p]
        over[worst] = excess(taken[p : p + 1])[0]
        over[i] = after[p]
        members[worst][out], members[i][j] = members[i][j], members[worst][out]
    return [keys.tolist() for keys in members]
