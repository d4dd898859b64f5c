"""A file read in pieces is surveyed as in memory, to the bit, however it is cut."""

import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aftlib.sensor_plans import large_file
from aftlib.sensor_plans.large_file import survey_large
from aftlib.sensor_plans.sensor_file import Inventory, read_sensors
from aftlib.sensor_plans.survey import Question, survey_table
from tests.refusals import refused


def frame(rows=600):
    """With samples, rows and segments of time missing, an infinite and a still sensor."""
    rng = np.random.default_rng(7)
    values = 20 + rng.normal(size=(rows, 1)) + 0.3 * rng.normal(size=(rows, 3))
    values[rng.random(values.shape) < 0.03] = np.nan
    values[17, 2] = -np.inf
    values[100:150, 1] = 19.5
    time = pd.date_range("2026-01-01", periods=rows, freq="10min", name="at")
    whole = pd.DataFrame(values, time, ["a", "b", "c c"])
    return whole.drop(whole.index[[3, 44, *range(299, 351), 590]])


def in_epochs(given):
    return given.reset_index().assign(at=given.index.as_unit("ms").asi8)


NAMES = {"a": "a\nleft", "b": 'pipe of 5"', "c c": "c, lower"}
KINDS = {
    "rows.parquet": lambda f, path: f.reset_index().to_parquet(path, row_group_size=70),
    "index.parquet": lambda f, path: f.to_parquet(path, row_group_size=41),
    "nameless.parquet": lambda f, path: f.rename_axis(None).to_parquet(path, row_group_size=41),
    "epoch.parquet": lambda f, path: in_epochs(f).to_parquet(path, row_group_size=33),
    "offset.csv": lambda f, path: f.set_axis(f.index.astype(str) + "+01:00").to_csv(path),
    "commas.csv": lambda f, path: f.to_csv(path, sep=";", decimal=",", lineterminator="\r\n"),
    "numbered.csv": lambda f, path: f.assign(row=range(len(f))).to_csv(path),
    "quoted.csv": lambda f, path: f.rename(columns=NAMES).to_csv(path),
    "plain.csv": lambda f, path: f.to_csv(path),
}


def in_memory(path, question, **reading):
    table = read_sensors(path, **reading)
    return survey_table(table, Inventory.of(table), question)


def same(survey, expected):
    np.testing.assert_array_equal(survey.values, expected.values)
    assert survey.seasons == expected.seasons
    np.testing.assert_array_equal(survey.recent, expected.recent)
    seen, wanted = survey.inventory, expected.inventory
    assert seen.summary_lines == wanted.summary_lines
    assert (seen.first, seen.last, seen.quality) == (wanted.first, wanted.last, wanted.quality)
    assert seen.fill_values == wanted.fill_values
    np.testing.assert_equal(counts_of(seen.tally), counts_of(wanted.tally))


def counts_of(tally):
    return vars(tally) | {"silence": vars(tally.silence), "still": vars(tally.still)}


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(large_file, "HEAD", 50)
    monkeypatch.setattr(large_file, "PIECE", 90)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", [37, 10**6])
def test_pieces_are_surveyed_as_the_whole(tmp_path, monkeypatch, kind, piece):
    monkeypatch.setattr(large_file, "PIECE", piece)
    path = tmp_path / kind
    KINDS[kind](frame(), path)
    for question in (Question(1.0), Question(1.0, window=7, slide=3)):
        same(survey_large(path, question), in_memory(path, question))


def test_a_quoted_newline_in_a_cell_does_not_end_its_row(tmp_path, small_pieces):
    remarks = ["calm", "wind,\nrain"] * 272 + ["calm"]
    frame().assign(remark=remarks).to_csv(tmp_path / "f.csv")
    expected = in_memory(tmp_path / "f.csv", Question(1.0), drop=["remark"])
    same(survey_large(tmp_path / "f.csv", Question(1.0), drop=["remark"]), expected)
    assert expected.inventory.quality.rows == 545


