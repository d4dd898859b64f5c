"""D2's process is killed: what is read again, estimated and committed."""

import numpy as np
import pytest

from aftlib.does_it_pay import process_recoveries as module
from aftlib.does_it_pay.cases import make_case
from aftlib.does_it_pay.process_recoveries import (
    ADAPTIVE,
    EXACT_PROCESS,
    IN_PROCESS,
    PROPOSED,
    calm_windows,
    process_recoveries,
)
from aftlib.spark.faults import Fault
from tests.does_it_pay.in_process import CASE, all_here, exact_means, small_case

RATES = [1e6, np.inf, 2e5]


@pytest.mark.parametrize("scheme", [EXACT_PROCESS, PROPOSED, ADAPTIVE])
def test_each_window_is_killed_once_and_reads_what_is_planned(scheme, monkeypatch, tmp_path):
    all_here(monkeypatch)
    case = small_case().after_learning()
    rows, estimates = process_recoveries(case, scheme, tmp_path / "run", RATES)
    plan = case.replay_query(IN_PROCESS[scheme]).first_plan
    assert len(plan.times) > 2
    assert rows["again"].tolist() == [max(plan.tuples)] * 3
    assert rows["rate"].tolist() == RATES
    assert (rows[["seconds", "start_s", "read_s", "commit_s"]] > 0).all(axis=None)
    # the last window is not finished
    estimated = set(estimates["batch"]) if scheme != EXACT_PROCESS else {0, 1}
    assert estimated == {0, 1}
    if scheme == EXACT_PROCESS:
        assert estimates.empty
    else:
        assert 0 < estimates["off"].max() < 3


def test_the_interval_of_which_most_is_read_again_is_hit(monkeypatch, tmp_path):
    all_here(monkeypatch)
    real = {"learned": 100, "measured": 3, "epsilon_sd": 0.8, "budget": 0.15}
    case = make_case("beijing", **CASE | real).after_learning()
    first, second = case.replay_query("exactly-once").first_plan.tuples
    assert second > first
    rows, _ = process_recoveries(case, EXACT_PROCESS, tmp_path / "run", RATES)
    assert rows["again"].tolist() == [second] * 3


def test_the_exact_process_has_the_checkpoints_of_the_proposed_one():
    case = small_case()
    exact, proposed = (case.replay_query(m).first_plan for m in ("exactly-once", "proposed"))
    assert exact.times == proposed.times
    assert {len(replay.sensors) for replay in exact.replay} == {6}
    assert max(len(replay.sensors) for replay in proposed.replay) < 6


def test_calm_windows_are_timed_one_by_one(tmp_path):
    case = small_case().after_learning()
    rows = calm_windows(case, PROPOSED, tmp_path / "calm", 3)
    assert rows["batch"].tolist() == [1, 2, 3]
    assert (rows["latency_s"] > 0).all() and (rows["seconds"] > rows["latency_s"]).all()


def test_windows_that_are_learned_from_are_left_out():
    case = small_case()
    np.testing.assert_allclose(case.after_learning().truth, exact_means(case))


@pytest.mark.crash
def test_a_process_that_is_killed_by_a_signal_is_recovered(tmp_path):
    case = small_case().after_learning()
    rows, _ = process_recoveries(case, PROPOSED, tmp_path / "run", [2e5, np.inf])
    plan = case.replay_query("proposed").first_plan
    assert rows["again"].tolist() == [max(plan.tuples)] * 2
    assert (rows["start_s"] > 0).all()


@pytest.mark.crash
def test_a_process_that_is_not_killed_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(module.driver, "main", max)
    with pytest.raises(RuntimeError, match="driver must end by SIGKILL at .* got exit status 0"):
        module.killed_driver(tmp_path, Fault("kill", "driver", 0))
