"""Covariances from few rows or rows with gaps, their inverse, and their independent groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg.lapack import dpotri

from aftlib.core.checks import listed

LEAST_EIGENVALUE = 1e-6
"""Least eigenvalue of a correlation matrix; correlations shrink until the matrix has it."""

MOST_STEPS = 200
"""Most steps of expectation maximization."""

PRECISE = 1e-5
"""Change of a correlation at which expectation maximization ends."""

MOST_CELLS = 10**7
"""Cells of an array of rows that are solved together."""

MOST_ORDERED = 300
"""Most keys of a correlated group that are put in the best order of their clustering."""


def fit_moments(
    values: np.ndarray, names: Sequence[str], missing: str, shrinkage: float | str
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of rows (rows, n), as `GaussianModel.fit` describes.

    ValueError, which names the columns, when they do not determine both.
    """
    if missing == "estimate":
        values = values[~np.isnan(values).all(axis=1)]  # a row of gaps adds no information
    rows, n = values.shape
    bad = np.isinf(values) if missing == "estimate" else ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"frame must be finite, got {int(bad.sum())} missing or non-finite values in "
            f"{int(bad.any(axis=1).sum())} of {rows} rows, in {listed(names, bad.any(axis=0))}"
            "; drop or fill those rows first, or give missing='estimate'"
        )
    if rows <= n and shrinkage == 0:
        raise ValueError(
            f"frame must have more rows than keys, got {rows} rows for {n} keys; "
            "give more rows or fewer keys, or shrinkage='auto'"
        )
    least = np.fmin.reduce(values, initial=np.nan)
    stuck = ~(least < np.fmax.reduce(values, initial=np.nan))
    if stuck.any():
        raise ValueError(
            f"each key must have two different values, got none in {listed(names, stuck)}; drop it"
        )
    if shrinkage == 0 and not np.isnan(values).any():
        return _complete_moments(values, names)
    return _shrunk_moments(values, shrinkage, names)


