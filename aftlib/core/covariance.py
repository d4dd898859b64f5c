"""Covariances from few rows or rows with gaps, and the independent groups of keys in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_EIGENVALUE = 1e-6
"""Least eigenvalue of a correlation matrix; correlations shrink until the matrix has it."""

MOST_ORDERED = 300
"""Most keys of a correlated group that are put in the best order of their clustering."""

_ROWS = 128
"""Rows of a covariance that are compared at once, which saves a second n × n matrix."""


def complete_moments(values: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and unbiased covariance without gaps; ValueError for perfectly correlated keys."""
    covariance = np.atleast_2d(np.cov(values, rowvar=False))
    scale = np.sqrt(np.diag(covariance))
    twins = np.argwhere(np.triu(np.abs(covariance) > (1 - 1e-12) * np.outer(scale, scale), 1))
    if len(twins):
        one, other = (names[i] for i in twins[0])
        raise ValueError(
            f"keys must differ, got {one!r} and {other!r}, which are perfectly correlated; drop one"
        )
    return values.mean(axis=0), covariance


def pairwise_moments(values: np.ndarray, shrinkage: float | str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of values with gaps; an entry uses the rows that have the entry's keys.

    `values` (rows, n) are NaN where one is missing; each column has at least two different values.
    The correlations R shrink to (1 − λ) R + λ I, where `shrinkage` is λ. "auto" is
    λ = Σ Var(r_ij) / Σ r_ij² over i ≠ j, which has the least expected squared error (Schäfer and
    Strimmer 2005, target D). λ is raised if the result would not be positive definite.
    """
    present = np.isfinite(values)
    counts = present.T.astype(float) @ present
    mean, deviation = np.nanmean(values, axis=0), np.nanstd(values, axis=0, ddof=1)
    z = np.where(present, (values - mean) / deviation, 0.0)

    # r_ij is the mean of w = z_i z_j over the rows that have both; the spread of w gives Var(r_ij).
    common = np.maximum(counts, 1)
    products, squares = z.T @ z / common, (z**2).T @ z**2 / common
    correlation = products * common / np.maximum(common - 1, 1)
    np.fill_diagonal(correlation, 1.0)
    if shrinkage == "auto":
        noise = (squares - products**2) * common**2 / np.maximum(common - 1, 1) ** 3
        off = ~np.eye(len(mean), dtype=bool)
        signal = (correlation[off] ** 2).sum()
        share = min(1.0, float(noise[off].sum() / signal)) if signal > 0 else 1.0
    else:
        share = float(shrinkage)

    # Eigenvalues of the shrunk matrix are (1 − λ) e + λ: λ grows until the least is positive.
    least = float(np.linalg.eigvalsh(correlation)[0])
    if (1 - share) * least + share < LEAST_EIGENVALUE:
        share = (LEAST_EIGENVALUE - least) / (1 - least)
    correlation = (1 - share) * correlation + share * np.eye(len(mean))
    return mean, correlation * np.outer(deviation, deviation)


def independent_groups(covariance: np.ndarray, least: float = 0.0) -> list[np.ndarray]:
    """Connected components of the correlation graph, each as ascending key indices.

    Two keys are connected if their |correlation| exceeds `least`; for `least` = 0, if their
    covariance is not exactly 0. Each row is read at most once, O(n²). If all keys form one group,
    a few rows suffice.
    """
    deviation = np.sqrt(covariance.diagonal()) if least else np.empty(0)
    unseen, groups = np.ones(len(covariance), dtype=bool), []
    while unseen.any():
        inside = np.zeros(len(covariance), dtype=bool)
        waiting = [int(np.argmax(unseen))]
        inside[waiting] = True
        while waiting and inside.sum() < unseen.sum():
            rows = waiting[:_ROWS]
            near = (covariance[rows] != 0) | (covariance[:, rows].T != 0)
            if least:
                near = np.abs(covariance[rows]) > np.outer(least * deviation[rows], deviation)
            neighbours = near.any(axis=0) & ~inside
            inside |= neighbours
            waiting = [*waiting[_ROWS:], *np.flatnonzero(neighbours)]
        unseen &= ~inside
        groups.append(np.flatnonzero(inside))
    return groups


def largest_asymmetry(covariance: np.ndarray) -> tuple[float, int, int]:
    """Largest |Σ_ij − Σ_ji|, and the first i, j with this value, without a second n × n matrix."""
    worst = (-1.0, 0, 0)
    for first in range(0, len(covariance), _ROWS):
        upper, lower = covariance[first : first + _ROWS, first:], covariance[first:, first:]
        gap = np.abs(upper - lower[:, : len(upper)].T)
        i, j = np.unravel_index(gap.argmax(), gap.shape)
        if gap[i, j] > worst[0]:
            worst = float(gap[i, j]), first + int(i), first + int(j)
    return worst


def correlated_groups(covariance: np.ndarray) -> list[np.ndarray]:
    """Connected components of the correlation graph; if there is one only, clustering orders it.

    Keys that are neighbours in the order are strongly correlated. The clustering tree permits
    several orders. Up to `MOST_ORDERED` keys the order of least total distance is chosen, O(n³);
    with more keys any order, O(n²).
    """
    groups = independent_groups(covariance, 1e-12)
    if len(groups) > 1 or len(covariance) < 3:
        return groups
    # imported here: they take longer to load than everything else, in every Spark worker
    from scipy.cluster.hierarchy import leaves_list, linkage

    deviation, n = np.sqrt(np.diag(covariance)), len(covariance)
    distance = np.empty(n * (n - 1) // 2)  # above the diagonal, row by row
    for i in range(n - 1):
        begin, end = (len(distance) - (n - j) * (n - j - 1) // 2 for j in (i, i + 1))
        distance[begin:end] = np.abs(covariance[i, i + 1 :]) / deviation[i + 1 :]
        distance[begin:end] /= -deviation[i]
    distance += 1
    np.maximum(distance, 0, out=distance)
    tree = linkage(distance, "average", optimal_ordering=n <= MOST_ORDERED)
    return [leaves_list(tree)]
