"""Every parameter of notebook 05 is refused by its name, or works to the end."""

from __future__ import annotations

import math
from pathlib import Path

import nbformat
import numpy as np
import pytest

from aftlib.core.checks import with_value
from aftlib.exponential_histogram import figures
from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.claims import CLAIMS
from aftlib.exponential_histogram.experiments import costs, errors
from aftlib.exponential_histogram.experiments.parameters import NotebookParameters
from aftlib.reports.parameter_cell import read_parameters
from tests.judging import verdict

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "05_exponential_histogram.ipynb"
PARAMETERS = read_parameters(nbformat.read(NOTEBOOK, 4))
DEFAULTS = {name: parameter.default for name, parameter in PARAMETERS.items()}
AWKWARD = (0, -1, 2, 0.5, 1e-9, 2.5, 1e30, math.nan, math.inf, "x", None, True)
FINE = {
    0: {"bursts", "rate_seconds", "seed"},
    2: {name for name, p in PARAMETERS.items() if p.kind in ("int", "list[int]")}
    | {"bursts", "rate_seconds"},
    0.5: {name for name in DEFAULTS if "epsilon" in name or "share" in name} | {"rate_seconds"},
    1e-9: {"rate_seconds"},
    2.5: {"rate_seconds", "bursts"},
    True: set(),
}


def test_the_defaults_are_fine():
    NotebookParameters(**DEFAULTS)


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("value", AWKWARD)
def test_awkward_values_are_refused_by_name_or_known_to_be_fine(name, value):
    is_list = isinstance(DEFAULTS[name], list)
    given = DEFAULTS | {name: [value] if is_list else value, "bursts": [0]}
    given |= {name: [value]} if name == "bursts" else {}
    given |= {"shares": [0.5]} if name == "bursts" else {}
    if type(value) is not str and name in FINE.get(value, ()) and value is not True:
        NotebookParameters(**given)
    else:
        with pytest.raises(ValueError, match=rf"\b{name}\b.*got"):
            NotebookParameters(**given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"windows": [10**6], "windows_of_events": 51}, "windows_of_events × .*got 51 × 1000000"),
        ({"bursts": [5], "shares": [0.95]}, "bursts must be 0 or at least 19 if shares .*0.95"),
    ],
)
def test_values_that_do_not_go_together_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**DEFAULTS | changed)


def test_an_epsilon_outside_the_grid_reaches_every_figure(spark):
    """`aft run 05 -p epsilon=0.02` once ended in "is not in list"."""
    grid = with_value([0.1, 0.5], 0.02)
    few = errors.few_ones(grid, most=80)
    swept = errors.sweep(
        spark, epsilons=grid, windows=[20], shares=[0.5], bursts=[0], windows_of_events=2, seed=0
    )
    for figure in (
        figures.few_ones(few, start=0.02),
        figures.error_ratios(swept, "share", {"window": 10_000, "burst": 0}, start=0.02),
        figures.errors(swept, start=0.5),
    ):
        assert figure.layout.sliders[0].active == 0
        assert all(trace.x for trace in figure.data)


def test_the_least_values_come_to_an_end(spark, tmp_path):
    stream = BitStream(0.5, None, 0)
    sizes = costs.sizes([1e-5, 0.5], [1, 10**18])
    assert np.isfinite(sizes["bytes"]).all()
    assert verdict(CLAIMS, {"sizes": sizes}, "D5-3") == "holds"
    assert len(costs.break_even(sizes)) == 2
    run = costs.long_run(stream, events=3, window=1, epsilon=0.5, chunk=2)
    assert run["at"].tolist() == [2, 3]
    assert (costs.rates(1, 0.5, [1, 2], 0, 0)[["update", "ring"]] > 0).all(axis=None)
    assert len(errors.error_curve(stream, 20, 1, 0.5)) == 20
    assert len(errors.variances([0.5], 2, 0)) == 3
    parallel = costs.parallel(
        spark, [1, 2], window=1, epsilon=0.5, share=0.5, seed=0, tasks=3, rounds=1
    )
    assert parallel["events"].tolist() == [1, 2]
    assert np.isfinite(parallel["error"]).all()
