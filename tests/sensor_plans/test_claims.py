"""Verdicts of the back-tests on each claim, and the mutants of the code under which they turn."""

from copy import deepcopy

import numpy as np
import pytest

from aftlib.guard import Guard, accounts
from aftlib.sensor_plans import backtest
from aftlib.sensor_plans.backtest import GUARD
from aftlib.sensor_plans.claims import CLAIMS
from aftlib.sensor_plans.experiments import NotebookParameters, plans, troubles
from tests import judging

SETTLE = accounts.settle


def run_backtests(rows=20_000):
    return plans(NotebookParameters(rows=rows)), troubles(1200, 0.05, 1)


@pytest.fixture(scope="module")
def backtests():
    return run_backtests()


def list_changed(plans, walks):
    """Return the verdicts that differ from the recorded ones, by claim."""
    records = judging.judge(CLAIMS, {"plans": plans, "walks": walks})
    return {id: record.verdict for id, record in records.items() if not record.as_recorded}


def guard_that_decides(decision):
    """A guard that certifies everything (2), or nothing (0)."""

    class Mutant(Guard):
        def replay(self, windows):
            history = super().replay(windows)
            history.decisions[:] = decision
            return history

    return Mutant


def test_all_claims_come_out_as_recorded(backtests):
    assert list_changed(*backtests) == {}


def test_a_guard_that_certifies_everything_is_noticed(monkeypatch):
    monkeypatch.setattr(backtest, "Guard", guard_that_decides(2))
    assert list_changed(*run_backtests()) == {"G-1": "deviates", "G-2": "deviates", "G-3": "holds"}


def test_a_guard_that_certifies_nothing_is_noticed(monkeypatch):
    monkeypatch.setattr(backtest, "Guard", guard_that_decides(0))
    assert list_changed(*run_backtests()) == {"G-1": "not run"}


def certifies_its_neighbour(history):
    history.decisions[:] = np.roll(history.decisions, 1, axis=2)


def certifies_by_its_furthest_horizon(history):
    history.decisions[:] = np.minimum(history.decisions, history.decisions[:, -1:])


def estimates_one_window_late(history):
    history.estimate[:] = np.roll(history.estimate, 1, axis=0)


def estimates_too_high(history):
    history.estimate[:] += 0.3 * np.nanstd(history.estimate, axis=0)


@pytest.mark.parametrize(
    ("change", "claims"),
    [
        (certifies_its_neighbour, {"G-1": "undecided", "G-2": "deviates"}),
        (certifies_by_its_furthest_horizon, {}),
        (estimates_one_window_late, {"G-1": "deviates", "G-2": "deviates"}),
        (estimates_too_high, {"G-1": "deviates", "G-2": "deviates"}),
    ],
)
def test_a_guard_that_is_a_little_wrong_is_noticed(change, claims, monkeypatch):
    class Mutant(Guard):
        def replay(self, windows):
            history = super().replay(windows)
            change(history)
            return history

    monkeypatch.setattr(backtest, "Guard", Mutant)
    assert list_changed(*run_backtests()) == claims


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("is_open", lambda account, delta: True),
        ("pool_bears", lambda pools, accounts: True),
        ("settle", lambda accounts, number, bad, *more: SETTLE(accounts, number, bad / 2, *more)),
    ],
)
def test_accounts_that_bear_too_much_are_noticed(backtests, monkeypatch, name, broken):
    assert list_changed(*backtests) == {}
    monkeypatch.setattr(accounts, name, broken)
    assert list_changed(*backtests) == {"G-2": "deviates"}


def test_shares_that_too_few_windows_settle_are_undecided(backtests):
    assert list_changed(*run_backtests(rows=8000)) == {"G-1": "undecided"}
    plans, walks = deepcopy(backtests)
    for part, plan in enumerate(plans.values()):
        plan["stretches"] = [{"declared": 0.5 + 0.1 * (i % 2)} for i in range(50)]
        for line in plan["compared"]:
            line["declared"] = 0.551 if line["method"] == GUARD else 0.55 - part / 100
    assert list_changed(plans, walks) == {"G-3": "undecided"}


def test_troubles_alone_can_exceed_the_bound(backtests, monkeypatch):
    plans, _ = backtests
    monkeypatch.setattr(backtest, "Guard", guard_that_decides(2))
    assert list_changed(plans, troubles(1200, 0.05, 1)) == {"G-2": "deviates"}
