"""Parameters that the notebook refuses before anything runs, and the order of its rates."""

from collections import Counter

import numpy as np
import pytest

from aftlib.does_it_pay.break_even import measured_costs
from aftlib.does_it_pay.experiments import (
    SCHEMES,
    NotebookParameters,
    accuracy,
    calm_table,
    measure,
    own_schemes,
    plan_of,
    planned_again,
)
from aftlib.does_it_pay.process_recoveries import EXACT_PROCESS, PROPOSED
from aftlib.does_it_pay.spark_recoveries import EXACT, GUARD, MODEL
from tests.does_it_pay.in_process import all_here, small_case
from tests.does_it_pay.tables import SHARES, WINDOWS, measurements


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sensors": [5]}, "sensors must be multiples of workers = 2.*, got 5"),
        ({"data": "generated", "sensors": [8]}, "sensors must be multiples of .* 3 where .* got 8"),
        ({"sensors": [14]}, "sensors must be at most the 12 of data = 'beijing', got 14"),
        ({"windows": [12, 12]}, r"windows must differ, got \[12, 12\]"),
        ({"rates": [100.0]}, r"rates must hold two rates or more for a break-even, got \[100.0\]"),
        ({"rates": [0.0, 1.0]}, "each of rates must be above 0, got 0.0"),
        ({"windows": [200]}, "data must hold .* windows of 200 steps without a gap"),
        ({"schemes": ["D1 by guard"]}, "schemes must be some of .* and each approximate one with"),
        ({"schemes": [EXACT, EXACT]}, "schemes must be some of .*, each once"),
        ({"data": "london"}, "data must be 'beijing', .* or Parquet file, got 'london'"),
    ],
)
def test_what_cannot_run_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**changed)


def test_every_rate_comes_once_per_repeat_after_one_that_warms_up():
    p = NotebookParameters(repeats=4, calm=5)
    kills = [rate for rate in p.schedule[1:] if not np.isnan(rate)]
    assert Counter(kills) == dict.fromkeys([150.0, 3200.0, np.inf], 4)
    assert np.isnan(p.schedule[-5:]).all() and p.schedule[0] == np.inf
    assert p.schedule == NotebookParameters(repeats=4, calm=5).schedule


def test_a_run_has_every_scheme_case_and_rate(monkeypatch, tmp_path):
    all_here(monkeypatch)
    small = {"sensors": [6], "windows": [6, 12], "rates": [2e4, 1e5], "repeats": 2, "calm": 3}
    p = NotebookParameters(data="generated", learned=20, epsilon_sd=1.0, **small)
    measured = measure(None, p, tmp_path)
    counts = measured.recoveries.groupby(["scheme", "window", "rate"]).size()
    assert len(counts) == 6 * 2 * 3 and (counts == 2).all()
    assert (measured.calm.groupby(["scheme", "window"]).size() == 3).all()
    assert {*measured_costs(measured.recoveries)} == {(scheme, 6) for scheme in SCHEMES}
    planned = measured.points.set_index(["scheme", "window"])
    assert (planned["again"] == planned["again_planned"])[[EXACT, MODEL, EXACT_PROCESS]].all()
    assert set(calm_table(measured)["scheme"]) == {*SCHEMES}
    assert [scheme.name for scheme in own_schemes(measured)] == [*SCHEMES]
    assert accuracy(measured).loc[MODEL, "windows"] > 0


def test_what_a_plan_reads_again_is_averaged_over_the_moment_of_a_failure():
    case = small_case()
    plan = case.replay_query("proposed").first_plan
    share, checkpoints = plan_of(case, PROPOSED)
    # the slow way: at each step of the window, what has been lost since the last checkpoint
    lost = again = 0
    for (begin, end), replay in zip(
        zip(plan.times[:-1], plan.times[1:], strict=True), plan.replay, strict=True
    ):
        for moment in np.linspace(begin, end, 2001)[1:]:
            lost += (moment - begin) * 6 * (end - begin)
            again += (moment - begin) * len(replay.sensors) * (end - begin)
    assert share == pytest.approx(again / lost, rel=1e-6) and checkpoints == len(plan.replay)
    assert plan_of(case, EXACT_PROCESS)[0] == 1


def test_d1_plans_to_read_again_where_its_worker_is_not_estimable():
    assert planned_again(small_case(), MODEL) == 0
    assert planned_again(small_case(epsilon_sd=0.01), MODEL) == 3 * 12
    assert planned_again(small_case(), EXACT) == 3 * 12


def test_the_guard_of_a_month_reads_the_measured_share_again():
    measured = measurements(noise=0)
    rows = measured.recoveries
    longest = (rows["scheme"] == GUARD) & (rows["window"] == WINDOWS[-1])
    rows.loc[longest, "again"] = 0.25 * SHARES[EXACT] * 12 * WINDOWS[-1]
    schemes = {scheme.name: scheme for scheme in own_schemes(measured)}
    replayed = [schemes[name].replayed for name in (EXACT, MODEL, GUARD)]
    assert replayed == [1, 0, pytest.approx(0.25)]
    assert [schemes[name].skips_input for name in (EXACT, MODEL, GUARD)] == [False, True, True]


def test_what_is_not_certified_counts_as_no_estimate():
    assert len(accuracy(measurements(within=1.0))) == 4
