"""Independent groups of a covariance."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from aftlib.core.covariance import independent_groups
from aftlib.core.gaussian import GaussianModel


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


def test_a_covariance_on_one_side_only_connects():
    covariance = np.eye(3)
    covariance[1, 0] = 1e-12  # within what counts as symmetric
    model = GaussianModel(np.zeros(3), covariance)
    assert [group.tolist() for group in model.groups] == [[0, 1], [2]]
    assert np.array_equal(model.covariance, model.covariance.T)


def test_rows_without_any_value_tell_nothing():
    rng = np.random.default_rng(1)
    few, empty = rng.normal(size=(4, 6)), np.full((20, 6), np.nan)
    with pytest.raises(ValueError, match="more rows than keys, got 4 rows for 6 keys"):
        GaussianModel.fit(np.vstack([few, empty]), missing="estimate")
    many = rng.normal(size=(30, 6))
    with_empty = GaussianModel.fit(np.vstack([many, empty]), missing="estimate")
    assert np.array_equal(with_empty.covariance, GaussianModel.fit(many).covariance)
    twins = np.vstack([np.repeat(many[:, :1], 2, axis=1), empty[:1, :2]])
    with pytest.raises(ValueError, match="perfectly correlated; drop one"):
        GaussianModel.fit(twins, missing="estimate")
