"""Every parameter of notebook 05 is refused by its name, or works to the end."""

from __future__ import annotations

import numpy as np

from aftlib.core.checks import with_value
from aftlib.exponential_histogram import figures
from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.claims import CLAIMS
from aftlib.exponential_histogram.experiments import costs, errors
from aftlib.exponential_histogram.experiments.parameters import NotebookParameters
from tests.judging import verdict
from tests.refusals import refused

DEFAULTS = {name: field.default for name, field in NotebookParameters.model_fields.items()}
LEAST = {
    "epsilons": 1e-5, "windows": 1, "shares": 1e-6, "windows_of_events": 1, "curve_share": 1e-6,
    "epsilon": 1e-5, "window": 1, "events": 1, "chunk": 1, "size_windows": 1, "chunks": 1,
    "rate_seconds": 0, "variance_epsilons": 0.02, "variance_window": 2, "demo_window": 1,
    "demo_epsilon": 1e-5, "demo_events": 1, "demo_batches": 1, "parallel_events": 1, "tasks": 1,
    "bursts": 0, "seed": 0,
}  # fmt: skip
FRACTIONS = [name for name in LEAST if "epsilon" in name or "share" in name]


def parameters(name, value):
    """The parameters, of which one has another value, or holds it alone."""
    given = [value] if isinstance(DEFAULTS[name], list) else value
    return NotebookParameters(**DEFAULTS | {name: given})


def test_the_least_values_are_fine():
    assert set(LEAST) == set(DEFAULTS)
    for name, value in LEAST.items():
        parameters(name, value)


test_values_outside_their_bounds_are_refused_by_name = refused(
    lambda name, value: parameters(name, value),
    *((name, value, rf"\b{name}\b.*got") for name in LEAST for value in (LEAST[name] - 1, 1e30)),
    *((name, value, rf"\b{name}\b.*got") for name in FRACTIONS for value in (0.9 * LEAST[name], 1)),
)

test_values_that_do_not_go_together_are_refused = refused(
    lambda changed: NotebookParameters(**DEFAULTS | changed),
    ({"windows": [10**6], "windows_of_events": 51}, "windows_of_events × .*got 51 × 1000000"),
    ({"bursts": [5], "shares": [0.95]}, "bursts must be 0 or at least 19 if shares .*0.95"),
)


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


def test_the_least_values_come_to_an_end(spark):
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
