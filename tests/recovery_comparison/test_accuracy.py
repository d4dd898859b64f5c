"""Shares within ε without processes: what a model is worth, and AF-Stream's thresholds."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.recovery_comparison import accuracy
from aftlib.recovery_comparison.accuracy import (
    back_up,
    lose_windows,
    running_means,
    score_schemes,
    score_thresholds,
)
from aftlib.recovery_comparison.experiments import NotebookParameters
from aftlib.recovery_comparison.recoveries import Kill
from aftlib.recovery_comparison.schemes import GUARD, LAST, MODEL, SCHEMES, LastValue

WIDTH = 24
SHORT = 6
KILLS = [Kill(2 * number, number % 2, np.inf) for number in range(40)]


def read_case(width, kills, **options):
    return NotebookParameters(windows=[width], rates=[150.0], kills=kills).read_case(
        width, **options
    )


@pytest.fixture(scope="module")
def case():
    return read_case(WIDTH, 2, everything=True)


@pytest.fixture(scope="module")
def short():
    return read_case(SHORT, 20)


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
    table = score_schemes(read_case(WIDTH, 2), seed=1)
    assert table[["low", "high"]].isna().all(axis=None)


def test_the_last_value_of_a_sensor_outlives_gaps():
    last = LastValue(np.array([[1.0, 2.0], [np.nan, 3.0]]))
    assert last.estimate.tolist() == [[1.0, 3.0]]
    assert last.update(np.array([np.nan, 5.0])).estimate.tolist() == [[1.0, 5.0]]


def test_a_state_is_backed_up_when_it_left_its_last_backup_by_more_than_the_threshold():
    samples = np.array([[2.0], [4.0], [9.0], [5.0], [5.0], [8.0]])
    states = running_means(samples, width=3)
    assert states.ravel().tolist() == [2, 3, 5, 5, 5, 6]
    stored, backups = back_up(states, threshold=1.0)
    assert stored.ravel().tolist() == [2, 2, 5, 5, 5, 5]  # 3 and 6 are no more than 1 off
    assert backups.tolist() == [2]


def test_the_errors_after_a_kill_are_those_computed_by_hand(short):
    """The values of one worker's first sensor in the windows 0 and 1; ε is 1."""
    samples = np.zeros((2 * SHORT, 12))
    sensor = short.assignment.workers[0][0]
    samples[:, sensor] = [0, 0, 3, 1, 1, 7, *[4] * SHORT]
    two = replace(short, learned=0, values=samples)
    stored, _ = back_up(running_means(samples, SHORT), threshold=0.9)
    assert stored[4, sensor] == 1  # means 0, 0, 1, 1, 1: the third is backed up
    errors = accuracy.restoration_errors(two, stored, Kill(0, 0, np.inf))
    result = (5 * 1 + 7) / 6
    assert errors[:, 0].tolist() == [abs(result - 2), 1, 3]


@pytest.mark.parametrize("seed", range(3))
def test_a_restored_result_is_within_epsilon_for_any_data(short, seed):
    rng = np.random.default_rng(seed)
    wild = rng.standard_cauchy(short.values.shape) * short.requirement.epsilon
    table = score_thresholds(replace(short, values=wild), KILLS)
    assert (table["largest"] <= table["threshold"]).all() and (table["restored"] == 1).all()
    assert (table["outage"] < 0.9).all()


def test_thresholds_bound_the_past_and_not_the_outage_of_real_sensors(short):
    table = score_thresholds(short, KILLS).set_index("threshold")
    assert (table["restored"] == 1).all() and (table["again"] == 0).all()
    assert 0 < table.loc[1.0, "backups"] < table.loc[0.5, "backups"] < SHORT
    assert table.loc[1.0, "outage"] < table.loc[1.0, "item_lost"] <= 1


def test_a_worker_that_forgets_its_backups_breaks_the_bound(short, monkeypatch):
    def first_only(states, threshold):
        return np.broadcast_to(states[0], states.shape), np.ones(states.shape[1])

    monkeypatch.setattr(accuracy, "back_up", first_only)
    assert score_thresholds(short, KILLS)["largest"].max() > 1
