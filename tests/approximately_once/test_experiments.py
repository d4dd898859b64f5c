"""D1's experiments: every number of the grid is a slow twin's, and odd parameters are refused."""

import numpy as np
import pytest
from scipy.stats import norm

from aftlib.approximately_once import experiments, figures
from aftlib.approximately_once.assignment import assess, assign_greedy
from aftlib.approximately_once.claims import CLAIMS
from aftlib.approximately_once.experiments import NotebookParameters
from aftlib.core.generators import draw
from aftlib.core.requirement import Requirement
from tests.judging import judge

SMALL = {"dimensions": 12, "blocks": 2, "rows": 300, "draws": 2}
PARAMETERS = NotebookParameters(**SMALL, workers=[6, 3], epsilons=[0.75, 0.5])


@pytest.fixture(scope="module")
def grid(spark):
    return experiments.grid(spark, PARAMETERS)


def test_rates_are_those_of_equation_2_and_sampled_ones_are_counted(grid):
    model, sample = PARAMETERS.model, draw(PARAMETERS.model, 300, 1)
    assert PARAMETERS.settings == ([3, 6], [0.5, 0.75])
    assert len(grid) == 2 * 2 * (3 + 2 + experiments.TIES)
    for epsilon in (0.5, 0.75):
        assignment = assign_greedy(model, 3, Requirement(epsilon, 0.05))
        rates, wrong = np.empty(12), np.zeros((300, 12), dtype=bool)
        for worker in assignment.workers:
            others = [key for key in range(12) if key not in worker]
            deviation = np.sqrt(model.posterior_variance(others)[list(worker)])
            rates[list(worker)] = 2 * norm.sf(epsilon / deviation)
            for row, values in enumerate(sample):
                seen = {model.names[key]: values[key] for key in others}
                off = np.abs(model.condition(seen).mean - values[list(worker)])
                wrong[row, list(worker)] = off > epsilon
        point = grid.query("method == 'greedy' and workers == 3 and epsilon == @epsilon").iloc[0]
        assert point["estimable"] == assignment.estimable.sum()
        assert point["everyone"] == pytest.approx(rates.mean())
        counted = assignment.estimable_keys
        if not counted.any():
            assert point[["rate", "largest", "sampled", "error", "z"]].isna().all()
            continue
        assert point["rate"] == pytest.approx(rates[counted].mean())
        assert point["largest"] == pytest.approx(rates[counted].max())
        of_windows = wrong[:, counted].mean(axis=1)
        assert point["sampled"] == pytest.approx(of_windows.mean())
        assert point["error"] == pytest.approx(of_windows.std(ddof=1) / np.sqrt(300))
        assert point["z"] == pytest.approx((point["sampled"] - point["rate"]) / point["error"])


def test_no_assignment_has_more_estimable_workers_than_the_bound(grid):
    assert (grid["estimable"] <= grid["bound"]).all()
    assert (grid["estimable"] == grid["bound"])[grid["method"] == "h-best"].all()


def test_an_added_assignment_is_in_every_figure_of_them(spark, monkeypatch):
    def mine(model, m, requirement, rng):  # as a notebook would: the tasks do not know this module
        return assess(model, [list(keys) for keys in np.array_split(np.arange(12), m)], requirement)

    monkeypatch.setitem(experiments.ASSIGN, "mine", mine)
    grid = experiments.grid(spark, PARAMETERS)
    for figure in (
        figures.estimable_workers(grid, "fig. 10", 0.75),
        figures.behind_h_best(grid, "behind", 0.75),
    ):
        (trace,) = (trace for trace in figure.data if trace.name == "mine")
        assert len(trace.y)


def test_on_the_stations_errors_are_more_frequent_than_the_model_predicts():
    table = experiments.beijing(0.05)
    assert table["estimable"].is_monotonic_increasing and table["estimable"].iloc[-1] == 6
    assert (table["measured"] > 0.98 * table["expected"]).all()
    assert table["measured"].iloc[-1] > 5 * table["expected"].iloc[-1]
    assert (table["measured"] <= 0.05).all()


DEFAULTS = {name: info.default for name, info in NotebookParameters.model_fields.items()}
AWKWARD = [0, -1, np.nan, np.inf, 2.5, [], "x", [0], [-1], ["x"], [np.nan], [7], True, 10**7]
FINE = {"epsilons": [[7]], "rows": [10**7], "seed": [0, 10**7]}


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
        (SMALL | {"blocks": 5}, r"blocks must divide the 12 sensors, got 5; choose from \[1, 2, 3"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**other)


@pytest.mark.parametrize(
    "odd",
    [
        {"dimensions": 7, "blocks": 7},  # no m of the document's, and nothing to estimate from
        {"epsilons": [0.01]},  # no worker is estimable
        {"workers": [1], "epsilons": [2.5]},  # one worker, estimated from nothing
    ],
    ids=str,
)
def test_odd_parameters_work_to_the_end(spark, odd):
    parameters = NotebookParameters(**SMALL | odd)
    grid = experiments.grid(spark, parameters)
    figures.estimable_workers(grid, "title", 0.7)
    figures.behind_h_best(grid, "title", 0.7)
    figures.error_rates(grid, "title", 0.67, 0.05)
    assert len(judge(CLAIMS, {"grid": grid} | parameters.model_dump())) == len(CLAIMS)