def test_decimals_and_empty_row_groups_are_read(tmp_path, small_pieces):
    given = frame().round(4).reset_index()
    seconds = [decimal.Decimal(int(t.timestamp())) for t in given["at"]]
    exact = [None if np.isnan(v) else decimal.Decimal(str(v)) for v in given["a"]]
    columns = {"at": seconds, "a": exact, "b": given["b"], "c": given["c c"]}
    rows = pa.table({name: pa.array(values) for name, values in columns.items()})
    with pq.ParquetWriter(tmp_path / "f.parquet", rows.schema) as file:
        for part in (rows[:0], rows[:300], rows[:0], rows[300:]):
            file.write_table(part)
    expected = in_memory(tmp_path / "f.parquet", Question(1.0), time="at")
    same(survey_large(tmp_path / "f.parquet", Question(1.0), time="at"), expected)


def test_only_the_last_rows_of_the_first_half_are_stored(tmp_path, monkeypatch, small_pieces):
    monkeypatch.setattr("aftlib.sensor_plans.survey.MOST_ROWS", 60)
    path = tmp_path / "f.csv"
    frame().to_csv(path)
    survey = survey_large(path, Question(1.0))
    same(survey, in_memory(path, Question(1.0)))
    assert survey.recent.shape == (60, 3)


def test_fill_values_are_marked_wherever_they_are(tmp_path, monkeypatch, small_pieces):
    monkeypatch.setattr("aftlib.sensor_plans.survey.MOST_ROWS", 60)
    given = frame()
    given.iloc[500:504, 0] = -100.0
    given.to_csv(tmp_path / "f.csv")
    with pytest.raises(ValueError, match=r"'a' must hold measurements, got -100 .* missing=\[-100"):
        survey_large(tmp_path / "f.csv", Question(1.0))
    survey = survey_large(tmp_path / "f.csv", Question(1.0), missing=[-100])
    same(survey, in_memory(tmp_path / "f.csv", Question(1.0), missing=[-100]))
    assert survey.inventory.quality.marked == 4
    survey_large(tmp_path / "f.csv", Question(1.0), missing=[])


def test_a_directory_is_one_table(tmp_path, small_pieces):
    question, whole = Question(1.0, query="sum"), tmp_path / "whole.csv"
    frame().to_csv(whole)
    (tmp_path / "many").mkdir()
    for number in range(4):
        part = frame()[number * 140 : (number + 1) * 140]
        columns = part.columns[:: -1 if number == 2 else 1]
        part[columns].to_csv(tmp_path / "many" / f"{number}.csv")
    (tmp_path / "many" / ".hidden").write_text("x")
    (tmp_path / "many" / "0_empty.csv").touch()
    frame()[:0].to_csv(tmp_path / "many" / "1_only_names.csv")
    survey = survey_large(tmp_path / "many", question, drop=["b"])
    same(survey, in_memory(whole, question, drop=["b"]))


def in_files(place, change, kind="csv"):
    """Three files of one table, the second one changed."""
    for number in range(3):
        part = frame()[number * 180 : (number + 1) * 180].reset_index()
        part = change(part) if number == 1 else part
        save = part.to_csv if kind == "csv" else part.to_parquet
        save(place / f"{number}.{kind}", index=False)
    return place


test_files_that_differ_are_refused = refused(
    lambda change, kind, tmp_path: survey_large(in_files(tmp_path, change, kind), Question(1.0)),
    *(
        (change, kind, rf"files must have the same columns, .*1\.{kind}")
        for kind in ("csv", "parquet")
        for change in (
            lambda g: g.drop(columns="b"),
            lambda g: g.rename(columns={"b": "z"}),
            lambda g: g.assign(new=1.0),
        )
    ),
    (
        lambda g: g.assign(at=g["at"].astype(str) + "Z"),
        *("csv", r"1\.csv: times must have an offset .* with one"),
    ),
)


