"""Real sensor files: put on a grid, every defect counted or refused."""

import numpy as np
import pandas as pd
import pytest

from aftlib.core.datasets import Quality, even_grid, read_table

TIMES = pd.date_range("2026-01-01", periods=6, freq="h")


def frame(rows=range(6), **columns):
    base = {"t": TIMES, "a": np.arange(6.0), "b": np.arange(6.0) * 2}
    return pd.DataFrame(base | columns).iloc[list(rows)]


def test_clean_table():
    table = even_grid(frame())
    assert table.quality == Quality(6, 0, 0, 0, 0, 0)
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.values[:, 0], np.arange(6))


def test_every_defect_is_counted_and_nothing_dropped():
    messy = frame([0, 1, 2, 5, 3, 3]).reset_index(drop=True)
    messy.loc[0, "a"], messy.loc[1, "b"] = np.inf, np.nan
    table = even_grid(messy)
    assert table.quality == Quality(
        rows=6, out_of_order=1, duplicates=1, missing_steps=1, missing_values=1, non_finite=1
    )
    assert np.isnan(table.values[0, 0])
    assert np.isnan(table.values[4]).all()
    np.testing.assert_array_equal(table.values[5], [5, 10])
    np.testing.assert_array_equal(table.time, TIMES)


def test_two_different_rows_of_one_time_are_refused():
    twice = pd.concat([frame(), frame([2]).assign(a=99.0)])
    with pytest.raises(ValueError, match=r"two different rows share the time 2026-01-01 02:00"):
        even_grid(twice)


def test_times_off_the_grid_are_refused():
    off = frame(t=[*TIMES[:5], TIMES[5] + pd.Timedelta("7min")])
    with pytest.raises(ValueError, match="times must lie on an even grid, got 2026-01-01 05:07"):
        even_grid(off)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            frame(a=["x"] * 6).drop(columns="t"),
            "column 'a' must hold numbers or ISO 8601 times, got 'x'",
        ),
        (frame(b=["x"] * 6), "column 'b' must be numeric"),
        (frame(a=np.nan), "column 'a' must hold a finite value, got none"),
        (frame(t=[*TIMES[:5], pd.NaT]), "column 't' must have a time in every row"),
        (frame()[["t"]], "frame must hold sensors and rows"),
    ],
)
def test_what_is_no_wide_table_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        even_grid(table)


def test_named_time_column_must_exist():
    with pytest.raises(ValueError, match="time must be a column, got 'when'; columns are 't'"):
        even_grid(frame(), "when")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files(tmp_path, suffix):
    path = tmp_path / f"sensors.{suffix}"
    frame().to_csv(path, index=False) if suffix == "csv" else frame().to_parquet(path)
    table = read_table(path, "t")
    np.testing.assert_array_equal(table.values, frame()[["a", "b"]])
    np.testing.assert_array_equal(read_table(path).values, table.values)


def test_file_without_times_is_taken_row_by_row(tmp_path):
    frame().drop(columns="t").to_csv(tmp_path / "x.csv", index=False)
    assert read_table(tmp_path / "x.csv").time.tolist() == list(range(6))


def test_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .csv or .parquet"):
        read_table(tmp_path / "x.xlsx")
    with pytest.raises(ValueError, match="path must be an existing file"):
        read_table(tmp_path / "x.csv")


def test_split_and_log(tmp_path):
    first, second = even_grid(frame()).split(0.5)
    np.testing.assert_array_equal(second.values[:, 0], [3, 4, 5])
    assert len(first.time) == 3
    log = second.write_log(tmp_path / "log")
    np.testing.assert_array_equal(log.read(None, 0, 3), second.values)
    assert log.about["quality"]["rows"] == 6
    with pytest.raises(ValueError, match=r"share must lie inside \(0, 1\), got 1"):
        second.split(1)
