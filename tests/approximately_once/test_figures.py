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


def some_grid():
    rows = []
    for method, missing, rate in (("h-best", 0, 0.04), ("greedy", 1, 0.045), ("random", 0.5, 0.05)):
        for m in (2, 3):
            for epsilon in (0.5, 0.7):
                row = {"method": method, "workers": m, "epsilon": epsilon, "rate": rate}
                rows.append(row | {"estimable": m - missing, "sampled": rate, "error": 0.001})
    return pd.DataFrame(rows)


def test_missing_workers_are_counted_from_h_best():
    figure = figures.behind_h_best(some_grid(), "title", start=0.7)
    heights = {trace.name: trace.y for trace in figure.data}
    assert heights == {"greedy": (1, 1), "random": (0.5, 0.5)}
    assert figure.layout.sliders[0].active == 1


def test_error_rates_by_formula_are_lines_and_sampled_ones_have_intervals():
    figure = figures.error_rates(some_grid(), "title", 0.7, delta=0.05)
    assert figure.layout.yaxis.autorangeoptions.include == (0.05,)
    assert figure.layout.annotations[0].text == "δ = 0.05"
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines"}
    assert {name: trace.y for name, trace in lines.items()} == {
        "greedy": (0.045, 0.045), "h-best": (0.04, 0.04)
    }  # fmt: skip
    sampled = next(trace for trace in figure.data if trace.name == "greedy, sampled")
    assert sampled.mode == "markers" and sampled.y == (0.045, 0.045)
    assert sampled.error_y.array == pytest.approx((0.00196, 0.00196))


def test_an_estimate_is_open_and_has_its_half_width():
    table = pd.DataFrame(
        {"sensor": ["X1", "X4", "X4"], "stop": [10, 10, 15], "truth": [1.0, 2.0, 3.0],
         "value": [1.0, 2.0, 3.5], "half_width": [np.nan, np.nan, 0.7],
         "state": ["exact", "exact", "estimated"]}
    )  # fmt: skip
    figure = figures.six_sensors(table, failure=11, recovery=14)
    assert [trace.name for trace in figure.data] == [
        "X1 true", "X1 (A)", "X4 true", "X4 (B)", "X4 estimated",
    ]  # fmt: skip
    assert (figure.data[3].x.tolist(), figure.data[4].y.tolist()) == ([10], [3.5])
    assert figure.data[4].error_y.array.tolist() == [0.7]
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (11, 14)
