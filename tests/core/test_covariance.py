"""Independent groups and symmetry of a covariance, without a second matrix of its size."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from aftlib.core.covariance import independent_groups, largest_asymmetry


@pytest.mark.parametrize("n", [1, 5, 127, 300])
@pytest.mark.parametrize("least", [0.0, 0.3])
def test_groups_are_scipys_connected_components(n, least):
    rng = np.random.default_rng(n)
    covariance = np.diag(rng.uniform(1, 4, n))
    for i, j in rng.integers(0, n, (n // 2, 2)):
        covariance[i, j] = covariance[j, i] = covariance[i, j] or rng.uniform(-1, 1)
    scale = np.sqrt(np.diag(covariance))
    graph = np.abs(covariance) / np.outer(scale, scale) > least
    count, label = connected_components(graph, directed=False)
    wanted = [np.flatnonzero(label == g).tolist() for g in range(count)]
    assert [g.tolist() for g in independent_groups(covariance, least)] == wanted


@pytest.mark.parametrize("n", [1, 2, 127, 300])
def test_the_largest_asymmetry_is_that_of_the_whole_matrix(n):
    matrix = np.random.default_rng(n).normal(size=(n, n))
    gap = np.abs(matrix - matrix.T)
    largest, i, j = largest_asymmetry(matrix)
    assert largest == gap.max() == gap[i, j]
    assert (i, j) == np.unravel_index(gap.argmax(), gap.shape)


def test_a_covariance_on_one_side_only_connects():
    covariance = np.eye(3)
    covariance[1, 0] = 1e-12  # within what counts as symmetric
    assert [group.tolist() for group in independent_groups(covariance)] == [[0, 1], [2]]
    assert [group.tolist() for group in independent_groups(covariance.T)] == [[0, 1], [2]]
