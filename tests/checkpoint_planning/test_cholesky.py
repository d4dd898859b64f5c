from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy.linalg.lapack import dpstrf

from aftlib.checkpoint_planning import cholesky
from aftlib.checkpoint_planning.cholesky import pivoted_cholesky


def scattered(n: int, seed: int, reach: float = 0.3) -> np.ndarray:
    """Covariance of sensors in the unit square."""
    at = np.random.default_rng(seed).random((n, 2))
    distance = np.linalg.norm(at[:, None] - at[None], axis=2)
    return np.exp(-distance / reach) + 0.01 * np.eye(n)


def blocks(n: int, groups: int, jitter: float = 0.0) -> np.ndarray:
    """Groups of variables equally correlated among each other."""
    size = n // groups
    block = np.full((size, size), 0.5) + 0.5 * np.eye(size)
    scale = 1 + jitter * np.random.default_rng(0).random(n)
    return np.kron(np.eye(groups), block) * scale[:, None] * scale


def trailing(covariance: np.ndarray, target: np.ndarray) -> list[int]:
    """Slow twin: the whole posterior covariance after every choice."""
    left, chosen = covariance.copy(), []
    while True:
        score = left.diagonal() / target
        if score.max() <= 1 + 1e-12:
            return chosen
        i = int(np.flatnonzero(score >= score.max() * (1 - 1e-12))[0])
        left = left - np.outer(left[:, i], left[i]) / left[i, i]
        left[i] = left[:, i] = 0
        chosen.append(i)


CASES = {
    "scattered": scattered(150, 1),
    "one group": blocks(150, 1),
    "five groups": blocks(150, 5),
    "fifty groups": blocks(150, 50),
    "unequal groups": blocks(150, 10, 0.3),
    "independent": np.diag(np.linspace(1, 2, 150)),
}
SIZES = [
    {"_PANEL": 64, "_POOL": 512, "_FIRST_BATCH": 32, "_LARGEST_BATCH": 128},
    {"_PANEL": 3, "_POOL": 4, "_FIRST_BATCH": 2, "_LARGEST_BATCH": 4},
    {"_PANEL": 1, "_POOL": 1, "_FIRST_BATCH": 1, "_LARGEST_BATCH": 1},
    {"_PANEL": 7, "_POOL": 60, "_FIRST_BATCH": 30, "_LARGEST_BATCH": 30},
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_pivots_are_those_of_the_trailing_matrix(name, sizes):
    covariance = CASES[name]
    target = np.full(150, 0.52 * covariance.diagonal().max())
    with mock.patch.multiple(cholesky, **sizes):
        found = pivoted_cholesky(covariance, target)
    assert list(found.pivots) == trailing(covariance, target)
    assert len(found.pivots) >= 20


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_pivots_with_a_target_for_each(sizes):
    target = np.random.default_rng(3).uniform(0.05, 0.8, 150)
    with mock.patch.multiple(cholesky, **sizes):
        found = pivoted_cholesky(CASES["scattered"], target)
    assert list(found.pivots) == trailing(CASES["scattered"], target)


@pytest.mark.parametrize("name", CASES)
def test_factor_and_variance(name):
    covariance = CASES[name]
    found = pivoted_cholesky(covariance, np.full(150, 0.52 * covariance.diagonal().max()))
    pivots = list(found.pivots)
    np.testing.assert_allclose(
        found.rows.T @ found.rows[:, pivots], covariance[:, pivots], atol=1e-13
    )
    explained = (found.rows**2).sum(axis=0)
    np.testing.assert_allclose(found.variance, covariance.diagonal() - explained, atol=1e-12)
    assert not found.variance[pivots].any()
    assert not np.tril(found.rows[:, pivots], -1).any()


def test_larger_than_the_pool_it_agrees_with_lapack():
    covariance = scattered(700, 2)
    found = pivoted_cholesky(covariance, np.full(700, 1e-6))
    factor, order, rank, _ = dpstrf(covariance, lower=1)
    assert rank == 700
    assert list(found.pivots) == (order - 1).tolist()
    np.testing.assert_allclose(found.rows[:, list(found.pivots)].T, np.tril(factor), atol=1e-11)


def test_share_never_increases_and_ends_at_the_target():
    found = pivoted_cholesky(CASES["scattered"], np.full(150, 0.2))
    assert found.share.size == len(found.pivots) + 1
    assert np.all(np.diff(found.share) <= 1e-12)
    assert found.share[-2] > 1 >= found.share[-1]


def test_independent_groups_are_found_through_chains():
    chain = np.eye(6)
    for i, j in ((0, 3), (3, 5), (1, 4)):
        chain[i, j] = chain[j, i] = 0.4
    groups = [g.tolist() for g in cholesky._independent_groups(chain)]
    assert groups == [[0, 3, 5], [1, 4], [2]]


def test_groups_apart_or_together_give_the_same_factor():
    covariance = blocks(60, 6, 0.3)
    target = np.full(60, 0.6)
    apart, together = pivoted_cholesky(covariance, target), cholesky._factorise(covariance, target)
    assert apart.pivots == together.pivots
    np.testing.assert_allclose(apart.rows, together.rows, atol=1e-14)
    np.testing.assert_allclose(apart.share, together.share, rtol=1e-13)
    np.testing.assert_allclose(apart.variance, together.variance, atol=1e-14)


def fetched_by(covariance: np.ndarray, target: float, **sizes) -> tuple[int, list[int]]:
    """Number of pivots, and of columns computed each time."""
    fetched = []
    original = cholesky._Columns._free

    def spy(self, size, score):
        fetched.append(size)
        return original(self, size, score)

    with (
        mock.patch.object(cholesky._Columns, "_free", spy),
        mock.patch.multiple(cholesky, **sizes),
    ):
        found = pivoted_cholesky(covariance, np.full(len(covariance), target))
    return len(found.pivots), fetched


def test_fetches_few_columns_in_vain():
    pivots, fetched = fetched_by(scattered(1200, 4), 0.06, _PANEL=64)
    assert 400 < pivots < 1000
    assert sum(fetched) < 2 * pivots
    assert len(fetched) < pivots / 4


def test_fetches_fewer_when_the_pool_cannot_hold_what_ties():
    tied = blocks(600, 20) + 0.01
    pivots, fetched = fetched_by(tied, 0.53, _POOL=40, _FIRST_BATCH=16, _LARGEST_BATCH=16)
    assert pivots > 250
    assert sum(fetched) < 3 * pivots


def test_a_tied_pivot_is_fetched_before_a_larger_score():
    covariance = np.array([[1 - 1e-13, 0.5, 0.2], [0.5, 1, 0.3], [0.2, 0.3, 0.5]])
    with mock.patch.multiple(cholesky, _FIRST_BATCH=1, _LARGEST_BATCH=1, _POOL=2):
        found = pivoted_cholesky(covariance, np.full(3, 0.9))
    assert found.pivots == (0,)
    np.testing.assert_allclose(found.rows[0], [1, 0.5, 0.2], atol=1e-12)
