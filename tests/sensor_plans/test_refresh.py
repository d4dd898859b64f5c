"""Plans that are made again: by hand, when nothing changes, and when sensors change groups."""

import numpy as np
import pandas as pd
import pytest

from aftlib.core.datasets import even_grid
from aftlib.sensor_plans.experiments import (
    MODEL_ONLY,
    NEVER,
    REFRESHED,
    NotebookParameters,
    refresh,
    refresh_sets,
    sensors_moved,
)
from aftlib.sensor_plans.sensor_file import Inventory
from aftlib.sensor_plans.survey import Question, survey_table
from tests.refusals import refused

TERMS = Question(epsilon_sd=0.6, workers=2, window=1)


def results(change, rounds=800):
    """Two pairs of sensors; with `change`, other sensors are pairs in the second half."""
    rng = np.random.default_rng(1)
    common, own = rng.normal(size=(rounds, 2)), 0.1 * rng.normal(size=(rounds, 4))
    groups = np.tile([0, 0, 1, 1], (rounds, 1))
    if change:
        groups[rounds // 2 :] = [0, 1, 1, 0]
    values = np.take_along_axis(common, groups, axis=1) + own
    table = even_grid(pd.DataFrame(values, columns=[*"abcd"]))
    return survey_table(table, Inventory.of(table), TERMS)


def by_method(frame):
    return frame.set_index("method")


def test_nothing_moves_where_nothing_changes():
    rows = by_method(refresh(results(change=False), TERMS, every=50, past=200))
    assert (rows["certified"] == 1).all() and (rows["within"] > 0.99).all()
    assert rows.loc[NEVER, "moved"] == rows.loc[MODEL_ONLY, "moved"] == 0
    assert (rows["low"] <= rows["within"]).all() and (rows["within"] <= rows["high"]).all()


def test_a_new_assignment_follows_sensors_that_change_groups():
    rows = by_method(refresh(results(change=True), TERMS, every=50, past=50))
    assert rows.loc[NEVER, "certified"] == 1 and rows.loc[NEVER, "within"] < 0.7
    assert rows.loc[REFRESHED, "certified"] > rows.loc[MODEL_ONLY, "certified"]
    assert rows.loc[REFRESHED, "within"] > 0.85 and rows.loc[REFRESHED, "moved"] > 0
    assert rows.loc[NEVER, "replay_within"] < rows.loc[REFRESHED, "replay_within"]


def test_missing_results_are_neither_estimated_nor_used():
    survey = results(change=False)
    survey.values[500:520, 1] = np.nan
    rows = by_method(refresh(survey, TERMS, every=50, past=200))
    assert rows.loc[NEVER, "certified"] == 1 and rows.loc[NEVER, "within"] > 0.95


test_what_cannot_be_refreshed_is_refused = refused(
    lambda change: refresh(results(change=False), TERMS, **({"every": 50, "past": 200} | change)),
    ({"every": 0}, "every must be at least 1, got 0"),
    ({"past": 3}, "past must be from 4, the number of sensors, to 400, .* got 3"),
    ({"past": 401}, "past must be from 4, .* got 401"),
)


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ([(0, 1), (2, 3)], [(2, 3), (0, 1)], 0),
        ([(0, 1), (2, 3)], [(0, 2), (1, 3)], 2),
        ([(0, 1, 2), (3,)], [(0, 1), (2, 3)], 1),
    ],
)
def test_moved_sensors_are_counted_whatever_the_groups_are_named(before, after, moved):
    assert sensors_moved(before, after) == moved


def test_the_notebook_refreshes_each_set_but_no_plan():
    frame = refresh_sets(NotebookParameters(rows=3000, rounds=600))
    assert frame.groupby("set").size().tolist() == [3, 3, 3, 3]
