"""Which worker computes which key, so that a lost worker can be estimated (D1 section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.showing import Bounded, drawn, html_table, names_of

_DIGITS = 12


@dataclass(frozen=True, repr=False)
class Assignment(Bounded):
    """Disjoint key sets of m workers, and how reliably each could be estimated.

    Attributes
    ----------
    workers : tuple of tuple of int
        m workers, each with n/m key indices in ascending order.
    reliability : ndarray, shape (m,)
        R(A_i), the least reliability of a key given all keys outside its worker (D1 eq. (7)).
    estimable : ndarray of bool, shape (m,)
        R(A_i) ≥ 1 − δ.
    names : tuple of str
        Of the n keys, as the model has them.

    Examples
    --------
    >>> from aftlib import GaussianModel, Requirement, assign_spread
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> requirement = Requirement(epsilon=0.9, delta=0.05)
    >>> assignment = assign_spread(GaussianModel(np.zeros(4), pairs), 2, requirement)
    >>> assignment.workers, assignment.worker_of, assignment.estimable
    (((0, 2), (1, 3)), array([0, 1, 0, 1]), array([ True,  True]))
    >>> assignment.to_frame().query("worker == 1").index.tolist()
    ['X2', 'X4']
    """

    workers: tuple[tuple[int, ...], ...]
    reliability: np.ndarray
    estimable: np.ndarray
    names: tuple[str, ...] = field(default=(), kw_only=True, repr=False)

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

    def to_frame(self) -> pd.DataFrame:
        """A row a key, in the model's order: its worker, that one's reliability, and estimable."""
        owner = self.worker_of
        names = pd.Index(names_of(self.names, owner.size), name="key")
        columns = {"worker": owner, "reliability": self.reliability[owner]}
        return pd.DataFrame(columns | {"estimable": self.estimable_keys}, names)

    def _repr_html_(self) -> str:
        names = names_of(self.names, self.worker_of.size)
        keys = [", ".join(names[i] for i in worker) for worker in self.workers]
        columns = {"keys": keys, "reliability": self.reliability, "estimable": self.estimable}
        table = pd.DataFrame(columns, pd.RangeIndex(len(keys), name="worker"))
        return html_table(table, f"{self.estimable.sum()} of {len(keys)} workers are estimable")

    def plot(self) -> Any:
        """Plotly's bars of the workers' reliabilities."""
        return drawn("workers", self.to_frame())


def assign_greedy(model: GaussianModel, workers: int, requirement: Requirement) -> Assignment:
    """Fill workers so that as many as possible stay estimable (D1 fig. 9).

    Parameters
    ----------
    model : GaussianModel
        Model of the n keys' aggregates.
    workers : int
        Number m of workers; divides n.
    requirement : Requirement
        ε and δ of the estimates.

    Returns
    -------
    Assignment
        Workers in the order in which the algorithm closed them.

    Raises
    ------
    ValueError
        When m does not divide n.

    Notes
    -----
    R(A) = min over A of erf(ε / √(2 v)), v the diagonal of (Λ_AA)⁻¹ with Λ = Σ⁻¹ (eq. (7)).
    One key is tried on all open workers at once by a bordered update of (Λ_AA)⁻¹, O(m (n/m)²),
    so the whole costs O(n³/m) instead of one solve against the complement per candidate.

    Examples
    --------
    >>> from aftlib import GaussianModel, Requirement
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> requirement = Requirement(epsilon=0.9, delta=0.05)
    >>> assign_greedy(GaussianModel(np.zeros(4), pairs), 2, requirement).workers
    ((0, 2), (1, 3))
    """
    capacity = _capacity(model, workers)
    single = requirement.reliability(1 / np.diag(model.precision))
    alive = requirement.is_met_by(single)
    closed, dead = _fill(np.flatnonzero(~alive).tolist(), capacity)

    bench = _OpenWorkers(model.precision, max(0, workers - len(closed) - 1), capacity)
    rounded = np.round(single, _DIGITS)
    for key in sorted(np.flatnonzero(alive).tolist(), key=lambda i: (-rounded[i], i)):
        chosen = bench.place(key, requirement)
        if chosen is None:
            dead.append(key)
        elif len(bench.members[chosen]) == capacity:
            closed.append(bench.close(chosen))
        if len(dead) == capacity:
            closed.append(dead)
            dead = bench.close(bench.least_reliable(requirement)) if bench.open.any() else []

    leftover = [bench.close(i) for i in np.flatnonzero(bench.open).tolist()]
    return assess(model, [w for w in [*closed, *leftover, dead] if w], requirement)


def assign_spread(model: GaussianModel, workers: int, requirement: Requirement) -> Assignment:
    """Deal the keys of each correlated group out in turn (D1's h-best).

    Arguments, result and errors as `assign_greedy`.

    Examples
    --------
    >>> from aftlib import GaussianModel, Requirement
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> requirement = Requirement(epsilon=0.9, delta=0.05)
    >>> assign_spread(GaussianModel(np.zeros(4), pairs), 2, requirement).reliability.round(3)
    array([0.961, 0.961])
    """
    _capacity(model, workers)
    order = np.concatenate(correlated_groups(model)).tolist()
    return assess(model, [order[i::workers] for i in range(workers)], requirement)


def assign_packed(model: GaussianModel, workers: int, requirement: Requirement) -> Assignment:
    """Fill workers group by group with correlated keys (D1's h-worst).

    Arguments, result and errors as `assign_greedy`.

    Examples
    --------
    >>> from aftlib import GaussianModel, Requirement
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> requirement = Requirement(epsilon=0.9, delta=0.05)
    >>> assign_packed(GaussianModel(np.zeros(4), pairs), 2, requirement).reliability.round(3)
    array([0.632, 0.632])
    """
    capacity = _capacity(model, workers)
    order = np.concatenate(correlated_groups(model)).tolist()
    return assess(model, _fill(order, capacity)[0], requirement)


def assign_random(
    model: GaussianModel, workers: int, requirement: Requirement, rng: np.random.Generator
) -> Assignment:
    """Assign keys to workers by chance (D1 section 6's random division).

    `rng` decides; other arguments, result and errors as `assign_greedy`.

    Examples
    --------
    >>> from aftlib import GaussianModel, Requirement
    >>> pairs = np.kron(np.eye(2), [[1, 0.9], [0.9, 1]])  # X1 goes with X2, X3 with X4
    >>> model, rng = GaussianModel(np.zeros(4), pairs), np.random.default_rng(1)
    >>> assign_random(model, 2, Requirement(epsilon=0.9, delta=0.05), rng).workers
    ((0, 1), (2, 3))
    """
    capacity = _capacity(model, workers)
    return assess(model, _fill(rng.permutation(model.size), capacity)[0], requirement)


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
        """Put a key where the reliability drops least, if any worker stays estimable."""
        # with the key on it, a worker's (Λ_AA)⁻¹ is bordered: weights u, pivot s
        b = np.where(self._held, self.precision[self._index, key], 0)
        u = np.matmul(self.covariance, b[:, :, None])[:, :, 0]
        s = self.precision[key, key] - np.einsum("mi,mi->m", b, u)
        variances = np.einsum("mii->mi", self.covariance) + u**2 / s[:, None]
        reliability = requirement.reliability(np.maximum(variances.max(axis=1, initial=0), 1 / s))

        fits = self.open & requirement.is_met_by(reliability)
        if not fits.any():
            return None
        drop = np.round(self.reliability(requirement) - reliability, _DIGITS)
        chosen = int(np.argmin(np.where(fits, drop, np.inf)))

        k = len(self.members[chosen])
        border = u[chosen].copy()
        border[k] = -1
        self.covariance[chosen] += np.outer(border, border) / s[chosen]
        self._index[chosen, k], self._held[chosen, k] = key, True
        self.members[chosen].append(key)
        return chosen

    def reliability(self, requirement: Requirement) -> np.ndarray:
        """R of every worker; R(∅) = 1."""
        variances = np.einsum("mii->mi", self.covariance)
        return requirement.reliability(variances.max(axis=1, initial=0))

    def least_reliable(self, requirement: Requirement) -> int:
        """Open worker of least reliability, the lowest index among equals (fig. 9, line 24)."""
        rounded = np.round(self.reliability(requirement), _DIGITS)
        return int(np.argmin(np.where(self.open, rounded, np.inf)))

    def close(self, worker: int) -> list[int]:
        """Stop giving keys to a worker and return those that it has."""
        self.open[worker] = False
        return self.members[worker]


def _capacity(model: GaussianModel, workers: int) -> int:
    n = model.size
    if not (isinstance(workers, int | np.integer) and workers >= 1 and n % workers == 0):
        divisors = ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)
        raise ValueError(
            f"workers must divide the {n} keys, got {workers!r}; choose one of {divisors}"
        )
    return n // int(workers)


def _fill(keys: Iterable[int], capacity: int) -> tuple[list[list[int]], list[int]]:
    """Full workers of keys in their order, and what is left over."""
    order = list(keys)
    full = len(order) // capacity * capacity
    return [order[i : i + capacity] for i in range(0, full, capacity)], order[full:]


def assess(
    model: GaussianModel, workers: Sequence[Sequence[int]], requirement: Requirement
) -> Assignment:
    """Assignment of given key sets, with the reliability of each (D1 eq. (7))."""
    key_sets = tuple(tuple(sorted(int(i) for i in keys)) for keys in workers)
    worst = [model.block_variance(keys).max() for keys in key_sets]
    reliability = requirement.reliability(worst)
    met = requirement.is_met_by(reliability)
    return Assignment(key_sets, reliability, met, names=model.names)


def correlated_groups(model: GaussianModel) -> list[np.ndarray]:
    """Connected parts of the correlation graph; a single part is ordered by clustering."""
    # imported here: they take longer to load than everything else, in every Spark worker
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial.distance import squareform

    deviation = np.sqrt(np.diag(model.covariance))
    correlation = np.abs(model.covariance / np.outer(deviation, deviation))
    count, label = connected_components(correlation > 1e-12, directed=False)
    if count > 1 or model.size < 3:
        return [np.flatnonzero(label == g) for g in range(count)]
    distance = np.clip(1 - (correlation + correlation.T) / 2, 0, None)
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
    return [leaves_list(tree)]
