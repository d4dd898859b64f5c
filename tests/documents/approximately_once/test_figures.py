"""Figures show the numbers they were given."""

import numpy as np
import pandas as pd
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.documents.approximately_once import figures
from aftlib.documents.approximately_once.error_rates import ASSIGN


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
                rows.append(row | {"estimable": m - missing, "measured": rate, "error": 0.001})
    return pd.DataFrame(rows)


def test_every_assignment_has_a_look_without_which_figures_of_real_sensors_omit_it():
    assert [*figures.LOOKS] == [*ASSIGN]


def test_missing_workers_are_counted_from_h_best():
    figure = figures.behind_h_best(some_grid(), "title", start=0.7)
    heights = {trace.name: trace.y for trace in figure.data}
    assert heights == {"greedy": (1, 1), "random": (0.5, 0.5)}
    assert figure.layout.sliders[0].active == 1


def test_error_rates_by_formula_are_lines_and_sampled_ones_have_intervals():
    figure = figures.error_rates(some_grid(), "workers", "title", 0.7, delta=0.05)
    assert figure.layout.yaxis.rangemode == "tozero"
    assert figure.layout.yaxis.autorangeoptions.include == (0.05,)
    assert figure.layout.annotations[0].text == "δ = 0.05"
    lines = {trace.name: trace.y for trace in figure.data if trace.mode == "lines"}
    rates = {"greedy": 0.045, "h-best": 0.04, "random": 0.05}
    assert lines == {name: (rate, rate) for name, rate in rates.items()}
    sampled = next(trace for trace in figure.data if trace.name == "greedy, sampled")
    assert sampled.mode == "markers" and sampled.y == (0.045, 0.045)
    assert sampled.error_y.array == pytest.approx((0.00196, 0.00196))


def test_an_epsilon_without_estimable_workers_says_so():
    grid = some_grid()
    grid.loc[grid["epsilon"] == 0.5, ["rate", "measured", "error"]] = np.nan
    for start, said in ((0.5, True), (0.7, False)):
        figure = figures.error_rates(grid, "workers", "title", start, delta=0.05)
        words = figure.data[-1]
        assert (words.mode, words.text) == ("text", ("no estimable worker",))
        assert (len(words.y) == 1) == said
        assert (words.textposition, words.showlegend) == ("middle right", False)
        at_first, at_second = (step.args[0] for step in figure.layout.sliders[0].steps)
        assert len(at_first["y"]) == len(at_second["y"]) == len(figure.data)
        # it begins at the left end of the axis, so that no end of the figure cuts it
        assert (at_first["x"][-1], at_first["y"][-1]) == ([2], [0.025])
        assert at_second["y"][-1] == []
    names = [
        trace.name for trace in figures.error_rates(some_grid(), "workers", "", 0.7, 0.05).data
    ]
    assert figures.EMPTY not in names


def test_rates_and_workers_are_drawn_over_epsilon_too():
    figure = figures.error_rates(some_grid(), "epsilon", "title", 3, delta=0.05)
    assert {trace.x for trace in figure.data if trace.mode == "lines"} == {(0.5, 0.7)}
    assert figure.layout.sliders[0].currentvalue.prefix == "m = "
    figure = figures.estimable_over_epsilon(some_grid(), "title", 3)
    heights = {trace.name: trace.y for trace in figure.data}
    assert heights == {"greedy": (2, 2), "h-best": (3, 3), "random": (2.5, 2.5)}


def test_figure_10_is_linear_from_zero():
    layout = figures.estimable_workers(some_grid(), "title", 0.7).layout
    assert layout.xaxis.type is None and layout.xaxis.range[0] == layout.yaxis.range[0] == 0


def test_the_joint_density_is_largest_at_the_mean():
    model = GaussianModel([18.0, 19.0], [[4.0, 3.0], [3.0, 4.0]])
    (contour,) = figures.joint_density(model, observed=20.0).data
    row, column = np.unravel_index(np.argmax(contour.z), np.shape(contour.z))
    assert (contour.y[row], contour.x[column]) == (18, 19)
    assert np.max(contour.z) == pytest.approx(1 / (2 * np.pi * np.sqrt(7)))
    # as the slope of (1) says, X1 is above its mean where X2 is
    assert contour.z[row + 10][column + 10] > contour.z[row + 10][column - 10]


def test_real_sets_show_predicted_rates_beside_measured_ones():
    summary = pd.DataFrame(
        {"set": "a_b", "sensors": 4, "method": ["greedy", "random"], "estimable": [3, 2],
         "rate": [0.01, 0.02], "measured": [0.03, 0.04]}
    )  # fmt: skip
    figure = figures.real_sets(summary, 0.05)
    heights = [(trace.name, list(trace.y)) for trace in figure.data]
    assert heights == [
        ("greedy", [3]), ("greedy", [0.03]), ("greedy, by the model", [0.01]),
        ("random", [2]), ("random", [0.04]), ("random, by the model", [0.02]),
    ]  # fmt: skip


def test_a_learned_models_true_rates_are_beside_its_predictions():
    rows = {"rows": [500, 500], "epsilon": 0.7, "covariance": ["shrunk", "sample covariance"]}
    curve = pd.DataFrame(rows | {"rate": [0.03, 0.02], "true": [0.04, 0.06]})
    rates = {t.name: t.y for t in figures.learned_rates(curve, "title", 0.7, 0.05).data}
    assert rates["sample covariance, predicted"] == (0.02,) and rates["shrunk, true"] == (0.04,)


def test_samples_after_the_checkpoint_are_read_twice():
    figure = figures.timelines(checkpoint=10, failure=16, recovery=19, end=30)
    parts = {trace.name: ([*trace.base], [*trace.x]) for trace in figure.data}
    assert parts["read twice"] == ([10], [9])
    assert parts["never read by B"] == ([16], [3])


def test_an_estimate_is_open_and_has_its_half_width():
    table = pd.DataFrame(
        {"sensor": ["X1", "X4", "X4"], "stop": [10, 10, 15], "truth": [1.0, 2.0, 3.0],
         "value": [1.0, 2.0, 3.5], "half_width": [np.nan, np.nan, 0.7],
         "state": ["exact", "exact", "estimated"]}
    )  # fmt: skip
    figure = figures.six_sensors(table, failure=11, recovery=14)
    marks = [trace for trace in figure.data if trace.mode == "markers"]
    assert [(trace.name, trace.marker.symbol, trace.showlegend) for trace in marks] == [
        ("X1 (A)", "circle", True),
        ("X4 (B)", "circle", True),
        ("X4 (B) estimated", "circle-open", False),
    ]
    assert (marks[1].x.tolist(), marks[2].y.tolist()) == ([10], [3.5])
    assert marks[2].error_y.array.tolist() == [0.7]
    (line,) = (trace for trace in figure.data if trace.name == "X4 (B) true")
    assert marks[1].marker.color == marks[2].marker.color == line.line.color
    assert {trace.hovertemplate for trace in figure.data} == {None}
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (11, 14)
