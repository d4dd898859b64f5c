"""Shares within ε over all windows: known answers, and what a model is worth."""

import numpy as np
import pytest

from aftlib.recovery_comparison.accuracy import lose_windows, score_schemes
from aftlib.recovery_comparison.experiments import NotebookParameters
from aftlib.recovery_comparison.schemes import GUARD, LAST, MODEL, SCHEMES, LastValue

WIDTH = 24


@pytest.fixture(scope="module")
def case():
    p = NotebookParameters(windows=[WIDTH], rates=[150.0], kills=2)
    return p.read_case(WIDTH, everything=True)


def test_the_last_value_is_wrong_where_two_neighbouring_windows_differ(case):
    certified, within = lose_windows(case, SCHEMES[LAST])
    steps = np.abs(case.truth[1::2] - case.truth[: len(certified) * 2 : 2])
    assert certified.all()
    assert (within == (steps <= case.requirement.epsilon)).all()


def test_a_model_is_worth_more_than_the_last_value(case):
    table = score_schemes(case, seed=1).set_index("scheme")
    assert [*table.index] == [MODEL, GUARD, LAST]
    assert table.loc[MODEL, "within"] > 0.95 > 0.7 > table.loc[LAST, "within"]
    assert (table["low"] <= table["within"]).all() and (table["within"] <= table["high"]).all()
    assert table.loc[MODEL, "low"] > table.loc[LAST, "high"]


def test_what_is_not_certified_is_not_estimated(case, monkeypatch):
    class FirstOnly(LastValue):
        def __init__(self, history):
            super().__init__(history)
            self.recoverable[0, 1:] = False

    monkeypatch.setitem(SCHEMES, "mine", lambda case: FirstOnly(case.history))
    certified, within = lose_windows(case, SCHEMES["mine"])
    assert certified[:, 0].all() and not certified[:, 1:].any() and not within[:, 1:].any()
    assert score_schemes(case, seed=1).set_index("scheme").loc["mine", "estimated"] == 1 / 12


def test_few_blocks_give_no_interval():
    p = NotebookParameters(windows=[WIDTH], rates=[150.0], kills=2)
    short = score_schemes(p.read_case(WIDTH), seed=1)
    assert short[["low", "high"]].isna().all(axis=None)


def test_the_last_value_of_a_sensor_outlives_gaps():
    last = LastValue(np.array([[1.0, 2.0], [np.nan, 3.0]]))
    assert last.estimate.tolist() == [[1.0, 3.0]]
    assert last.update(np.array([np.nan, 5.0])).estimate.tolist() == [[1.0, 5.0]]
