"""Figures show the numbers they were given."""

import numpy as np
import pandas as pd
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
    rates = {"pooled": 0.02, "pooled_low": 0.01, "pooled_high": 0.04}
    grid = pd.DataFrame({"method": ["greedy"] * 2, "workers": [2, 3], "epsilon": 0.5} | rates)
    figure = figures.error_rates(grid, "workers", "title", 0.65, delta=0.05)
    assert figure.layout.yaxis.autorangeoptions.include == (0.05,)
    assert figure.layout.yaxis.rangemode != "tozero"
    assert figure.layout.annotations[0].text == "δ = 0.05"
    (curve,) = figure.data
    assert (curve.x, curve.y, curve.error_y.array) == ((2, 3), (0.02, 0.02), (0.02, 0.02))
    assert curve.error_y.arrayminus == pytest.approx((0.01, 0.01))


def test_samples_and_what_was_observed():
    model = GaussianModel([18.0, 19.0], [[4.0, 3.0], [3.0, 4.0]])
    figure = figures.correlation(model, np.array([[1.0, 2.0], [3.0, 4.0]]), observed=20.0)
    assert (figure.data[0].x.tolist(), figure.data[0].y.tolist()) == ([2, 4], [1, 3])
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("X2", "X1")
    assert figure.layout.shapes[0].x0 == 20


def test_an_estimate_is_open_and_has_its_half_width():
    table = pd.DataFrame(
        {"key": ["X1", "X4", "X4"], "stop": [10, 10, 15], "truth": [1.0, 2.0, 3.0],
         "value": [1.0, 2.0, 3.5], "half_width": [np.nan, np.nan, 0.7],
         "estimated": [False, False, True]}
    )  # fmt: skip
    figure = figures.six_sensors(table, failure=11, recovery=14)
    assert [trace.name for trace in figure.data] == [
        "X1 true", "X1 (A)", "X4 true", "X4 (B)", "X4 estimated",
    ]  # fmt: skip
    assert (figure.data[3].x.tolist(), figure.data[4].y.tolist()) == ([10], [3.5])
    assert figure.data[4].error_y.array.tolist() == [0.7]
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (11, 14)