def _complete_moments(values: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
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


def _shrunk_moments(
    values: np.ndarray, shrinkage: float | str, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance with shrunk correlations; of greatest likelihood if there are gaps (NaN).

    `values` (rows, n) have at least two different values per column, and one in each row. The
    correlations R shrink to (1 − λ) R + λ I with λ = `shrinkage`; "auto" is λ = Σ Var(r_ij) /
    Σ r_ij² over i ≠ j, which has the least expected squared error (Schäfer and Strimmer 2005,
    target D). With a number, λ is at least the part of that which gaps cause: short records with
    many gaps would otherwise claim far too small posterior variances.

    If there are gaps, expectation maximization replaces each by its conditional mean and adds its
    conditional covariance, so that the inverse of the covariance is as honest as without gaps
    (Little and Rubin 2002, section 8.2). It shrinks the correlations in each step. ValueError when
    two keys never occur together, because nothing is known about their covariance then.
    """
    present = np.isfinite(values)
    counts = present.T.astype(float) @ present  # rows that have both keys of a pair
    if (apart := np.argwhere(np.triu(counts < 2, 1))).size:
        one, other = (names[i] for i in apart[0])
        raise ValueError(
            f"each two keys must occur together in two rows, got fewer for {one!r} and {other!r}: "
            "nothing is known about their covariance; drop one, or give a record that has both"
        )
    mean = np.nanmean(values, axis=0)
    deviation = np.nanstd(values, axis=0)
    z = np.where(present, (values - mean) / deviation, 0.0)
    products = z.T @ z / counts
    automatic = shrinkage == "auto"
    part = 1.0 if automatic else 1 - counts / len(values)  # everything, or what gaps cause
    share = max(_best_share(z, counts, products, part), 0.0 if automatic else float(shrinkage))

    # from pairs of keys, each over its own rows: only `_shrunk` makes that positive definite
    spread = _shrunk(products, 0.0)
    if not present.all():
        off, spread = _maximize(z, ~present, spread, share)
        mean = mean + off * deviation
        share = 0.0
    scale = np.sqrt(np.diag(spread))
    correlation = _shrunk(spread / np.outer(scale, scale), share)
    unbiased = deviation * scale * np.sqrt(len(values) / (len(values) - 1))
    return mean, correlation * np.outer(unbiased, unbiased)


def _best_share(
    z: np.ndarray, counts: np.ndarray, products: np.ndarray, part: np.ndarray | float
) -> float:
    """The share λ of least expected squared error; r_ij is the mean of z_i z_j over common rows.

    `part` is the part of each Var(r_ij) that counts: 1, or the share of rows without both keys.
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
    parts = []
    for count in np.unique(missing[missing > 0]).tolist():
        alike = np.flatnonzero(missing == count)
        for chosen in np.array_split(alike, max(1, len(alike) * count * n // MOST_CELLS)):
            parts.append((chosen, np.nonzero(gaps[chosen])[1].reshape(len(chosen), count)))
    mean = np.zeros(n)
    for _ in range(MOST_STEPS):
        precision = np.linalg.inv(spread)
        added = np.zeros((n, n))
        filled = np.where(gaps, 0.0, z - mean)
        for chosen, at in parts:
            square = at[:, :, None], at[:, None, :]
            conditional = np.linalg.inv(precision[square])
            pull = precision[at] @ filled[chosen][:, :, None]
            filled[chosen[:, None], at] = -(conditional @ pull)[:, :, 0]
            np.add.at(added, square, conditional)
        step = filled.mean(axis=0)
        filled -= step
        before = spread
        spread = (filled.T @ filled + added) / rows
        spread = (1 - share) * spread + share * np.diag(np.diag(spread))
        mean = mean + step
        if np.abs(spread - before).max() < PRECISE:
            break
    return mean, spread


def independent_groups(covariance: np.ndarray, least: float = 0.0) -> list[np.ndarray]:
    """Connected components of the correlation graph, each as ascending key indices.

    Two keys are connected if their |correlation| exceeds `least`; for `least` = 0, if their
    covariance is not exactly 0.
    """
    deviation = np.sqrt(covariance.diagonal())
    groups = []
    unseen = np.ones(len(covariance), dtype=bool)
    while unseen.any():
        edge = inside = np.arange(len(unseen)) == unseen.argmax()
        while edge.any() and (inside != unseen).any():
            near = np.abs(covariance[edge]) > least * deviation[edge, None] * deviation
            edge = near.any(axis=0) & ~inside
            inside = inside | edge
        unseen &= ~inside
        groups.append(np.flatnonzero(inside))
    return groups


def invert_factored(factor: np.ndarray) -> np.ndarray:
    """Return (L Lᵀ)⁻¹ for a lower factor L."""
    inverse: np.ndarray = dpotri(factor, lower=1)[0]
    return np.where(np.tri(len(inverse), dtype=bool), inverse, inverse.T)


def correlated_groups(covariance: np.ndarray) -> list[np.ndarray]:
    """An order of all keys in which strongly correlated keys are neighbours, cut into groups.

    The groups are the connected components of the correlation graph (rounding excluded). If there
    is more than one, each has ascending key indices. A single one is in the order of its
    clustering. The clustering tree permits several orders. Up to `MOST_ORDERED` keys the order of
    least total distance is chosen, O(n³); with more keys any order, O(n²).
    """
    groups = independent_groups(covariance, 1e-12)
    if len(groups) > 1 or len(covariance) < 3:
        return groups
    # imported here: they take longer to load than everything else, in every Spark worker
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    deviation = np.sqrt(np.diag(covariance))
    distance = np.abs(covariance)  # in place: a matrix of 10,000 sensors has 0.8 GB
    distance /= -deviation
    distance /= deviation[:, None]
    distance += 1
    tree = linkage(
        squareform(distance.clip(0, out=distance), checks=False),
        "average",
        optimal_ordering=len(covariance) <= MOST_ORDERED,
    )
    return [leaves_list(tree)]
