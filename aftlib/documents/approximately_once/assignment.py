"""Assignments of keys to workers so that the others can estimate a lost one (D1 section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from aftlib.core.checks import listed, require_instance, require_number
from aftlib.core.covariance import correlated_groups
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement

_DIGITS = 12


@dataclass(frozen=True, eq=False)
class Assignment:
    """Disjoint key sets of m workers, and the reliability of estimates of each worker.

    Attributes
    ----------
    workers : tuple of tuple of int
        Key indices of each of the m workers, ascending.
    reliability : ndarray, shape (m,)
        R(A_i), the least reliability of a key given all keys outside its worker (D1 eq. (7)).
    estimable : ndarray of bool, shape (m,)
        R(A_i) ≥ 1 − δ.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel, Requirement, assign_spread
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> requirement = Requirement(epsilon=0.9, delta=0.05)
    >>> assignment = assign_spread(GaussianModel(np.zeros(4), pairs), 2, requirement)
    >>> assignment.workers, assignment.worker_of, assignment.estimable
    (((0, 2), (1, 3)), array([0, 1, 0, 1]), array([ True,  True]))
    """

    workers: tuple[tuple[int, ...], ...]
    reliability: np.ndarray
    estimable: np.ndarray

    @property
    def worker_of(self) -> np.ndarray:
        """Worker of each key, shape (n,)."""
        owner = np.empty(sum(map(len, self.workers)), dtype=np.intp)
        for i, keys in enumerate(self.workers):
            owner[list(keys)] = i
        return owner

    @property
    def estimable_keys(self) -> np.ndarray:
        """Whether each key belongs to an estimable worker, shape (n,)."""
        return np.asarray(self.estimable[self.worker_of])


def assign_greedy(
    model: GaussianModel,
    workers: int,
    requirement: Requirement,
    *,
    uneven: bool = False,
    rng: np.random.Generator | None = None,
) -> Assignment:
    """Fill workers so that as many as possible stay estimable (D1 fig. 9).

    Parameters
    ----------
    model : GaussianModel
        Model of the n keys' aggregates.
    workers : int
        Number m of workers; divides n unless `uneven`.
    requirement : Requirement
        ε and δ of the estimates.
    uneven : bool
        Whether n mod m workers may have one key more than the others, so that m may be any number
        in 1 … n. By default m must divide n, as in the document.
    rng : numpy.random.Generator, optional
        Generator of a random order of equally reliable keys, whose order fig. 9 does not define. By
        default the lowest index comes first, so that correlated keys with neighbouring indices are
        placed one after another.

    Returns
    -------
    Assignment
        Workers in the order in which the algorithm closed them.

    Raises
    ------
    ValueError
        When m does not divide n, or, if `uneven`, does not lie in 1 … n.

    Notes
    -----
    R(A) = min over A of erf(ε / √(2 v)), v the diagonal of (Λ_AA)⁻¹ with Λ = Σ⁻¹ (eq. (7)); an
    empty worker has R(∅) = 1.
    One key is tried on all open workers at once by a bordered update of (Λ_AA)⁻¹, O(m (n/m)²),
    so the whole costs O(n³/m) instead of one solve against the complement per candidate.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel, Requirement, assign_greedy
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> requirement = Requirement(epsilon=0.9, delta=0.05)
    >>> assign_greedy(GaussianModel(np.zeros(4), pairs), 2, requirement).workers
    ((0, 2), (1, 3))
    """
    sizes = worker_sizes(model, workers, requirement, uneven)
    if rng is not None:
        require_instance("rng", rng, np.random.Generator, "numpy.random.default_rng(1)")
    reliability_alone = requirement.reliability(1 / np.diag(model.precision))
    estimable_alone = requirement.is_met_by(reliability_alone)
    # `reserve` is a worker that need not be estimable, for keys that fit nowhere (lines 3–10)
    closed, reserve = _fill(np.flatnonzero(~estimable_alone).tolist(), sizes)

    small = sizes[-1]
    larger = sum(size > small for size in sizes[len(closed) :])  # workers for one key more

    def is_full(keys: list[int]) -> bool:
        return len(keys) > small or (len(keys) == small and not larger)

    # the reserve is one of the workers that are left
    filling = _OpenWorkers(model.precision, max(0, len(sizes) - len(closed) - 1), sizes[0])
    ties = np.arange(model.size) if rng is None else rng.permutation(model.size)
    order = np.lexsort((ties, -np.round(reliability_alone, _DIGITS)))
    for key in order[estimable_alone[order]].tolist():
        chosen = filling.place(key, requirement)
        target = reserve if chosen is None else filling.members[chosen]
        if chosen is None:
            reserve.append(key)
        larger -= len(target) > small  # at 0, workers with `small` keys become full
        closed += [filling.close(i) for i in filling.still_open if is_full(filling.members[i])]
        if is_full(reserve):
            closed.append(reserve)
            reserve = filling.close_least_reliable(requirement)

    left = [filling.close(i) for i in filling.still_open]
    return assess(model, [keys for keys in [*closed, *left, reserve] if keys], requirement)


def assign_spread(
    model: GaussianModel, workers: int, requirement: Requirement, *, uneven: bool = False
) -> Assignment:
    """Deal out the keys of each correlated group to the workers in turn (D1's h-best).

    Arguments, result and errors as `assign_greedy`.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel, Requirement, assign_spread
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> requirement = Requirement(epsilon=0.9, delta=0.05)
    >>> assign_spread(GaussianModel(np.zeros(4), pairs), 2, requirement).reliability.round(3)
    array([0.961, 0.961])
    """
    worker_sizes(model, workers, requirement, uneven)  # checks the arguments
    order = np.concatenate(correlated_groups(model.covariance)).tolist()
    return assess(model, [order[i::workers] for i in range(workers)], requirement)


def assign_packed(
    model: GaussianModel, workers: int, requirement: Requirement, *, uneven: bool = False
) -> Assignment:
    """Fill workers group by group with correlated keys (D1's h-worst).

    Arguments, result and errors as `assign_greedy`.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel, Requirement, assign_packed
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> requirement = Requirement(epsilon=0.9, delta=0.05)
    >>> assign_packed(GaussianModel(np.zeros(4), pairs), 2, requirement).reliability.round(3)
    array([0.632, 0.632])
    """
    sizes = worker_sizes(model, workers, requirement, uneven)
    order = np.concatenate(correlated_groups(model.covariance)).tolist()
    return assess(model, _fill(order, sizes)[0], requirement)


def assign_random(
    model: GaussianModel,
    workers: int,
    requirement: Requirement,
    rng: np.random.Generator,
    *,
    uneven: bool = False,
) -> Assignment:
    """Assign keys to workers at random (D1 section 6's random division).

    `rng` draws the assignment; other arguments, result and errors as `assign_greedy`.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel, Requirement, assign_random
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> model, rng = GaussianModel(np.zeros(4), pairs), np.random.default_rng(1)
    >>> assign_random(model, 2, Requirement(epsilon=0.9, delta=0.05), rng).workers
    ((0, 1), (2, 3))
    """
    sizes = worker_sizes(model, workers, requirement, uneven)
    require_instance("rng", rng, np.random.Generator, "numpy.random.default_rng(1)")
    return assess(model, _fill(rng.permutation(model.size), sizes)[0], requirement)


class _OpenWorkers:
    """Workers that still take keys, with (Λ_AA)⁻¹ of each padded to the capacity.

    Invariant: covariance[i, :k, :k] is Cov(X_A | X∖A) of worker i's k members, the rest is 0.
    """

    def __init__(self, precision: np.ndarray, workers: int, capacity: int) -> None:
        self.precision = precision
        self.members: list[list[int]] = [[] for _ in range(workers)]
        self.open = np.ones(workers, dtype=bool)
        self.covariance = np.zeros((workers, capacity, capacity))
        self._index = np.zeros((workers, capacity), dtype=np.intp)
        self._held = np.zeros((workers, capacity), dtype=bool)

    def place(self, key: int, requirement: Requirement) -> int | None:
        """Give a key to the worker that stays estimable and loses least reliability, if any."""
        # the new key borders each worker's (Λ_AA)⁻¹: weights u, pivot s
        most = max(map(len, self.members), default=0)
        covariance = self.covariance[:, :most, :most]  # the rest is 0, and large
        b = np.where(self._held[:, :most], self.precision[key][self._index[:, :most]], 0)
        u = np.matmul(covariance, b[:, :, None])[:, :, 0]
        s = self.precision[key, key] - np.einsum("mi,mi->m", b, u)
        variances = np.einsum("mii->mi", covariance) + u**2 / s[:, None]
        reliability = requirement.reliability(np.maximum(variances.max(axis=1, initial=0), 1 / s))

        fits = self.open & requirement.is_met_by(reliability)
        if not fits.any():
            return None
        drop = np.round(self.reliability(requirement) - reliability, _DIGITS)
        chosen = int(np.argmin(np.where(fits, drop, np.inf)))

        k = len(self.members[chosen])
        border = np.append(u[chosen, :k], -1)
        self.covariance[chosen, : k + 1, : k + 1] += np.outer(border, border) / s[chosen]
        self._index[chosen, k] = key
        self._held[chosen, k] = True
        self.members[chosen].append(key)
        return chosen

    def reliability(self, requirement: Requirement) -> np.ndarray:
        """R of every worker; R(∅) = 1."""
        variances = np.einsum("mii->mi", self.covariance)
        return requirement.reliability(variances.max(axis=1, initial=0))

    def close_least_reliable(self, requirement: Requirement) -> list[int]:
        """Close the least reliable worker, the first among equals (fig. 9, lines 24 and 25)."""
        if not self.open.any():
            return []
        rounded = np.round(self.reliability(requirement), _DIGITS)
        return self.close(int(np.argmin(np.where(self.open, rounded, np.inf))))

    @property
    def still_open(self) -> list[int]:
        """Workers that still take keys."""
        return np.flatnonzero(self.open).tolist()

    def close(self, worker: int) -> list[int]:
        """Stop giving keys to a worker and return those that it has."""
        self.open[worker] = False
        return self.members[worker]


def worker_sizes(
    model: GaussianModel, workers: int, requirement: Requirement, uneven: bool = False
) -> list[int]:
    """Number of keys of each worker, largest first; ValueError as in `assign_greedy`."""
    require_instance("model", model, GaussianModel, "GaussianModel.fit(frame)")
    require_instance("requirement", requirement, Requirement, "Requirement(epsilon, delta)")
    n = model.size
    require_number("workers", workers, least=1, most=n, whole=True)
    if not uneven and n % workers:
        raise ValueError(
            f"workers must divide the {n} keys, got {workers!r}; choose from {divisors(n)}, or "
            "give uneven=True for workers whose sizes differ by one"
        )
    m = int(workers)
    return [n // m + (i < n % m) for i in range(m)]


def divisors(n: int) -> list[int]:
    """Return the numbers that divide `n`, ascending."""
    return [m for m in range(1, n + 1) if n % m == 0]


def _fill(keys: Iterable[int], sizes: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Fill workers with the keys in order; return the full workers and the keys left over."""
    full = []
    left = list(keys)
    for size in sizes:
        if len(left) < size:
            break
        full.append(left[:size])
        left = left[size:]
    return full, left


def assess(
    model: GaussianModel, workers: Sequence[Sequence[int | str]], requirement: Requirement
) -> Assignment:
    """Return the assignment of given key sets, with the reliability of each (D1 eq. (7)).

    Parameters
    ----------
    model : GaussianModel
        Model of the n keys' aggregates.
    workers : sequence of sequences of int or str
        Key indices or names of each worker; each of the n keys once. A worker without keys has
        R(∅) = 1.
    requirement : Requirement
        ε and δ of the estimates.

    Raises
    ------
    ValueError
        When a key is given twice, missing or unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel, Requirement, assess
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> model = GaussianModel(np.zeros(4), pairs)
    >>> assess(model, [["X1", "X3"], ["X2", "X4"]], Requirement(0.9, 0.05)).estimable
    array([ True,  True])
    """
    require_instance("model", model, GaussianModel, "GaussianModel.fit(frame)")
    require_instance("requirement", requirement, Requirement, "Requirement(epsilon, delta)")
    indices = (model.indices("each of workers", keys).tolist() for keys in workers)
    key_sets = tuple(tuple(sorted(keys)) for keys in indices)
    counts = np.bincount([i for keys in key_sets for i in keys], minlength=model.size)
    if (counts != 1).any():
        raise ValueError(
            f"workers must have each of the {model.size} keys once, got "
            f"{listed(model.names, counts != 1)} missing or more than once: give each key to one "
            "worker"
        )
    variances = [model.block_variance(keys).max(initial=0) for keys in key_sets]
    reliability = requirement.reliability(variances)
    met = requirement.is_met_by(reliability)
    return Assignment(key_sets, reliability, met)


def residual_variance(model: GaussianModel, workers: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the variance of each key given the keys of all other workers (D1 eq. (2)), (n,)."""
    variance = np.empty(model.size)
    for keys in map(list, workers):
        variance[keys] = model.block_variance(keys)
    return variance


def residuals(
    model: GaussianModel, workers: Sequence[Sequence[int]], scaled: np.ndarray
) -> np.ndarray:
    """Return truth minus estimate of each key from the other workers' keys, shape (n, windows).

    x_A − E[x_A | rest] = (Λ_AA)⁻¹ (Λ (x − μ))_A, and `scaled` is Λ (x − μ), shape (n, windows).
    """
    errors = np.empty_like(scaled)
    for keys in map(list, workers):
        errors[keys] = np.linalg.inv(model.precision[np.ix_(keys, keys)]) @ scaled[keys]
    return errors
