"""AF-Stream's thresholds: backups and restored results by hand, and a bound for any data."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.recovery_comparison import thresholds
from aftlib.recovery_comparison.cases import Kill
from aftlib.recovery_comparison.experiments import NotebookParameters
from aftlib.recovery_comparison.thresholds import back_up, running_means, score_thresholds

WIDTH = 6
KILLS = [Kill(2 * number, number % 2, np.inf) for number in range(40)]


@pytest.fixture(scope="module")
def case():
    p = NotebookParameters(windows=[WIDTH], rates=[150.0], kills=20)
    return p.read_case(WIDTH)


def test_a_state_is_backed_up_when_it_left_its_last_backup_by_more_than_the_threshold():
    samples = np.array([[2.0], [4.0], [9.0], [5.0], [5.0], [8.0]])
    states = running_means(samples, width=3)
    assert states.ravel().tolist() == [2, 3, 5, 5, 5, 6]
    stored, backups = back_up(states, threshold=1.0)
    assert stored.ravel().tolist() == [2, 2, 5, 5, 5, 5]  # 3 and 6 are no more than 1 off
    assert backups.tolist() == [2]


def test_the_errors_after_a_kill_are_those_computed_by_hand(case):
    """The values of one worker's first sensor in the windows 0 and 1; ε is 1."""
    samples = np.zeros((2 * WIDTH, 12))
    sensor = case.assignment.workers[0][0]
    samples[:, sensor] = [0, 0, 3, 1, 1, 7, *[4] * WIDTH]
    small = replace(case, learned=0, values=samples)
    stored, _ = back_up(running_means(samples, WIDTH), threshold=0.9)
    assert stored[4, sensor] == 1  # means 0, 0, 1, 1, 1: the third is backed up
    errors = thresholds.restoration_errors(small, stored, Kill(0, 0, np.inf))
    result = (5 * 1 + 7) / 6
    assert errors[:, 0].tolist() == [abs(result - 2), 1, 3]


@pytest.mark.parametrize("seed", range(3))
def test_a_restored_result_is_within_epsilon_for_any_data(case, seed):
    rng = np.random.default_rng(seed)
    wild = rng.standard_cauchy(case.values.shape) * case.requirement.epsilon
    table = score_thresholds(replace(case, values=wild), KILLS)
    assert (table["largest"] <= table["threshold"]).all() and (table["restored"] == 1).all()
    assert (table["outage"] < 0.9).all()


def test_thresholds_bound_the_past_and_not_the_outage_of_real_sensors(case):
    table = score_thresholds(case, KILLS).set_index("threshold")
    assert (table["restored"] == 1).all() and (table["again"] == 0).all()
    assert 0 < table.loc[1.0, "backups"] < table.loc[0.5, "backups"] < WIDTH
    assert table.loc[1.0, "outage"] < table.loc[1.0, "item_lost"] <= 1


def test_a_worker_that_forgets_its_backups_breaks_the_bound(case, monkeypatch):
    def first_only(states, threshold):
        return np.broadcast_to(states[0], states.shape), np.ones(states.shape[1])

    monkeypatch.setattr(thresholds, "back_up", first_only)
    assert score_thresholds(case, KILLS)["largest"].max() > 1