def test_a_file_that_is_broken_is_named(tmp_path):
    path = in_files(tmp_path, lambda g: g, "parquet")
    whole = (path / "1.parquet").read_bytes()
    (path / "1.parquet").write_bytes(whole[:300] + b"?" * 300 + whole[600:])
    with pytest.raises(ValueError, match=r"1\.parquet.*[Cc]orrupt"):
        survey_large(path, Question(1.0))
    (path / "1.parquet").write_bytes(whole[:300])
    with pytest.raises(ValueError, match=r"path must hold a table, got '.*1\.parquet'"):
        survey_large(path, Question(1.0))
    columns = [pa.array(frame().index.to_pydatetime()), *(pa.array([1.0] * 545) for _ in "abc")]
    rows = pa.Table.from_arrays(columns, names=["at", "a", "a", "c c"])
    pq.write_table(rows, path / "1.parquet")
    with pytest.raises(ValueError, match=r"1\.parquet' \(columns must differ, got 'a'"):
        survey_large(path, Question(1.0))


@pytest.mark.parametrize("row", [1, 400])
@pytest.mark.parametrize("more", [",7", ",7,7"])
def test_no_cell_is_left_out(tmp_path, small_pieces, row, more):
    lines = frame().to_csv().splitlines()
    lines[row] += more
    (tmp_path / "f.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError) as whole:
        read_sensors(tmp_path / "f.csv")
    with pytest.raises(ValueError) as pieces:
        survey_large(tmp_path / "f.csv", Question(1.0))
    if row > 1:
        assert "give every line as many cells as the first" in str(whole.value)
        assert f"line {row + 1}, saw" in str(pieces.value)


def swapped(given):
    return given.iloc[np.r_[0:300, 310:400, 300:310, 400 : len(given)]]


def survey_changed(change, tmp_path, small_pieces):
    change(frame().reset_index()).to_csv(tmp_path / "f.csv", index=False)
    return survey_large(tmp_path / "f.csv", Question(1.0))


test_rows_that_cannot_be_read_in_pieces_are_refused = refused(
    survey_changed,
    (swapped, "rows must be in the order of their times, each time once, got 2026-01-01 00:00"),
    (lambda g: g.iloc[np.r_[0:300, 299:545]], "each time once"),
    (lambda g: g.iloc[::-1], "rows must be in the order of their times"),
    (lambda g: g.drop(columns="at"), "must have times in its rows, got '.*f.csv' without"),
    (lambda g: g.assign(b=1.0), r"column 'b' must vary, got one value only"),
    (lambda g: g.assign(b=g["b"].where(g.index != 9, 9e36)), "column 'b' must hold measureme"),
    (
        lambda g: g.assign(b=g["b"].astype(str).where(g.index != 400, "?")),
        r"column 'b' must be numeric, got .* such as '\?'",
    ),
    (
        lambda g: g.assign(at=g["at"].where(g.index != 400, g["at"] + pd.Timedelta("3s"))),
        "times must lie on an even grid, got 2026-01-04 0.*:03 off the period of 0 days 00:10",
    ),
    (
        lambda g: g.assign(at=g["at"].astype(str) + np.where(g.index < 400, "Z", "")),
        "'at' must have an offset from UTC|times must have an offset",
    ),
    (
        lambda g: g.assign(at=g["at"].where(g.index < 544, pd.Timestamp("2200-01-01"))),
        "rows must be closer in time, got 545 rows from 2026-01-01 .* to 2200-01-01 .*",
    ),
    (lambda g: g[:70], "window must leave at least 8 windows, got 7"),
    (lambda g: g[:0], "is it empty"),
    (lambda g: g.rename(columns={"b": "c c"}), "got 'c c' more than once; rename"),
)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "path must hold .csv or .csv.gz or .parquet files, all of one kind, got"),
        ({"a.csv": b"x", "b.parquet": b"x"}, "with 'a.csv', 'b.parquet'"),
        ({"a.csv": b""}, "path must hold a table, got '.*a.csv'"),
        ({"a.parquet": b"PAR1"}, "path must hold a table, got '.*a.parquet'"),
    ],
)
def test_directories_that_hold_no_table_are_refused(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    with pytest.raises(ValueError, match=message):
        survey_large(tmp_path, Question(1.0))
    with pytest.raises(ValueError, match="must be an existing .csv or .csv.gz or .parquet file"):
        survey_large(tmp_path / "none.csv", Question(1.0))
