"""Cholesky factorisation with diagonal pivots, the fast form of D2 fig. 3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COMPARED_TO = 1e-12
"""Scores (variance over target) closer than this, relatively, count as equal."""

_PANEL = 64
_POOL = 512
_FIRST_BATCH, _LARGEST_BATCH = 32, 128


@dataclass(frozen=True, eq=False)
class PivotedFactor:
    """First k columns of the pivoted Cholesky factor L of Σ.

    Attributes
    ----------
    pivots : tuple of int
        Indices in order of choice.
    rows : ndarray, shape (k, n)
        Lᵀ: row j explains what pivot j adds; rows[:, pivots] is upper triangular.
    variance : ndarray, shape (n,)
        Variance that is left of each variable given the pivots; 0 at the pivots.
    share : ndarray, shape (k + 1,)
        max_i variance_i / target_i before each choice and at the end.
    """

    pivots: tuple[int, ...]
    rows: np.ndarray
    variance: np.ndarray
    share: np.ndarray


def pivoted_cholesky(covariance: np.ndarray, target: np.ndarray) -> PivotedFactor:
    """Factorise until what is left of every variance meets its target.

    Parameters
    ----------
    covariance : ndarray, shape (n, n)
        Σ, symmetric positive definite.
    target : ndarray, shape (n,)
        Positive; infinity asks nothing.

    Returns
    -------
    PivotedFactor
        Each pivot has the largest variance / target; scores are compared to 1e-12, ties go to the
        lowest index.

    Notes
    -----
    Left-looking: only the pivots' columns are ever updated, O(nk²). Groups of variables that are
    independent of each other are factorised apart and their pivots merged by score, so g equal
    groups cost 1/g².
    """
    groups = _independent_groups(covariance)
    if len(groups) == 1:
        return _factorise(covariance, target)
    parts = [_factorise(covariance[np.ix_(g, g)], target[g]) for g in groups]
    return _merged(groups, parts)


def _factorise(covariance: np.ndarray, target: np.ndarray) -> PivotedFactor:
    pivots = _Pivots(covariance, target)
    while pivots.choose():
        pass
    return pivots.result()


class _Pivots:
    """The variables chosen so far and what they leave of the others' variances."""

    def __init__(self, covariance: np.ndarray, target: np.ndarray) -> None:
        n = len(covariance)
        self.target = target
        self.rows = np.empty((n, n))
        self.variance = covariance.diagonal().copy()
        self.taken = np.zeros(n, dtype=bool)
        self.chosen: list[int] = []
        self.share: list[float] = []
        self.columns = _Columns(covariance, self.rows)

    def choose(self) -> bool:
        """Add the variable of largest score, unless every target is met."""
        score = self.variance / self.target
        largest = score.max()
        self.share.append(largest)
        if largest <= 1 + COMPARED_TO:
            return False
        pivot = int(np.argmax(score >= largest * (1 - COMPARED_TO)))
        self._eliminate(pivot, self.columns.get(pivot, score, len(self.chosen)))
        return True

    def result(self) -> PivotedFactor:
        """Return the factor of the variables chosen so far."""
        rows = self.rows[: len(self.chosen)]
        return PivotedFactor(tuple(self.chosen), rows, self.variance, np.array(self.share))

    def _eliminate(self, pivot: int, column: np.ndarray) -> None:
        deviation = np.sqrt(self.variance[pivot])
        column /= deviation
        column[self.taken] = 0
        column[pivot] = deviation
        self.rows[len(self.chosen)] = column
        self.variance = np.maximum(self.variance - column**2, 0)
        self.variance[pivot] = 0
        self.taken[pivot] = True
        self.chosen.append(pivot)


