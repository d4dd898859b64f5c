"""Wide and long files give the same table; unfit ones are refused by name."""

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans.sensor_file import Inventory, read_sensors, step_of
from tests.refusals import refused


@pytest.fixture
def wide():
    rng = np.random.default_rng(1)
    time = pd.date_range("2026-01-01", periods=48, freq="h", name="time")
    frame = pd.DataFrame(rng.normal(size=(48, 3)), time, ["a", "b", "c"])
    frame.iloc[5, 1] = np.nan
    return frame


def long_of(wide):
    return wide.reset_index().melt("time", var_name="id", value_name="reading")


def read(frame, tmp_path, **how):
    file = tmp_path / "file.csv"
    frame.to_csv(file, index=isinstance(frame.index, pd.DatetimeIndex))
    return read_sensors(file, **how)


LONG = ("time", "id", "reading")
IN_LONG = {"long": LONG}


@pytest.mark.parametrize("dropped", [False, True])
def test_long_is_wide(wide, tmp_path, dropped):
    given = long_of(wide).sample(frac=1, random_state=1)
    expected = read(wide, tmp_path)
    table = read(given.dropna() if dropped else given, tmp_path, long=LONG)
    np.testing.assert_array_equal(table.values, expected.values)
    assert (table.names, list(table.time)) == (expected.names, list(expected.time))


def test_samples_of_a_long_file_that_repeat_are_counted(wide, tmp_path):
    again = pd.concat([long_of(wide), long_of(wide)[:5]])
    table = read(again, tmp_path, long=LONG)
    np.testing.assert_array_equal(table.values, read(wide, tmp_path).values)
    assert "rows that repeated another: 5" in Inventory.of(table).summary_lines


def test_texts_for_missing_samples_of_a_long_file_are_named(wide, tmp_path):
    long = long_of(wide).astype({"reading": object})
    long.iloc[7, 2] = "Bad"
    with pytest.raises(ValueError, match=r"if that stands for missing, give na=\['Bad'\]"):
        read(long, tmp_path, long=LONG)
    assert np.isnan(read(long, tmp_path, long=LONG, na=["Bad"]).values).sum() == 2


def test_sensors_of_a_long_file_may_be_numbers_and_may_be_dropped(wide, tmp_path):
    numbered = long_of(wide).replace({"id": {"a": 7, "b": 8, "c": 9}})
    assert read(numbered, tmp_path, long=LONG).names == ("7", "8", "9")
    assert read(numbered, tmp_path, long=LONG, drop=["7"]).names == ("8", "9")


def test_samples_of_their_own_times_meet_by_resampling(wide, tmp_path):
    late = long_of(wide).dropna()
    late["time"] += pd.to_timedelta(np.random.default_rng(2).integers(0, 600, len(late)), "s")
    again = pd.concat([late, late.assign(reading=late["reading"] + 1)])
    table = read(again, tmp_path, long=LONG, resample="1h")
    np.testing.assert_allclose(table.values[0], wide.iloc[0] + 0.5)


test_long_files_that_are_none = refused(
    lambda change, how, wide, tmp_path: read(change(long_of(wide)), tmp_path, **(IN_LONG | how)),
    (lambda f: pd.concat([f, f.assign(reading=0)]), {}, "two different samples of 'a' share"),
    (lambda f: f.assign(reading="x"), {}, "column 'reading' must be numeric"),
    (lambda f: f.assign(id=None), {}, "columns 'time' and 'id' must be filled in every row"),
    (lambda f: f, {"long": ("time", "id")}, "long must name three columns"),
    (lambda f: f, {"long": ("time", "id", "x")}, r"long must name columns, got \['x'\]"),
    (lambda f: f, {"time": "time"}, "time must not be given with long, got 'time'"),
    (lambda f: f[f["id"] == "a"], {}, r"must hold at least two sensors, got \['a'\]"),
)


test_unfit_files_are_refused_by_column = refused(
    lambda change, wide, tmp_path: read(change(wide), tmp_path),
    (lambda f: f[["a"]], r"the file must hold at least two sensors, got \['a'\]"),
    (lambda f: f[:1], "the file must hold at least two rows, got 1"),
    (lambda f: f.assign(b=1.0), r"column 'b' must vary, got one value only.*drop=\['b'\]"),
    (lambda f: f * 0, "no column varies, got one value only in each"),
    (lambda f: f.assign(b=f["b"].where(np.arange(48) % 5 < 2)), "column 'b' must have most"),
    (lambda f: f[f.index.hour % 5 < 2].reindex(f.index), r"60% missing\); take a longer step"),
)


def test_the_summary_says_how_the_file_was_read(wide, tmp_path):
    given = wide.drop(wide.index[10:14])
    given.iloc[0, 0] = np.inf
    table = read(pd.concat([given[20:], given[:21]]), tmp_path)
    lines = "\n".join(Inventory.of(table).summary_lines)
    assert step_of(table) == pd.Timedelta(hours=1)
    for expected in (
        "sensors: 3 (a, b, c)",
        "time: 2026-01-01 00:00:00 to 2026-01-02 23:00:00",
        "step: 01:00:00, 48 steps from 45 rows",
        "gaps: 9.72% of all samples are missing",
        "the longest time without any sensor is 4 steps",
        "rows that repeated another: 1",
        "rows out of order, sorted: 1",
        "infinite values, taken as missing: 1",
    ):
        assert expected in lines


def test_a_file_without_times(wide, tmp_path):
    table = read(wide.fillna(0).reset_index(drop=True), tmp_path)
    assert step_of(table) is None
    assert "time: none; 48 rows are taken as even steps" in Inventory.of(table).summary_lines
    assert "gaps: none" in Inventory.of(table).summary_lines
