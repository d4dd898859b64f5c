"""Every parameter of notebook 04 works, or is refused before anything starts."""

import math

import pandas as pd
import pytest

from aftlib.upstream_backup.claims import CLAIMS
from aftlib.upstream_backup.experiments import beyond, recoveries
from aftlib.upstream_backup.experiments.parameters import NotebookParameters
from tests.judging import judge
from tests.refusals import refused
from tests.upstream_backup.trials import in_this_process

DEFAULTS = {name: info.default for name, info in NotebookParameters.model_fields.items()}
NUMBERS = [name for name, value in DEFAULTS.items() if type(value) in (int, float)]
AWKWARD = [-1, math.nan, math.inf, [], "x", True]
WRONG = {
    "rates": ([200, 40_000], [9], [0], 7), "rate": (40_000, 3, 0), "trials": (2.5, 1),
    "document_trials": (1,), "document_seconds": (1e9, 0), "ack_ms": (1e9, 1e-9),
    "heartbeat_ms": (9, 0), "switching_ms": (1, 0), "checkpoint_ms": (0,), "handshake": ("yes", 2),
    "initial_window": (1.5, 0), "scheme": ("hot", 3), "slow_us": (200.0, 0),
    "slow_rate": (20_000, 0), "shares": ([1.0], [0.5, 2], [1e-9], [0], None), "kills": (1.5, 0),
    "seed": (1.5, None), "failing": ([], ["upstream"], "primary", 3),
}  # fmt: skip


def test_the_defaults_are_accepted():
    system = NotebookParameters(**DEFAULTS).system
    assert (system.ack_ms, system.rate) == (DEFAULTS["ack_ms"], DEFAULTS["rate"])
    assert NotebookParameters(**DEFAULTS | {"seed": 0, "initial_window": None})


test_what_cannot_work_is_refused_by_name = refused(
    lambda name, value: NotebookParameters(**DEFAULTS | {name: value}),
    *((name, value, name) for name in NUMBERS for value in AWKWARD),
    *((name, [value], name) for name in ("rates", "shares") for value in AWKWARD),
    *((name, value, name) for name, values in WRONG.items() for value in values),
)


@pytest.fixture(scope="module")
def stored():
    """The comparisons with ns-3's stored runs, which are the same for every parameter."""
    ns3, parts = recoveries.against_ns3(), recoveries.tcp_parts()
    return {"ns3": ns3, "parts": parts, "counted": recoveries.counted_traffic()}


@pytest.mark.parametrize(
    "changed",
    [
        {"rate": 777.7, "rates": [200, 20_000]},
        {"rate": 10, "rates": [10], "trials": 2, "document_trials": 2, "heartbeat_ms": 10.2},
        {"rate": 300, "rates": [300, 300], "ack_ms": 3000.0, "checkpoint_ms": 2500.0},
        {"rate": 300, "document_seconds": 0.001, "switching_ms": 4000.0, "initial_window": None},
        {"rate": 300, "shares": [0.9, 0.3, 0.9], "slow_us": 0.5, "failing": ["secondary"]},
    ],
    ids=str,
)
def test_odd_values_work_to_the_end(changed, stored, monkeypatch):
    """Run all steps of the notebook, with Spark's part in this process."""
    for module in (recoveries, beyond):
        monkeypatch.setattr(module, "sweep", in_this_process)
    given = DEFAULTS | {"rates": [200, 1000], "trials": 3, "document_trials": 2} | changed
    system, rate = NotebookParameters(**given).system, given["rate"]
    rates = tuple(sorted({*given["rates"], rate}))
    case = recoveries.Sweep(rates, given["trials"], given["seed"], parameters=system)
    outcomes = recoveries.recoveries(None, case)
    means = recoveries.summary(outcomes)
    assert len(recoveries.savings(outcomes)) == len(rates)
    half = 1e3 * min(given["document_seconds"], 1)
    own = recoveries.Sweep(rates, given["document_trials"], 1, half, half, system)
    assert len(recoveries.recoveries(None, own, ("proposed",))) == 2 * len(rates)
    recoveries.against_closed_form(case, means)
    recoveries.same_system(stored["ns3"], case)
    costs = recoveries.overheads(case)
    assert len(recoveries.comparison(means, costs, rate)) == 5
    small = recoveries.Sweep((rate,), 2, parameters=system)
    slow = (given["slow_rate"], given["slow_us"], given["shares"])
    assert len(beyond.unequal_nodes(None, small, *slow)) == 2 * len(set(given["shares"]))
    assert len(beyond.orders(small, rate)) == 10
    assert (beyond.in_a_row(small, rate, given["failing"])["lost"] == 0).all()
    frames = stored | {"outcomes": outcomes, "costs": costs, "either": beyond.either_node(small)}
    frames["restored"] = beyond.settings_of_hwang(small, rate, [10])
    frames["real"] = pd.DataFrame(columns=["scheme", "resent", "recovery_ms"])
    assert len(judge(CLAIMS, frames)) == len(CLAIMS)
