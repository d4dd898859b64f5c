"""Windows: refused arguments, and the model of their results."""

import numpy as np
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.windows import AGGREGATES, Windows
from tests.refusals import refused

test_bad_windows_are_refused = refused(
    lambda arguments: Windows(*arguments),
    ((0, 1), "width must be at least 1, got 0"),
    ((3, 0), "slide must be at least 1 and at most 3, got 0"),
    ((3, 4), "slide must be at least 1 and at most 3, got 4"),
    ((3, 1, "mode"), "query must be one of mean, sum.*, got 'mode'"),
    ((3, 1, ["sum"]), r"query must be one of mean, sum.*, got \['sum'\]"),
)


TWINS = {"mean": np.nanmean, "sum": np.nansum}
STEP = GaussianModel([1.0, 2.0], [[1.0, 0.5], [0.5, 2.0]])


@pytest.fixture(params=AGGREGATES)
def name(request):
    return request.param


def test_the_model_is_that_of_the_results(name):
    rng = np.random.default_rng(2)
    model = STEP.aggregate(4, name)
    windows = rng.multivariate_normal(STEP.mean, STEP.covariance, size=(20_000, 4))
    results = TWINS[name](windows, axis=1)
    off = (model.mean - results.mean(axis=0)) / results.std(axis=0)
    np.testing.assert_allclose(off, 0, atol=0.08)  # five standard errors of 4,000 draws
    np.testing.assert_allclose(model.covariance, np.cov(results.T), rtol=0.15)
