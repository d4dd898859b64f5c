"""The best of several assignments, and an upper bound on the estimable workers of any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from aftlib.core.covariance import correlated_groups
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import (
    Assignment,
    assess,
    assign_greedy,
    assign_random,
    assign_spread,
    worker_sizes,
)

MOST_KEYS = 12
"""Most keys of a part, because all its subsets, at most 2¹², may be tried."""
DRAWS = 5
"""Random assignments among the candidates for the best one."""


@dataclass(frozen=True, eq=False, repr=False)
class BestAssignment(Assignment):
    """An `Assignment` with an upper bound on the estimable workers of any assignment.

    Attributes
    ----------
    bound : int
        No assignment of these keys to workers of these sizes has more estimable workers.
    """

    bound: int


def assign_best(
    model: GaussianModel, workers: int, requirement: Requirement, *, uneven: bool = False
) -> BestAssignment:
    """Return the best of several assignments, and bound the estimable workers of any assignment.

    Arguments and errors as `assign_greedy`.

    Returns
    -------
    BestAssignment
        It has at least as many estimable workers as `assign_greedy`, `assign_spread` and five
        random assignments.

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

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel, Requirement, assign_best
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> best = assign_best(GaussianModel(np.zeros(4), pairs), 2, Requirement(0.9, 0.05))
    >>> best.workers, int(best.estimable.sum()), best.bound
    (((0, 2), (1, 3)), 2, 2)
    """
    sizes = worker_sizes(model, workers, requirement, uneven)
    parts = [  # of at most `MOST_KEYS` keys that are neighbours in their group's order
        part
        for group in correlated_groups(model.covariance)
        for part in np.array_split(group, -(-len(group) // MOST_KEYS))
    ]
    alone = requirement.is_met_by(requirement.reliability(1 / np.diag(model.precision)))
    bound = _bound(model, parts, alone, sizes, requirement)

    candidates = [
        assess(model, _deal_out(parts, alone, sizes, workers), requirement),
        assess(model, _deal_out(parts, alone, sizes, bound), requirement),
        assign_greedy(model, workers, requirement, uneven=True),
        assign_spread(model, workers, requirement, uneven=True),
    ]
    for rng in np.random.default_rng(0).spawn(DRAWS):
        candidates.append(assign_random(model, workers, requirement, rng, uneven=True))
    best = max(candidates, key=lambda each: (each.estimable.sum(), each.reliability.mean()))
    return BestAssignment(best.workers, best.reliability, best.estimable, bound)


def _bound(
    model: GaussianModel,
    parts: Sequence[np.ndarray],
    alone: np.ndarray,
    sizes: Sequence[int],
    requirement: Requirement,
) -> int:
    """Largest number k of workers for which the inequality of `assign_best` holds."""
    estimable = [part[alone[part]] for part in parts]
    known: dict[bytes, int] = {}  # by block, because many blocks are equal
    largest = []
    for keys in estimable:
        block = model.precision[np.ix_(keys, keys)].round(12).tobytes()
        if block not in known:
            known[block] = _largest_estimable(model, keys, requirement)
        largest.append(known[block])
    counts = np.array([len(keys) for keys in estimable])
    room = np.minimum(counts, np.outer(range(len(sizes) + 1), largest)).sum(axis=1)
    return int(np.flatnonzero(room >= np.cumsum([0, *sorted(sizes)])).max())


def _largest_estimable(model: GaussianModel, keys: np.ndarray, requirement: Requirement) -> int:
    """Size of the largest estimable subset of at most `MOST_KEYS` keys, each estimable alone."""
    if not len(keys):
        return 0

    def is_met(variance: float) -> bool:
        return bool(requirement.is_met_by(requirement.reliability(variance)))

    def is_possible(size: int) -> bool:
        sets = keys[np.array(list(combinations(range(len(keys)), size)))]
        blocks = model.precision[sets[:, :, None], sets[:, None, :]]
        variances = np.einsum("sii->si", np.linalg.inv(blocks))  # of a key, given all others
        return is_met(variances.max(axis=1).min())

    # leaving out the worst key again and again gives an estimable set, mostly the largest
    left = keys
    while len(left) > 1 and not is_met((variances := model.block_variance(left)).max()):
        left = np.delete(left, variances.argmax())
    # a subset of an estimable set is estimable, so no size above the first that fails succeeds
    size = len(left)
    while size < len(keys) and is_possible(size + 1):
        size += 1
    return size


def _deal_out(
    parts: Sequence[np.ndarray], alone: np.ndarray, sizes: Sequence[int], k: int
) -> list[list[int]]:
    """Return the keys of each worker, the k smallest workers first.

    The parts' keys are dealt out to these k in turn; the others take the rest.
    """
    first = len(sizes) - k  # sizes descend
    space = sum(sizes[first:])
    # leave over keys that are not estimable alone first, then keys of the largest part
    rest = [key for part in parts for key in part[~alone[part]].tolist()]
    chosen = [part[alone[part]].tolist() for part in parts]
    while sum(map(len, chosen)) > space:
        rest.append(max(chosen, key=len).pop())
    queue = [key for part in chosen for key in part]
    missing = space - len(queue)
    queue += rest[:missing]
    rest = rest[missing:]

    dealt = [queue[i::k] for i in range(k)]  # the first have one key more, if sizes differ
    for size in sizes[:first]:
        dealt.append(rest[:size])
        rest = rest[size:]
    return dealt
