"""D1's experiments give the document's tables, and every number a slow twin's."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.approximately_once import figures
from aftlib.approximately_once.assignment import assess, assign_greedy
from aftlib.approximately_once.claims import CLAIMS
from aftlib.approximately_once.experiments import grid as grids
from aftlib.approximately_once.experiments import streams
from aftlib.approximately_once.experiments.cases import (
    ROWS,
    UNSCALED,
    WINDOWS,
    NotebookParameters,
    fitted,
)
from aftlib.core.datasets import even_grid
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from tests.judging import judge


def test_figure_8_comes_out_of_the_pipeline(spark, tmp_path):
    six = streams.six_sensors(spark, tmp_path, failure=16, recovery=19)
    lost = six.table[six.table["estimated"]]
    assert set(zip(lost["start"], lost["key"], strict=True)) == {
        (start, key) for start in (10, 15) for key in ("X4", "X5", "X6")
    }
    rest = six.table[~six.table["estimated"]]
    assert len(rest) == 24
    np.testing.assert_allclose(rest["value"], rest["truth"], atol=1e-12)
    assert (lost["half_width"] < 1).all()


def test_smallest_epsilons_are_the_digests():
    table = grids.smallest_epsilons(block_model(), [2, 12, 24, 60], 0.05)
    np.testing.assert_allclose(table["h-best"], [0.6686, 0.6471, 0.6471, 0.6471], atol=5e-5)
    np.testing.assert_allclose(table["h-worst"], [1.96, 0.7524, 0.6619, 0.6497], atol=5e-5)


SMALL = {"dimensions": 12, "blocks": 2, "rows": 300, "replications": 3}


@pytest.fixture(scope="module")
def case(spark, tmp_path_factory):
    parameters = NotebookParameters(**SMALL, workers=[3, 6], epsilons=[0.5, 0.75])
    return parameters.case(spark, tmp_path_factory.mktemp("data"))


def test_an_added_assignment_is_in_every_figure_of_them(spark, case, monkeypatch):
    def mine(model, m, requirement, rng):  # as a notebook would: the tasks do not know this module
        return assess(model, [list(keys) for keys in np.array_split(np.arange(12), m)], requirement)

    monkeypatch.setitem(grids.ASSIGN, "mine", mine)
    grid = grids.grid(spark, case, ROWS, seed=1)
    shown = [
        figures.sweep(grid, "workers", "estimable", "fig. 10"),
        figures.sweep(grid, "epsilon", "estimable", "fig. 11"),
        figures.error_rates(grid, "workers", "fig. 12", 0.75, 0.05),
        figures.error_rates(grid, "epsilon", "fig. 13", 6, 0.05),
        figures.explore(case.samples, 3, 0.75, 0.05),
    ]
    for figure in shown:
        (trace,) = (trace for trace in figure.data if trace.name == "mine")
        assert len(trace.y)
    assert grids.added_to(["greedy"]) == ["greedy", "mine"]
    with pytest.raises(
        ValueError, match="methods must be among greedy, .*, mine, got 'lucky': add it"
    ):
        grids.grid(spark, case, ROWS, 1, methods=["lucky"])


@pytest.mark.parametrize("reading", [ROWS, WINDOWS, UNSCALED])
def test_grid_is_the_slow_twins(spark, case, reading):
    grid = grids.grid(spark, case, reading, seed=1, draws=2)
    assert len(grid) == 2 * 2 * (4 + 2 * 2)  # four methods, and two draws of two more
    model, windows = case.readings[reading]
    rows, _ = windows.aggregate(case.log.read(None, 0, 300), 0, windows.ending_in(0, 300))
    for epsilon in case.epsilons:
        requirement = Requirement(epsilon, 0.05)
        assignment = assign_greedy(model, 3, requirement)
        wrong = np.zeros(rows.shape, dtype=bool)
        for i, row in enumerate(rows):
            for keys in assignment.workers:
                seen = {model.names[k]: row[k] for k in range(12) if k not in keys}
                wrong[i, keys] = np.abs(model.condition(seen).mean - row[list(keys)]) > epsilon
        point = grid.query("method == 'greedy' and workers == 3 and epsilon == @epsilon").iloc[0]
        assert point["estimable"] == assignment.estimable.sum()
        assert point["all_by_part"][0] == pytest.approx(wrong.mean())
        counted = wrong[:, assignment.estimable_keys]
        expected = counted.mean() if counted.size else np.nan
        assert point["error"] == pytest.approx(expected, nan_ok=True)


def test_grid_needs_replications_and_windows(spark, case):
    with pytest.raises(ValueError, match="replications must be at least 1, got 0"):
        grids.grid(spark, replace(case, replications=0), ROWS, 1)
    with pytest.raises(ValueError, match="log must hold a window of 3 steps in each of 1000 parts"):
        grids.grid(spark, replace(case, replications=999), WINDOWS, 1)


def gappy(rows, gaps):
    rng = np.random.default_rng(4)
    values = rng.normal(size=(rows, 1)) + 0.3 * rng.normal(size=(rows, 60))
    values[rng.random(values.shape) < gaps] = np.nan
    return even_grid(pd.DataFrame(values, columns=[f"s{i}" for i in range(60)]))


def test_gaps_in_nearly_every_row_and_few_rows_leave_none_out():
    model, test, left_out = fitted(gappy(400, gaps=0.05))
    assert (model.size, len(test.values), left_out) == (60, 200, 0)
    assert model.covariance[0, 1] == pytest.approx(1, abs=0.35)
    model, test, left_out = fitted(gappy(40, gaps=0))
    assert (model.size, len(test.values), left_out) == (60, 20, 0)
    assert 0.4 < model.covariance[0, 1] < 1.6


def test_complete_rows_serve_alone_where_they_are_many():
    assert fitted(gappy(60_000, gaps=0.02))[2] > 10_000


DEFAULTS = {name: info.default for name, info in NotebookParameters.model_fields.items()}
AWKWARD = [0, -1, np.nan, np.inf, 2.5, [], "x", [0], [-1], ["x"], [np.nan], [7], True, 10**6]
FINE = {
    "epsilons": [[7]],
    "rows": [10**6],
    "replications": [10**6],
    "seed": [0, 10**6],
}


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("value", AWKWARD, ids=str)
def test_awkward_parameters_are_refused_by_name(name, value):
    if value in FINE.get(name, []):
        NotebookParameters(**DEFAULTS | {name: value})
    else:
        with pytest.raises(ValueError, match=name):
            NotebookParameters(**DEFAULTS | {name: value})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"workers": [7]}, r"workers must divide the 120 sensors, got 7; choose from \[1, 2"),
        (SMALL | {"workers": [7]}, r"got 7; choose from \[1, 2, 3, 4, 6, 12\]"),
        ({"width": 4, "rows": 3}, "rows must hold a window of width = 4 steps, got 3"),
        ({"slide": 4}, "slide must be a whole number at least 1 and at most 3, got 4"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**other)


@pytest.mark.parametrize(
    "odd",
    [
        {"covariance": "factor", "workers": [2, 3, 6], "epsilons": [0.5, 1.0]},
        {"dimensions": 7, "blocks": 7},  # no m of the document's, and nothing to estimate from
        {"epsilons": [0.01]},  # no worker is estimable
        {"workers": [1], "epsilons": [2.5]},  # one worker, estimated from nothing
        {"workers": [12, 12], "epsilons": [1e6], "rows": 3, "replications": 1},
    ],
    ids=str,
)
def test_odd_parameters_work_to_the_end(spark, tmp_path, odd):
    parameters = NotebookParameters(**SMALL | {"rows": 60} | odd)
    case = parameters.case(spark, tmp_path)
    both = {name: grids.grid(spark, case, name, seed=1) for name in case.readings}
    grid = both[ROWS]
    assert len(grids.smallest_epsilons(block_model(12, 2), [2], 0.05)) == 1
    for axis in ("workers", "epsilon"):
        figures.sweep(grid, axis, "estimable", "title", start=0.65)
        figures.error_rates(grid, axis, "title", 10, 0.05)
    coverage = grids.coverage(both, "greedy", case.workers[-1])
    figures.coverage(coverage, 0.05, case.workers[-1])
    shown = coverage.pivot(index="epsilon", columns="reading", values=["share", "low", "high"])
    shown.style.format(precision=4, na_rep="–").format_index("{:g}").to_html()
    frames = {"grid": grid, "samples_grid": both[WINDOWS], "unscaled_grid": both[UNSCALED]}
    assert len(judge(CLAIMS, frames | parameters.model_dump())) == len(CLAIMS)
