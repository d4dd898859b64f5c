"""Real sensor files: put on a grid, every defect counted or refused."""

import gzip

import numpy as np
import pandas as pd
import pytest

from aftlib.core.datasets import even_grid, read_table
from aftlib.core.sensortable import Quality
from tests.refusals import refused

TIMES = pd.date_range("2026-01-01", periods=6, freq="h")
SECONDS = TIMES.astype("datetime64[s]").asi8
SLASHED = ["2026-01-01", *pd.date_range("2026-01-02", periods=5).strftime("%d/%m/%Y")]


def frame(rows=range(6), **columns):
    base = {"t": TIMES, "a": np.arange(6.0), "b": np.arange(6.0) * 2}
    return pd.DataFrame(base | columns).iloc[list(rows)]


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


test_tables_and_options_that_do_not_fit_are_named = refused(
    lambda table, options: even_grid(table, **options),
    (frame()[["t"]], {}, "frame must hold sensors and rows"),
    (frame(), {"drop": "a"}, "drop must be a list of columns, got 'a'"),
    (frame(), {"resample": "1ms"}, "6 rows for 18000001 steps of .*; correct a wrong time"),
    (frame(), {"drop": ["t"], "resample": "1h"}, "resample must be given with times, got '1h'"),
    (frame(), {"drop": ["t"], "tz": "UTC"}, "tz must be given with times, got 'UTC' and no column"),
    *(
        (frame(t=times), {"time": "t", "tz": "UTC"}, "tz must be given with local times only, got ")
        for times in (SECONDS, TIMES.tz_localize("UTC").astype(str))
    ),
    (frame(u=SECONDS), {}, "columns 't', 'u' look like times; name one with time="),
    (frame(t=SLASHED), {}, "got '02/01/2026' in row 2; write times as 2024-01-31"),
    (frame(t=TIMES[[0] * 6], a="id"), {}, "'a' holds names, such as 'id': .*long='t,a,b'"),
)


def test_split_and_log(tmp_path):
    first, second = even_grid(frame()).split(0.5)
    np.testing.assert_array_equal(second.values[:, 0], [3, 4, 5])
    assert len(first.time) == 3
    log = second.write_log(tmp_path / "log")
    np.testing.assert_array_equal(log.read(None, 0, 3), second.values)
    assert log.about["quality"]["rows"] == 6
    with pytest.raises(ValueError, match="share must be above 0 and below 1, got 1"):
        second.split(1)


def test_an_index_of_such_numbers_or_of_dates_as_text_is_the_times():
    for index in (pd.Index(SECONDS), pd.Index(TIMES.astype(str)), pd.Index(SECONDS, name="when")):
        table = even_grid(frame().drop(columns="t").set_index(index))
        assert list(table.time) == list(TIMES)
    assert even_grid(frame().drop(columns="t").set_index(pd.Index(SECONDS, name="x")), "x").names


def test_a_saved_index_without_a_name_is_no_sensor(tmp_path):
    path = tmp_path / "x.csv"
    bare = frame().drop(columns="t")
    bare.to_csv(path)
    assert read_table(path).names == ("a", "b")
    bare.set_index(np.arange(6) * 10).to_csv(path)
    with pytest.raises(ValueError, match=r"'Unnamed: 0' looks like an index, from 0 to 50; take"):
        read_table(path)
    assert read_table(path, "Unnamed: 0").time[1].second == 10
    bare.set_index(TIMES).to_csv(path)
    assert list(read_table(path).time) == list(TIMES)
    for rows in (range(6), [3, 0, 1, 5, 2, 4]):  # the numbers of rows, beside a column of times
        frame().iloc[list(rows)].to_csv(path)
        assert read_table(path).names == read_table(path, "t").names == ("a", "b")


def test_dates_with_dots_have_the_day_first():
    days = pd.date_range("2026-01-01", periods=6)
    for notation in ("%d.%m.%Y", "%d.%m.%Y %H:%M"):
        assert list(even_grid(frame(t=days.strftime(notation))).time) == list(days)


def test_a_separator_at_the_end_of_every_row_shifts_no_name(tmp_path):
    rows = "".join(f"2026-01-0{day},{day},7,\n" for day in (1, 2, 3))
    (tmp_path / "x.csv").write_text("time,a,b\n" + rows)
    table = read_table(tmp_path / "x.csv")
    assert (table.names, table.values.tolist()) == (("a", "b"), [[1, 7], [2, 7], [3, 7]])


@pytest.mark.parametrize(("separator", "decimal"), [(";", "."), ("\t", ",")])
def test_separators_and_decimals_of_other_countries(tmp_path, separator, decimal):
    wanted = frame(a=np.arange(6) + 0.5)
    wanted.to_csv(tmp_path / "x.csv", sep=separator, decimal=decimal, index=False)
    table = read_table(tmp_path / "x.csv")
    np.testing.assert_array_equal(table.values, wanted[["a", "b"]])


def test_rows_that_meet_at_a_step_are_averaged_and_counted():
    table = even_grid(frame([5, 0, 1, 2]), resample="2h")  # a tie goes to the later step
    np.testing.assert_array_equal(table.values[:, 0], [0.0, 1.5, np.nan, 5.0])
    assert table.quality == Quality(
        4, out_of_order=1, duplicates=0, missing_steps=1, missing_values=0, non_finite=0, averaged=2
    )
    twice = pd.concat([frame(), frame([2]).assign(a=4.0)])
    table = even_grid(twice, resample="1h")
    assert table.values[2].tolist() == [3.0, 4.0]
    assert (table.quality.averaged, table.quality.rows) == (2, 7)


