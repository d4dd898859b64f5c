"""How reliably workers are estimated when several of them crash at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np

from aftlib.approximately_once.assignment import Assignment
from aftlib.core.checks import require_number
from aftlib.core.extremes import WindowExtremes
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement

EFFORT = 2e9
"""Multiplications spent on one number of crashes: some seconds."""
_NUMBERS = 2e6  # of matrices that are inverted together


@dataclass(frozen=True)
class Crashes:
    """What f workers that crash at once leave of each worker's reliability, whichever they are.

    `least` and `most`, shape (m,), bound the largest variance of a key of each worker, given the
    keys of all workers but `count` = f crashed ones, itself among them, over all choices of the
    others. They are equal where that is known exactly.
    """

    count: int
    least: np.ndarray
    most: np.ndarray

    @property
    def exact(self) -> bool:
        """Whether the bounds are one."""
        return bool((self.least == self.most).all())

    def reliability(self, requirement: Requirement) -> np.ndarray:
        """R of each worker that holds whichever f workers crash, shape (m,); exact if `exact`."""
        return requirement.reliability(self.most)


def crash_together(model: GaussianModel, assignment: Assignment, crashes: int) -> Crashes:
    """Bound every worker's variance when it crashes together with any others, `crashes` in all.

    One crash is D1 eq. (7). ValueError when `crashes` is no whole number of 1 … m, or the model is
    of minima or maxima.

    Notes
    -----
    Of an independent group only the workers that have keys of it matter, and since losing more
    never makes a variance smaller, only choices of exactly f of them. All are tried as long as that
    takes no more than `EFFORT`. Else the workers are merged into as few blocks as are affordable:
    any f workers lie in f blocks, whose loss is no better, so that this bounds the variance from
    above. From below the largest smaller number of crashes that is affordable bounds it.

    Examples
    --------
    Two pairs; whoever crashes alone is told by the other of its pair:

    >>> from aftlib import GaussianModel, Requirement, assign_spread
    >>> model = GaussianModel(np.zeros(4), np.kron(np.eye(2), [[1, 0.9], [0.9, 1]]))
    >>> assignment = assign_spread(model, 4, Requirement(0.9, 0.05))
    >>> [crash_together(model, assignment, f).most.round(2).tolist() for f in (1, 2)]
    [[0.19, 0.19, 0.19, 0.19], [1.0, 1.0, 1.0, 1.0]]
    """
    if isinstance(model, WindowExtremes):
        raise ValueError(
            "model must be of means or sums, got WindowExtremes: variances do not bound minima and "
            "maxima; assess an assignment of merged workers by `assess` instead"
        )
    m = len(assignment.workers)
    require_number("crashes", crashes, least=1, most=m, whole=True)
    owner, least, most = assignment.worker_of, np.zeros(m), np.zeros(m)
    for group in model.groups:
        precision = model.precision[np.ix_(group, group)]
        sets = [np.flatnonzero(owner[group] == i) for i in np.unique(owner[group])]
        effort = EFFORT * len(group) / model.size
        bounds = _bounds(precision, sets, min(crashes, len(sets)), effort)
        for bound, found in zip((least, most), bounds, strict=True):
            np.maximum.at(bound, owner[group], found)
    return Crashes(int(crashes), least, most)


def _bounds(
    precision: np.ndarray, sets: Sequence[np.ndarray], many: int, effort: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the variance of each key of a group once `many` of its sets are lost."""

    def affordable(parts: Sequence[np.ndarray], lost: int) -> bool:
        size = lost * max(map(len, parts))
        return comb(len(parts), lost) * size**3 <= effort

    fewer = next(lost for lost in range(many, 0, -1) if lost == 1 or affordable(sets, lost))
    least = _largest_variances(precision, sets, fewer)
    if fewer == many:
        return least, least

    def merged(count: int) -> list[np.ndarray]:
        parts = np.array_split(np.arange(len(sets)), count)
        return [np.concatenate([sets[i] for i in part]) for part in parts]

    counts = range(len(sets), many - 1, -1)
    blocks = next(merged(c) for c in counts if c == many or affordable(merged(c), many))
    return least, _largest_variances(precision, blocks, many)


def _largest_variances(precision: np.ndarray, sets: Sequence[np.ndarray], lost: int) -> np.ndarray:
    """Largest diagonal entry of (Λ_DD)⁻¹ of each key, D all unions of `lost` sets that hold it."""
    n, width = len(precision), max(map(len, sets))
    places = np.full((len(sets), width), n)  # n stands for no key
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
