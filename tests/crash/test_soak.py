"""A short soak of `recoverable` under kills, and controls: each harm is counted."""

import os

import numpy as np
import pandas as pd
import pytest

from benchmarks import soak
from benchmarks.soak_data import (
    BEGIN,
    EPSILON,
    HORIZONS,
    LONGEST_SILENCE,
    SAMPLES,
    Stream,
    due_rounds,
)

SECONDS = 1800.0 if os.environ.get("AFT_TRIALS") == "full" else 24.0
SECONDS = float(os.environ.get("AFT_SOAK_SECONDS") or SECONDS)
HARMS = ("lost", "doubled", "wrong", "outside", "not_due")
WINDOWS, CHANGE = 60, 9
"""Windows of a result without harm, and the first one with the sensors that join."""


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(SECONDS + 500)
@pytest.mark.parametrize("groups", [1, 20])
def test_nothing_is_lost_or_doubled_under_faults(tmp_path, groups):
    score = soak.soak(SECONDS, tmp_path, groups)
    assert soak.broken(score) == []
    assert score["failures"] >= 3 and score["worker_kills"] >= 1
    assert score["due"] > 0 and score["rejected"] > 0 and score["joined"] > 0


@pytest.fixture(scope="module", params=[1, 40])
def stream(request):
    return Stream(request.param)


@pytest.fixture
def rows(stream):
    return result_without_harm(stream)


def result_without_harm(stream):
    window, group, sensor = np.nonzero(stream.due(WINDOWS, CHANGE))
    truth = np.array([stream.means(each) for each in range(WINDOWS)])
    sent = np.array([stream.sent(each) for each in range(WINDOWS)])
    rows = pd.DataFrame(
        {
            "start": BEGIN + pd.to_timedelta(window * SAMPLES, unit="s"),
            "site": group,
            "sensor": [f"s{each}" for each in sensor],
            "state": np.where(sent[window, group, sensor], "exact", "lost"),
            "value": truth[window, group, sensor],
        }
    )
    return rows.drop(columns="site") if stream.groups == 1 else rows


def harms_of(stream, *tables):
    score = soak.score(stream, tables, WINDOWS)
    return {harm: score[harm] for harm in HARMS if score[harm]}


def row_of(rows, state, nth=-1):
    """The index of a row of one group, by default of the last one."""
    return rows.index[rows["state"] == state][nth]


def test_a_result_without_harm_has_none_in_any_parts(stream, rows):
    assert harms_of(stream, rows) == {}
    assert harms_of(stream, rows[::3], rows[1::3], rows[2::3]) == {}


def test_one_lost_row_is_counted(stream, rows):
    assert harms_of(stream, rows.drop(row_of(rows, "exact"))) == {"lost": 1}
    assert harms_of(stream, rows.drop(row_of(rows, "lost"))) == {"lost": 1}
    assert harms_of(stream, rows.drop(row_of(rows, "exact", nth=0))) == {"lost": 1}


def test_a_group_without_any_row_is_lost():
    stream = Stream(3)
    rows = result_without_harm(stream)
    others = rows[rows["site"] != 2]
    assert harms_of(stream, others) == {"lost": len(rows) - len(others)}


def test_the_rows_of_two_groups_in_each_others_place_are_wrong():
    stream = Stream(2)
    rows = result_without_harm(stream)
    exact = rows["state"] == "exact"
    rows.loc[exact, "site"] = 1 - rows.loc[exact, "site"]
    assert harms_of(stream, rows)["wrong"] == exact.sum()


def test_one_doubled_row_is_counted_within_a_file_and_in_two(stream, rows):
    again = rows.loc[[row_of(rows, "exact")]]
    assert harms_of(stream, pd.concat([rows, again])) == {"doubled": 1}
    assert harms_of(stream, rows, again) == {"doubled": 1}
    assert harms_of(stream, rows, again, again) == {"doubled": 2}


def test_one_wrong_value_is_counted(stream, rows):
    rows.loc[row_of(rows, "exact"), "value"] += 1e-5
    assert harms_of(stream, rows) == {"wrong": 1}


def test_an_exact_row_that_nobody_sent_is_wrong(stream, rows):
    rows.loc[row_of(rows, "lost"), "state"] = "exact"
    assert harms_of(stream, rows) == {"wrong": 1}


def test_an_estimate_may_be_off_by_epsilon(stream, rows):
    row = row_of(rows, "lost")
    rows.loc[row, "state"] = "estimated"
    rows.loc[row, "value"] += 0.9 * EPSILON
    assert harms_of(stream, rows) == {}
    rows.loc[row, "value"] += 0.2 * EPSILON
    assert harms_of(stream, rows) == {"outside": 1}
    rows.loc[row, "value"] = np.nan
    assert harms_of(stream, rows) == {"outside": 1}


def test_harms_are_named():
    score = {"lost": 1, "doubled": 2, "wrong": 1, "wrong_promises": 3, "bound": 2}
    assert soak.broken(score) == [
        "1 lost", "2 doubled", "1 wrong", "3 wrong guarantees, at most 2"
    ]  # fmt: skip
    assert soak.broken(dict.fromkeys(score, 0)) == []


def test_the_rows_of_a_window_are_those_that_were_sent(stream):
    window = 30
    rows = stream.rows(window)
    rows = rows[rows["time"].between(BEGIN, BEGIN + pd.Timedelta(days=1))].dropna()
    rows = rows[rows["sensor"] != "ghost"]
    groups = rows["site"].to_numpy()
    sensors = rows["sensor"].str[1:].to_numpy().astype(int)
    number = np.zeros((stream.groups, stream.after))
    total = np.zeros_like(number)
    np.add.at(number, (groups, sensors), 1)
    np.add.at(total, (groups, sensors), rows["value"])
    sent = stream.sent(window)
    assert (number == SAMPLES * sent).all()
    np.testing.assert_allclose(total[sent] / SAMPLES, stream.means(window)[sent])


def test_some_groups_join_later_and_some_are_silent_for_longer_than_the_horizons():
    stream = Stream(40)
    sends = np.array([stream.sends(window) for window in range(300)])
    due = stream.due(300, change=0)[:, :, 0]
    joined = np.arange(300)[:, None] >= stream.joined_at
    assert 0 < (stream.joined_at > 0).sum() < 40
    assert (joined & due & ~sends).any()
    assert (joined & ~due)[:-LONGEST_SILENCE].any()
    assert sends[:, 0].all()


@pytest.mark.parametrize("seed", range(5))
def test_due_rounds_are_those_of_a_loop_over_windows(seed):
    sends = np.random.default_rng(seed).random((60, 8)) < 0.2
    for group, due in enumerate(due_rounds(sends).T):
        rounds, gap, began = [], [], False
        for window, sent in enumerate(sends[:, group]):
            if sent:
                rounds += [*gap, window]
                gap, began = [], True
            elif began and len(gap) < HORIZONS:
                gap.append(window)
        assert np.flatnonzero(due).tolist() == rounds
