"""Figures show the numbers they were given."""

import numpy as np
import pytest

from aftlib.approximately_once import figures
from aftlib.core.gaussian import GaussianModel


def test_densities_by_hand():
    model = GaussianModel([18.0, 19.0], [[4.0, 3.0], [3.0, 4.0]])
    prior, posterior = figures.densities(model, observed=20.0, epsilon=1.5).data
    assert (prior.name, posterior.name) == ("X1", "X1 given X2")
    assert posterior.x[np.argmax(posterior.y)] == pytest.approx(18.75, abs=0.05)
    assert max(posterior.y) == pytest.approx(1 / np.sqrt(2 * np.pi * 1.75), rel=1e-3)
    assert max(prior.y) == pytest.approx(1 / np.sqrt(8 * np.pi), rel=1e-3)


def test_the_axis_of_error_rates_shows_on_which_side_of_delta_they_lie():
    figure = figures.promise(figures.go.Figure(), delta=0.05)
    assert figure.layout.yaxis.autorangeoptions.include == (0.05,)
    assert figure.layout.yaxis.rangemode != "tozero"
    assert figure.layout.annotations[0].text == "promised δ = 0.05"
