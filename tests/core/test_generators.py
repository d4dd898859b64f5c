"""Generated data: the model of the document, and bytes that no cut changes."""

import numpy as np

from aftlib.core.generators import ROWS_PER_RANGE, block_model, draw, draw_windows
from tests.refusals import refused


def test_block_model_is_the_documents():
    model = block_model()
    assert model.covariance.shape == (120, 120)
    blocks = np.kron(np.eye(10), np.full((12, 12), 0.9))
    np.testing.assert_array_equal(model.covariance, np.where(np.eye(120), 1, blocks))


def test_any_cut_gives_the_same_rows():
    model, rows = block_model(4, 2), ROWS_PER_RANGE + 100
    whole = draw(model, rows, 7)
    cuts = [0, 10, ROWS_PER_RANGE - 1, ROWS_PER_RANGE + 1, rows]
    parts = [draw(model, b - a, 7, a) for a, b in zip(cuts, cuts[1:], strict=False)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert not np.array_equal(whole, draw(model, rows, 8))
    assert draw(model, 0, 7).shape == (0, 4)


def test_sample_has_the_models_moments():
    model = block_model(6, 2, variance=60, covariance=30, mean=5)
    sample = draw(model, 200_000, 3)
    np.testing.assert_allclose(sample.mean(axis=0), 5, atol=0.1)
    np.testing.assert_allclose(np.cov(sample.T), model.covariance, atol=1)


def test_windows_are_means_of_successive_rows():
    model = block_model(4, 2)
    sample, windows = draw(model, 12, 7), draw_windows(model, 10, 7, 3)
    assert windows.shape == (10, 4)
    for begin, window in enumerate(windows):
        np.testing.assert_allclose(window, sample[begin : begin + 3].mean(axis=0))


test_bad_arguments_are_named = refused(
    lambda call: call(),
    (lambda: block_model(120, 7), "blocks must divide dimensions = 120, got 7; choose a divisor"),
    (lambda: block_model(4, 2, covariance=1.0), "covariance must be positive definite"),
)
