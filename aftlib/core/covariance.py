"""Covariances from few rows or rows with gaps, and the independent groups of keys in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_EIGENVALUE = 1e-6
"""Least eigenvalue of a correlation matrix; correlations shrink until the matrix has it."""

MOST_STEPS, PRECISE = 200, 1e-5
"""Steps of expectation maximization, and the change of a correlation at which they end."""

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


def gappy_moments(
    values: np.ndarray, shrinkage: float | str, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of values with gaps (NaN), by maximum likelihood.

    `values` (rows, n) have at least two different values per column. Expectation maximization
    replaces each gap by its conditional mean and adds its conditional covariance, so that the
    inverse of the covariance is as honest as without gaps (Little and Rubin 2002, section 8.2).
    In each step the correlations R shrink to (1 − λ) R + λ I with λ = `shrinkage`; "auto" is
    λ = Σ Var(r_ij) / Σ r_ij² over i ≠ j, which has the least expected squared error (Schäfer and
    Strimmer 2005, target D). With 0, λ has only the part of Var(r_ij) that gaps cause: short
    records with many gaps would otherwise claim far too small posterior variances. ValueError when
    two keys never occur together, because nothing is known about their covariance then.
    """
    values = values[np.isfinite(values).any(axis=1)]
    present = np.isfinite(values)
    counts = present.T.astype(float) @ present
    if (apart := np.argwhere(np.triu(counts < 2, 1))).size:
        one, other = (names[i] for i in apart[0])
        raise ValueError(
            f"each two keys must occur together in two rows, got fewer for {one!r} and {other!r}: "
            "nothing is known about their covariance; drop one, or give a record that has both"
        )
    mean, deviation = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    z = np.where(present, (values - mean) / deviation, 0.0)
    products = z.T @ z / counts
    share = float(shrinkage or 0) if shrinkage != "auto" else _best_share(z, counts, products)
    if shrinkage == 0:
        share = _best_share(z, counts, products, 1 - counts / len(values))

    off, spread = np.zeros(len(mean)), _shrunk(products, 0.0)
    if not present.all():
        off, spread = _maximize(z, ~present, spread, share)
    scale = np.sqrt(np.diag(spread))
    done = 0.0 if not present.all() else share  # EM has shrunk it already
    correlation = _shrunk(spread / np.outer(scale, scale), done)
    unbiased = deviation * scale * np.sqrt(len(values) / (len(values) - 1))
    return mean + off * deviation, correlation * np.outer(unbiased, unbiased)


def _best_share(
    z: np.ndarray, counts: np.ndarray, products: np.ndarray, part: np.ndarray | float = 1.0
) -> float:
    """The share λ of least expected squared error; r_ij is the mean of z_i z_j over common rows.

    `part` is the part of each Var(r_ij) that counts.
    """
    squares = (z**2).T @ z**2 / counts
    noise = part * (squares - products**2) * counts**2 / (counts - 1) ** 3
    off = ~np.eye(len(counts), dtype=bool)
    signal = (products[off] ** 2).sum()
    return min(1.0, float(noise[off].sum() / signal)) if signal > 0 else 1.0


def _shrunk(correlation: np.ndarray, share: float) -> np.ndarray:
    """(1 − λ) R + λ I with λ = `share`, or larger if the result would not be positive definite."""
    correlation = correlation.copy()
    np.fill_diagonal(correlation, 1.0)
    least = float(np.linalg.eigvalsh(correlation)[0])
    if (1 - share) * least + share < LEAST_EIGENVALUE:
        share = (LEAST_EIGENVALUE - least) / (1 - least)
    return (1 - share) * correlation + share * np.eye(len(correlation))


def _maximize(
    z: np.ndarray, gaps: np.ndarray, spread: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of greatest likelihood from standardized rows, 0 where a gap is.

    With the precision Λ, the gaps M of a row have the conditional covariance (Λ_MM)⁻¹ and the
    conditional mean μ_M − (Λ_MM)⁻¹ Λ_MO (z_O − μ_O); rows with as many gaps are solved together.
    """
    rows, n = z.shape
    missing = gaps.sum(axis=1)
    parts = [
        (chosen, np.nonzero(gaps[chosen])[1].reshape(len(chosen), count))
        for count in np.unique(missing[missing > 0]).tolist()
        for chosen in np.array_split(*_chunks(np.flatnonzero(missing == count), count * n))
    ]
    mean = np.zeros(n)
    for _ in range(MOST_STEPS):
        precision, added = np.linalg.inv(spread), np.zeros((n, n))
        filled = np.where(gaps, 0.0, z - mean)
        for chosen, at in parts:
            square = at[:, :, None], at[:, None, :]
            conditional = np.linalg.inv(precision[square])
            pull = precision[at] @ filled[chosen][:, :, None]
            filled[chosen[:, None], at] = -(conditional @ pull)[:, :, 0]
            np.add.at(added, square, conditional)
        step = filled.mean(axis=0)
        filled -= step
        before, spread = spread, (filled.T @ filled + added) / rows
        spread = (1 - share) * spread + share * np.diag(np.diag(spread))
        mean = mean + step
        if np.abs(spread - before).max() < PRECISE:
            break
    return mean, spread


def _chunks(rows: np.ndarray, cells: int) -> tuple[np.ndarray, int]:
    """Rows, and into how many parts to split them so that no array has over 10⁷ cells."""
    return rows, max(1, len(rows) * cells // 10**7)


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
