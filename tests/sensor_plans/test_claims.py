"""What the back-tests say about each claim, and the mutants of the code under which it turns."""

import numpy as np
import pytest

from aftlib.guard import Guard, accounts
from aftlib.sensor_plans import backtest
from aftlib.sensor_plans.claims import CLAIMS
from aftlib.sensor_plans.experiments import NotebookParameters, plans, troubles
from tests import judging

SETTLE = accounts.settle.py_func


def measured(rows=8000):
    return plans(NotebookParameters(rows=rows)), troubles(1200, 0.05, 1)


@pytest.fixture(scope="module")
def found():
    return measured()


def turned(plans, walks):
    return judging.turned(CLAIMS, {"plans": plans, "walks": walks})


def saying(what):
    """A guard that declares everything (2), or nothing (0)."""

    class Mutant(Guard):
        def replay(self, windows):
            told = super().replay(windows)
            told.decisions[:] = what
            return told

    return Mutant


def test_all_claims_come_out_as_recorded(found):
    assert turned(*found) == set()


def test_a_guard_that_declares_everything_is_noticed(monkeypatch):
    monkeypatch.setattr(backtest, "Guard", saying(2))
    assert turned(*measured()) >= {"G-1", "G-2"}


def test_a_guard_that_declares_nothing_is_noticed(monkeypatch):
    monkeypatch.setattr(backtest, "Guard", saying(0))
    assert turned(*measured()) == {"G-1", "G-3"}


def promises_for_its_neighbour(told):
    told.decisions[:] = np.roll(told.decisions, 1, axis=2)


def promises_every_other_window(told):
    told.decisions[::2] = 0


def promises_by_its_furthest_horizon(told):
    told.decisions[:] = np.minimum(told.decisions, told.decisions[:, -1:])


def estimates_one_window_late(told):
    told.estimate[:] = np.roll(told.estimate, 1, axis=0)


def estimates_too_high(told):
    told.estimate[:] += 0.3 * np.nanstd(told.estimate, axis=0)


@pytest.mark.parametrize(
    ("change", "claims"),
    [
        (promises_for_its_neighbour, {"G-2"}),
        (promises_every_other_window, {"G-3"}),
        (promises_by_its_furthest_horizon, {"G-1", "G-3"}),
        (estimates_one_window_late, {"G-1", "G-2"}),
        (estimates_too_high, {"G-1", "G-2"}),
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
        (
            "settle",
            lambda account, bad, *more: SETTLE(account, bad / 2, *more),
        ),
    ],
)
def test_accounts_that_bear_too_much_are_noticed(found, monkeypatch, name, broken):
    for one in ("declare", "learn"):
        monkeypatch.setattr(accounts, one, getattr(accounts, one).py_func)
    assert turned(*found) == set()
    monkeypatch.setattr(accounts, name, broken)
    assert turned(*found) == {"G-2"}


def test_troubles_alone_can_pass_the_bound(found, monkeypatch):
    plans, _ = found
    monkeypatch.setattr(backtest, "Guard", saying(2))
    assert turned(plans, troubles(1200, 0.05, 1)) == {"G-2"}
