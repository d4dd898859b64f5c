"""What the back-tests say about each claim, and the mutants of the code under which it turns."""

from copy import deepcopy

import numpy as np
import pytest

from aftlib.guard import Guard, accounts
from aftlib.sensor_plans import backtest
from aftlib.sensor_plans.backtest import GUARD
from aftlib.sensor_plans.claims import CLAIMS
from aftlib.sensor_plans.experiments import NotebookParameters, plans, troubles
from tests import judging

SETTLE = accounts.settle.py_func


def measured(rows=20_000):
    return plans(NotebookParameters(rows=rows)), troubles(1200, 0.05, 1)


@pytest.fixture(scope="module")
def found():
    return measured()


def turned(plans, walks):
    """The verdicts that are not the recorded ones, by claim."""
    found = judging.judged(CLAIMS, {"plans": plans, "walks": walks})
    return {id: record.verdict for id, record in found.items() if not record.as_recorded}


def saying(what):
    """A guard that declares everything (2), or nothing (0)."""

    class Mutant(Guard):
        def replay(self, windows):
            told = super().replay(windows)
            told.decisions[:] = what
            return told

    return Mutant


def test_all_claims_come_out_as_recorded(found):
    assert turned(*found) == {}


def test_a_guard_that_declares_everything_is_noticed(monkeypatch):
    monkeypatch.setattr(backtest, "Guard", saying(2))
    assert turned(*measured()) == {"G-1": "deviates", "G-2": "deviates", "G-3": "holds"}


def test_a_guard_that_declares_nothing_is_noticed(monkeypatch):
    monkeypatch.setattr(backtest, "Guard", saying(0))
    assert turned(*measured()) == {"G-1": "not run"}


def promises_for_its_neighbour(told):
    told.decisions[:] = np.roll(told.decisions, 1, axis=2)


def promises_by_its_furthest_horizon(told):
    told.decisions[:] = np.minimum(told.decisions, told.decisions[:, -1:])


def estimates_one_window_late(told):
    told.estimate[:] = np.roll(told.estimate, 1, axis=0)


def estimates_too_high(told):
    told.estimate[:] += 0.3 * np.nanstd(told.estimate, axis=0)


@pytest.mark.parametrize(
    ("change", "claims"),
    [
        (promises_for_its_neighbour, {"G-1": "undecided", "G-2": "deviates"}),
        (promises_by_its_furthest_horizon, {}),
        (estimates_one_window_late, {"G-1": "deviates", "G-2": "deviates"}),
        (estimates_too_high, {"G-1": "deviates", "G-2": "deviates"}),
    ],
)
def test_a_guard_that_is_a_little_wrong_is_noticed(change, claims, monkeypatch):
    class Mutant(Guard):
        def replay(self, windows):
            told = super().replay(windows)
            change(told)
            return told

    monkeypatch.setattr(backtest, "Guard", Mutant)
    assert turned(*measured()) == claims


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("is_open", lambda account, delta: True),
        ("pool_bears", lambda pool, account, unit: True),
        ("settle", lambda account, bad, *more: SETTLE(account, bad / 2, *more)),
    ],
)
def test_accounts_that_bear_too_much_are_noticed(found, monkeypatch, name, broken):
    for one in ("declare", "learn"):
        monkeypatch.setattr(accounts, one, getattr(accounts, one).py_func)
    assert turned(*found) == {}
    monkeypatch.setattr(accounts, name, broken)
    assert turned(*found) == {"G-2": "deviates"}


def test_shares_that_too_few_windows_settle_are_undecided(found):
    assert turned(*measured(rows=8000)) == {"G-1": "undecided"}
    plans, walks = deepcopy(found)
    for part, plan in enumerate(plans.values()):
        plan["stretches"] = [{"declared": 0.5 + 0.1 * (i % 2)} for i in range(50)]
        for line in plan["compared"]:
            line["declared"] = 0.551 if line["method"] == GUARD else 0.55 - part / 100
    assert turned(plans, walks) == {"G-3": "undecided"}


def test_troubles_alone_can_pass_the_bound(found, monkeypatch):
    plans, _ = found
    monkeypatch.setattr(backtest, "Guard", saying(2))
    assert turned(plans, troubles(1200, 0.05, 1)) == {"G-2": "deviates"}
