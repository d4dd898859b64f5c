"""Every parameter of notebook 02 works to the end, or is refused in its first seconds."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from aftlib.checkpoint_planning import figures
from aftlib.checkpoint_planning.claims import CLAIMS
from aftlib.checkpoint_planning.experiments import cases, costs
from aftlib.checkpoint_planning.experiments import recoveries as runs
from aftlib.checkpoint_planning.experiments.parameters import NotebookParameters
from aftlib.checkpoint_planning.operator import bare_read
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from tests.judging import judge

DEFAULTS = {name: info.default for name, info in NotebookParameters.model_fields.items()}
AWKWARD = (0, -1, 2, 0.5, 7.0, math.nan, math.inf, 1e300)
AWKWARD += ([], [0], [-1], [math.nan], ["x"], "x", None)
FINE = {  # (parameter, value) that look odd and mean something
    *(("epsilon", v) for v in (0.5, 2, 7.0)),
    ("t_sla", 1e300),
    ("delta", 0.5),
    *(("covariance", v) for v in (0, -1, 2, 0.5, 7.0)),
    *((name, 2) for name in ("slide", "replications", "repeats", "restarts")),
    *(("groups", 2), ("seed", 0), ("seed", 2)),
}
REFUSED = [
    (name, value)
    for name, default in DEFAULTS.items()
    for value in AWKWARD
    if (name, repr(value)) not in {(n, repr(v)) for n, v in FINE}
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=str)
def test_awkward_values_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        NotebookParameters(**{name: value})


@pytest.mark.parametrize(("name", "value"), sorted(FINE, key=str), ids=str)
def test_odd_values_that_mean_something_pass(name, value):
    NotebookParameters(**{name: value})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"t_sla": 28}, r"t_sla must be at least 28\.4233, got 28"),
        ({"t_slas": [35, 28]}, r"each of t_slas must be at least 28\.4233, got 28"),
        ({"groups": 7}, "groups must divide sensors = 100, got 7"),
        ({"covariance": 60.0}, "covariance must lie between -3.15789 and variance = 60, got 60"),
        ({"slide": 20_000}, "slide must be at most window = 10000, got 20000"),
        ({"rows": 9_999}, "rows must hold a window of 10000 steps, got 9999"),
        ({"ns": [10, 3000]}, "ns must hold a number of sensors from 100 to 1000"),
        ({"budgets": [50_000, 99]}, "each of budgets must be a whole number at least 100, got 99"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_together_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**changed)


SMALL = {"sensors": 6, "groups": 2, "variance": 4, "covariance": 3, "replications": 2}
SMALL |= {"window": 24, "slide": 7, "rows": 120, "epsilons": [0.45, 0.55], "epsilon": 0.45}
SMALL |= {"t_slas": [35, 50], "budgets": [6]}


@pytest.mark.parametrize(
    "odd",
    [
        {"t_sla": 28.43, "epsilon": 0.7, "delta": 0.3},
        {"epsilons": [0.4500001, 0.45], "deltas": [0.05], "t_slas": [35], "t_sla": 35},
        {"covariance": -1.5, "replications": 1},
        {"window": 1, "slide": 1, "rows": 1, "seed": 0},
    ],
    ids=str,
)
def test_odd_requirements_come_through_to_the_figures_and_verdicts(spark, tmp_path, odd):
    """A value outside its grid is added to it, at the scale of six sensors."""
    p = NotebookParameters(**SMALL | odd)
    case = replace(p.case(spark, tmp_path), recovery_time=RecoveryTime(28.33, 1e-3))
    counts = cases.checkpoint_counts(spark, case)
    assert cases.counts_table(counts, p.delta)[p.epsilon][p.t_sla]
    success = cases.success_rates(spark, case)
    shown = figures.success_by_time(success, p.delta, p.t_sla, start=p.epsilon)
    assert len(shown.data[0].x) == len(case.plan(p.epsilon, p.delta, p.t_sla).replay)
    for axis, fixed in (("epsilon", "delta"), ("delta", "t_sla_ms"), ("t_sla_ms", "delta")):
        at = {fixed: p.t_sla if fixed == "t_sla_ms" else p.delta}
        figures.counts(counts, axis, "title", at, start=p.epsilon)
        figures.success(success, axis, "title", at, start=p.epsilon)
    times = costs.recovery_times(
        bare_read, tmp_path, tmp_path / "times", ns=[100], shares=[0.1, 0.5], repeats=2, tuples=100
    )
    plans = runs.rate_queries(case, p.epsilon, p.delta, p.t_sla)
    recovered = pd.DataFrame({"t_sla_ms": [50.0], "total_ms": [10.0], "all_ms": [400.0]})
    recovered = recovered.assign(sensors=1, n=p.sensors, start_ms=0.0, stop=1, window=p.window)
    frames = {"case": case, "counts": counts, "success": success, "times": times}
    frames |= {"killed": recovered, "epsilon": p.epsilon}
    frames |= {"delta": p.delta, "t_sla": p.t_sla}
    frames["rates"] = costs.stream_rates(plans, case.log, tmp_path / "rates", repeats=2)
    assert len(judge(CLAIMS, frames)) == len(CLAIMS)
