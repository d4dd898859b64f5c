"""A stream that follows a plan emits what the plan promises, and is compared with the truth."""

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans import followed
from aftlib.sensor_plans.plan import plan as make_plan
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import read_sensors


def draw_samples():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(8000, 1)) + 0.2 * rng.normal(size=(8000, 3))
    values[7990, 0] = np.nan
    return pd.DataFrame(values, pd.date_range("2026-01-01", periods=8000, freq="min"), [*"abc"])


@pytest.fixture(scope="module")
def rows(spark, tmp_path_factory):
    samples = read_sensors(draw_samples())
    made = make_plan(samples, Question(epsilon_sd=1.0))
    directory = tmp_path_factory.mktemp("followed") / "stream"
    table = followed.follow_plan(spark, made, samples, directory)
    return made, table, pd.read_parquet(directory / "windows")


def test_only_the_machine_that_is_away_has_estimated_and_lost_rows(rows):
    made, table, _ = rows
    away = table[table["machine"] == "away"]
    assert len(away) == followed.OUTAGES * followed.OUTAGE_WINDOWS
    assert {*away["sensor"]} == {*made.assignment[made.outage.machine]}
    assert {*away["state"]} <= {"estimated", "lost"} and (away["state"] == "estimated").sum() > 20
    at_work = table[(table["machine"] == "at work") & table["truth"].notna()]
    assert {*at_work["state"]} == {"exact"}
    assert at_work["error"].max() < 1e-6


def test_the_stream_begins_without_what_the_plans_guard_learned_of_the_same_samples(rows):
    made, _, emitted = rows
    assert made.learned is not None
    first = emitted[emitted["start"] == emitted["start"].min()]
    assert len(first) == 3 and (first["recoverable"] == 0).all()
    assert (emitted["recoverable"] > 0).any()


def test_errors_are_those_against_all_samples(rows):
    made, table, _ = rows
    truth = draw_samples().resample("10min").mean()
    whole = table[(table["machine"] == "away") & table["value"].notna()]
    assert len(whole)
    for row in whole.itertuples():
        expected = abs(row.value - truth.loc[row.start.tz_localize(None), row.sensor])
        assert row.error == pytest.approx(expected)
    counts = followed.count_states(table)
    estimated = counts[(counts["machine"] == "away") & (counts["state"] == "estimated")].iloc[0]
    assert estimated["compared"] == len(whole)
    assert estimated["within"] == pytest.approx((whole["error"] <= whole["epsilon"]).mean())


def test_windows_whose_truth_is_unknown_are_not_compared(rows):
    unknown = rows[1][rows[1]["truth"].isna()]
    assert unknown["sensor"].tolist() in ([], ["a"])
    assert unknown["error"].isna().all()


def test_outages_begin_after_the_guard_has_learned():
    numbers = pd.Series(range(500))
    away = followed.is_away(numbers)
    assert away.sum() == followed.OUTAGES * followed.OUTAGE_WINDOWS
    assert numbers[away].min() == followed.BEFORE