class _Columns:
    """Posterior covariances of likely pivots with all variables, several computed at a time.

    A single column needs a product of the whole factor with a vector, which waits for memory; a
    batch of them is a product of matrices. Columns stay in the pool, as far as it reaches, until
    their variable is chosen. When one is thrown out that might have been needed, the batch halves
    (down to the plain left-looking form), otherwise it doubles.

    Invariant: values[slot] is Σ[key] less what the first `settled` rows explain, for the key that
    holds the slot; later rows are subtracted when a column is asked for.
    """

    def __init__(self, covariance: np.ndarray, rows: np.ndarray) -> None:
        n = len(covariance)
        self.covariance = covariance
        self.rows = rows
        self.settled = 0
        self.batch = _FIRST_BATCH
        self.keys = np.full(min(_POOL, n), -1)
        self.slot = np.full(n, -1)
        self.values = np.empty((self.keys.size, n))

    def get(self, key: int, score: np.ndarray, rank: int) -> np.ndarray:
        """Posterior covariance of `key` with every variable given the first `rank` chosen, (n,)."""
        if rank - self.settled == _PANEL:
            self._settle(score, rank)
        if self.slot[key] < 0:
            self._fetch(key, score)
        recent = self.rows[self.settled : rank]
        return np.asarray(self.values[self.slot[key]] - recent[:, key] @ recent)

    def _settle(self, score: np.ndarray, rank: int) -> None:
        """Subtract what the recent rows explain from the columns that may still be needed."""
        recent = self.rows[self.settled : rank]
        live = np.flatnonzero((self.keys >= 0) & (score[self.keys] > 1))
        for first in range(0, live.size, _LARGEST_BATCH):
            slots = live[first : first + _LARGEST_BATCH]
            self.values[slots] -= recent[:, self.keys[slots]].T @ recent
        self.settled = rank

    def _fetch(self, key: int, score: np.ndarray) -> None:
        """Compute the columns of `key` and of the variables likeliest to be chosen after it."""
        absent = np.where(self.slot < 0, score, 0)
        absent[key] = np.inf
        size = min(self.batch, self.keys.size, int(np.count_nonzero(absent > 1)))
        new = np.argsort(-absent, kind="stable")[:size]
        slots = self._free(size, score)
        known = self.rows[: self.settled]
        self.values[slots] = self.covariance[new] - known[:, new].T @ known
        self.keys[slots], self.slot[new] = new, slots

    def _free(self, size: int, score: np.ndarray) -> np.ndarray:
        """Slots to fill: unused ones, then those whose variables will be chosen last if ever."""
        worth = np.where(self.keys < 0, -1, score[self.keys])
        slots = np.lexsort((-self.keys, worth))[:size]
        in_vain = worth[slots[-1]] > 1
        self.batch = max(1, self.batch // 2) if in_vain else min(2 * self.batch, _LARGEST_BATCH)
        evicted = self.keys[slots]
        self.slot[evicted[evicted >= 0]] = -1
        return slots


def _independent_groups(covariance: np.ndarray) -> list[np.ndarray]:
    """Split the indices, ascending, where every covariance is exactly 0."""
    unseen = np.ones(len(covariance), dtype=bool)
    groups = []
    while unseen.any():
        group = _connected(covariance, int(np.argmax(unseen)), int(np.count_nonzero(unseen)))
        unseen[group] = False
        groups.append(group)
    return groups


def _connected(covariance: np.ndarray, seed: int, most: int) -> np.ndarray:
    """Find the indices, at most that many, that a chain of covariances joins to `seed`."""
    inside = np.zeros(len(covariance), dtype=bool)
    inside[seed] = True
    waiting = [seed]
    while waiting and np.count_nonzero(inside) < most:
        few, waiting = waiting[:_LARGEST_BATCH], waiting[_LARGEST_BATCH:]
        found = (covariance[few] != 0).any(axis=0) & ~inside
        inside |= found
        waiting.extend(np.flatnonzero(found))
    return np.flatnonzero(inside)


def _merged(groups: list[np.ndarray], parts: list[PivotedFactor]) -> PivotedFactor:
    """Factor of the whole from those of independent groups."""
    n = sum(g.size for g in groups)
    order, share = _interleaved(groups, parts)
    rows, variance = np.zeros((len(order), n)), np.empty(n)
    for group, part in zip(groups, parts, strict=True):
        variance[group] = part.variance
    for row, (i, j) in zip(rows, order, strict=True):
        row[groups[i]] = parts[i].rows[j]
    pivots = tuple(int(groups[i][parts[i].pivots[j]]) for i, j in order)
    return PivotedFactor(pivots, rows, variance, share)


def _interleaved(
    groups: list[np.ndarray], parts: list[PivotedFactor]
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Pivots as (group, position in it), always the group's whose next score is largest."""
    score = np.array([part.share[0] for part in parts])
    following = [np.append(g[list(p.pivots)], -1) for g, p in zip(groups, parts, strict=True)]
    index = np.array([f[0] for f in following])
    order, share = [], [score.max()]
    used = [0] * len(parts)
    while share[-1] > 1 + COMPARED_TO:
        tied = np.flatnonzero(score >= share[-1] * (1 - COMPARED_TO))
        i = int(tied[np.argmin(index[tied])])
        order.append((i, used[i]))
        used[i] += 1
        score[i], index[i] = parts[i].share[used[i]], following[i][used[i]]
        share.append(score.max())
    return order, np.array(share)