def test_a_sensor_that_fails_in_the_second_half_is_named():
    table = even_grid(frame(b=[1.0, 2, 3, np.nan, np.nan, np.nan]))
    with pytest.raises(ValueError, match=r"'b' must have a value in the second part.*drop=\['b'\]"):
        table.split()


def test_a_sensor_called_as_the_column_of_times_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("time,id,v\n2026-01-01,time,1\n2026-01-02,time,2\n")
    with pytest.raises(ValueError, match="a sensor is called 'time', like the column of times: r"):
        read_table(tmp_path / "x.csv", long=["time", "id", "v"])


# A historian's export: comments, a packed file per day, local times, texts for missing values.
EXPORT = """# PI export, Café
tag;time;value;status;unit
a;2024-01-0{day} 01:00;{value},5;Good;°C
a;2024-01-0{day} 02:00;9,0;Bad;°C
b;2024-01-0{day} 01:00;No Data;Good;°C
b;2024-01-0{day} 02:00;7,0;Good;°C # by hand
"""
READ = {
    "long": ["time", "tag", "value"], "where": ["status=Good"], "tz": "Europe/Berlin",
    "comment": "#", "encoding": "cp1252", "na": ["No Data"], "decimal": ",",
}  # fmt: skip


@pytest.fixture
def exports(tmp_path):
    folder = tmp_path / "exports"
    folder.mkdir()
    for day, value in enumerate([1, 4, 2], start=1):
        text = EXPORT.format(day=day, value=value).encode("cp1252")
        (folder / f"2024-0{day}.csv.gz").write_bytes(gzip.compress(text))
    return folder


@pytest.mark.parametrize("pattern", ["", "2024-0[123].csv.gz", "*"])
def test_exports_of_a_historian(exports, pattern):
    table = read_table(exports / pattern, **READ)
    assert table.names == ("a", "b")
    assert table.time[[0, 1, -1]].astype(str).tolist() == [
        "2024-01-01 00:00:00+00:00", "2024-01-01 01:00:00+00:00", "2024-01-03 01:00:00+00:00"
    ]  # fmt: skip
    there = {(0, 0): 1.5, (1, 1): 7, (24, 0): 4.5, (25, 1): 7, (48, 0): 2.5, (49, 1): 7}
    assert {tuple(at): table.values[*at] for at in np.argwhere(np.isfinite(table.values))} == there
    assert table.quality.filtered == 3
    assert table.ignored == ("unit",)


test_options_that_do_not_fit_an_export_are_refused = refused(
    lambda change, exports: read_table(exports, **READ | change),
    ({"where": ["quality=Good"]}, "where must be COLUMN=VALUE, got 'quality=Good'; columns"),
    ({"where": ["status"]}, "where must be COLUMN=VALUE, got 'status'"),
    ({"where": ["status=good"]}, "does where= leave no row"),
    ({"tz": "Berlin"}, "tz must be the zone of the times in 'time', .* got 'Berlin'"),
    ({"encoding": "latin-99"}, "encoding must be one of Python's, .* got 'latin-99'"),
    ({"encoding": None}, "save it as UTF-8, or name its encoding="),
    ({"comment": "//"}, "comment must be one character, got '//'"),
    ({"comment": None}, "got 'status=Good'; columns are '# PI export', 'Café'"),
    ({"na": []}, "column 'value' must be numeric, got str"),
    ({"long": ["time", "sensor", "value"]}, r"got \['sensor'\]; columns of '2024-01.csv.gz'"),
)


def test_conditions_on_a_wide_file(tmp_path):
    """Values of one column are alternatives, those of several must all hold."""
    times = pd.date_range("2024-01-01", periods=6, freq="h")
    frame = pd.DataFrame({"time": times, "a": range(6), "b": [3, 1, 4, 1, 5, 9]})
    frame = frame.assign(quality=[192, 192, 0, 216, None, 192], mode=list("xxxxxy"))
    frame.to_csv(tmp_path / "a.csv", index=False)
    table = read_table(tmp_path / "a.csv", where=["quality=192", "quality=216", "mode=x"])
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.values[:, 1], [3, 1, np.nan, 1])
    assert (table.quality.rows, table.quality.filtered) == (3, 3)


def test_local_times_become_utc_through_both_changes_of_the_clock(tmp_path):
    for start in ("2024-03-30 20:00", "2024-10-26 20:00"):
        utc = pd.date_range(start, periods=12, freq="h", tz="UTC")
        local = utc.tz_convert("Europe/Berlin").tz_localize(None)
        pd.DataFrame({"time": local, "a": range(12), "b": 1.0}).to_csv(tmp_path / "a.csv")
        table = read_table(tmp_path / "a.csv", drop=["Unnamed: 0"], tz="Europe/Berlin")
        assert table.time.tolist() == utc.tolist()
    pd.DataFrame({"time": ["2024-03-31 02:30", "2024-03-31 03:30"], "a": 1.0}).to_csv(
        tmp_path / "a.csv", index=False
    )
    with pytest.raises(ValueError, match="tz must be the zone of the times in 'time', .*02:30"):
        read_table(tmp_path / "a.csv", tz="Europe/Berlin")
