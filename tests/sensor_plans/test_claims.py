"""Verdicts of the back-tests on each claim, and the mutants of the code under which they turn."""

from copy import deepcopy

import numpy as np
import pytest

from aftlib.guard import Guard
from aftlib.sensor_plans import backtest, claims
from aftlib.sensor_plans.experiments import NotebookParameters, plan_sensors, troubles
from tests import judging


@pytest.fixture(scope="module")
def backtests():
    return plan_sensors(NotebookParameters()), troubles(1200, 0.05, 1)


def list_changed(sensor_plan, walks):
    """Return the verdicts that differ from the recorded ones, by claim."""
    records = judging.judge(claims.CLAIMS, {"sensor_plan": sensor_plan, "walks": walks})
    return {id: record.verdict for id, record in records.items() if not record.as_recorded}


def guard_with(change):
    class Mutant(Guard):
        def replay(self, windows):
            history = super().replay(windows)
            change(history)
            return history

    return Mutant


def certify(decision):
    return lambda history: history.decisions.fill(decision)


def estimates_too_high(history):
    history.estimate[:] += 0.3 * np.nanstd(history.estimate, axis=0)


def test_all_claims_come_out_as_recorded(backtests):
    assert list_changed(*backtests) == {}


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (certify(2), {"G-1": "does not hold"}),
        (certify(0), {"G-1": "not run", "G-3": "does not hold"}),
        (estimates_too_high, {"G-1": "does not hold"}),
    ],
)
def test_a_guard_that_is_wrong_at_the_stations_is_noticed(backtests, change, changed, monkeypatch):
    monkeypatch.setattr(backtest, "Guard", guard_with(change))
    verdicts = list_changed(plan_sensors(NotebookParameters()), backtests[1])
    assert {id: verdict for id, verdict in verdicts.items() if id in changed} == changed


def test_troubles_and_adversaries_alone_can_exceed_the_bound(backtests, monkeypatch):
    sensor_plan, walks = backtests
    with monkeypatch.context() as patch:
        patch.setattr(backtest, "Guard", guard_with(certify(2)))
        assert list_changed(sensor_plan, troubles(1200, 0.05, 1)) == {"G-1": "does not hold"}
    monkeypatch.setattr(claims, "against_adversary", lambda delta, attacked: 3.0)
    assert list_changed(sensor_plan, walks) == {"G-1": "does not hold"}


def test_shares_that_too_few_windows_settle_are_open(backtests):
    sensor_plan, walks = deepcopy(backtests[0]), backtests[1]
    sensor_plan["backtest"]["interval"] = [0.94, 0.96]
    assert list_changed(sensor_plan, walks) == {"G-1": "open"}
