"""A file surveyed by tasks is the one surveyed in memory, to the bit, however it is cut."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans import layout as layouts
from aftlib.sensor_plans.inventory import Inventory, Tally
from aftlib.sensor_plans.layout import layout_of, stretches_of
from aftlib.sensor_plans.pipeline import Found, Task, survey_by_spark
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.survey import Survey, answerable_windows, recent_rows


def frame(rows=600):
    """With samples, rows and stretches of time missing, an infinite and a still sensor."""
    rng = np.random.default_rng(7)
    values = 20 + rng.normal(size=(rows, 1)) + 0.3 * rng.normal(size=(rows, 3))
    values[rng.random(values.shape) < 0.03] = np.nan
    values[17, 2] = -np.inf
    values[100:150, 1] = 19.5
    time = pd.date_range("2026-01-01", periods=rows, freq="10min", name="at")
    whole = pd.DataFrame(values, time, ["a", "b", "c c"])
    return whole.drop(whole.index[[3, 44, *range(299, 351), 590]])


def write(place, what):
    given = frame().reset_index()
    if what == "parquet":
        given.to_parquet(place / "f.parquet", row_group_size=70)
    elif what == "index":
        frame().to_parquet(place / "f.parquet", row_group_size=41)
    elif what == "nameless index":
        frame().rename_axis(None).to_parquet(place / "f.parquet", row_group_size=41)
    elif what == "epoch":
        given["at"] = given["at"].astype("datetime64[ms]").astype("int64")
        given.to_parquet(place / "f.parquet", row_group_size=33)
    elif what == "offset":
        given["at"] = given["at"].astype(str) + "+01:00"
        given.to_csv(place / "f.csv", index=False)
    elif what == "commas":
        given.to_csv(place / "f.csv", index=False, sep=";", decimal=",", lineterminator="\r\n")
    elif what == "csv":
        given.to_csv(place / "f.csv", index=False)
    return next(place.iterdir())


def in_memory(path, question, **reading):
    table = read_sensors(path, **reading)
    return Survey.of(table, Inventory.of(table), question)


def by_tasks(path, question, cells, **reading):
    """What `survey_by_spark` does, its tasks one after another, from the last to the first."""
    layout = layout_of(path, reading.get("time"), reading.get("drop", ()))
    windows = answerable_windows(layout.names, layout.steps, layout.step, question)
    stretches, recent = stretches_of(layout, cells), recent_rows(layout.steps)
    found = Found(layout, windows, recent)
    for place in reversed(range(len(stretches))):
        messages = Task(layout, windows, recent).run(stretches[place])
        for number, message in enumerate(messages):
            found.take((place, number), *message)
    return found.survey(), len(stretches)


def same(found, expected):
    np.testing.assert_array_equal(found.results.values, expected.results.values)
    assert found.results.seasons == expected.results.seasons
    np.testing.assert_array_equal(found.recent, expected.recent)
    seen, wanted = found.inventory, expected.inventory
    assert seen.taken == wanted.taken
    assert (seen.first, seen.last, seen.quality) == (wanted.first, wanted.last, wanted.quality)
    for name, part in asdict(wanted.tally).items():
        np.testing.assert_equal(asdict(seen.tally)[name], part, name)


KINDS = ["parquet", "index", "nameless index", "epoch", "offset", "commas", "csv"]


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize(("window", "slide"), [(10, None), (7, 3)])
def test_tasks_see_what_is_seen_in_memory(tmp_path, monkeypatch, what, window, slide):
    monkeypatch.setattr(layouts, "BATCH", 90)
    path, question = write(tmp_path, what), Question(1.0, window=window, slide=slide)
    expected = in_memory(path, question)
    for cells in (2, 150, 10**6) if slide else (150, 10**6):  # 2: fewer bytes than a line has
        found, count = by_tasks(path, question, cells)
        same(found, expected)
        assert count > 5 if cells == 2 else count >= 1


def test_a_directory_is_one_table(tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "HEAD", 50)
    question, whole = Question(1.0, query="sum"), tmp_path / "whole.csv"
    frame().to_csv(whole)
    (tmp_path / "many").mkdir()
    for number in range(4):
        frame()[number * 140 : (number + 1) * 140].to_csv(tmp_path / "many" / f"{number}.csv")
    (tmp_path / "many" / ".hidden").write_text("x")
    found, count = by_tasks(tmp_path / "many", question, 100, drop=["b"])
    same(found, in_memory(whole, question, drop=["b"]))
    assert count > 4


def test_files_that_are_not_in_the_order_of_their_names_are_refused(tmp_path):
    for number in range(11):
        frame()[number * 49 : (number + 1) * 49].to_csv(tmp_path / f"{number + 1}.csv")
    with pytest.raises(ValueError, match="rows must be in the order of their times"):
        by_tasks(tmp_path, Question(1.0), 100)


def in_files(place, change, kind="csv"):
    """Three files of one table, the second one changed."""
    for number in range(3):
        part = frame()[number * 180 : (number + 1) * 180].reset_index()
        part = change(part) if number == 1 else part
        write = part.to_csv if kind == "csv" else part.to_parquet
        write(place / f"{number}.{kind}", index=False)
    return place


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_with_other_columns_are_refused(tmp_path, kind):
    for change in (
        lambda g: g.drop(columns="b"),
        lambda g: g.rename(columns={"b": "z"}),
        lambda g: g.assign(new=1.0),
    ):
        path = in_files(tmp_path, change, kind)
        with pytest.raises(ValueError, match=rf"files must have the same columns, .*1\.{kind}"):
            by_tasks(path, Question(1.0), 100)

    path, turned = tmp_path, ["c c", "at", "b", "a"]
    in_files(path, lambda g: g[turned], kind)
    if kind == "csv":
        with pytest.raises(ValueError, match="in text in the same order, got 'at', 'a', 'b'"):
            layout_of(path)
    else:
        found, _ = by_tasks(path, Question(1.0), 100)
        frame()[:540].to_csv(tmp_path / "whole.csv")
        same(found, in_memory(tmp_path / "whole.csv", Question(1.0)))


def test_times_with_and_without_an_offset_are_refused(tmp_path):
    path = in_files(tmp_path, lambda g: g.assign(at=g["at"].astype(str) + "Z"))
    with pytest.raises(ValueError, match=r"1\.csv: times must all have an offset .* with one"):
        by_tasks(path, Question(1.0), 10**6)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("place", ["0", "9"])
def test_files_without_rows_are_left_out(tmp_path, kind, place):
    (tmp_path / "many").mkdir()
    path = in_files(tmp_path / "many", lambda g: g, kind)
    (path / f"1.{kind}").rename(path / f"1b.{kind}")
    empty = frame()[:0].reset_index()
    if kind == "csv":
        empty.to_csv(path / f"{place}0.csv", index=False)
        (path / f"{place}1.csv").touch()
    else:
        empty.to_parquet(path / f"{place}0.parquet", index=False)
    frame()[:540].to_csv(tmp_path / "whole.csv")
    found, _ = by_tasks(path, Question(1.0), 100)
    same(found, in_memory(tmp_path / "whole.csv", Question(1.0)))


def test_a_file_that_is_broken_is_named(tmp_path):
    path = in_files(tmp_path, lambda g: g, "parquet")
    whole = (path / "1.parquet").read_bytes()
    (path / "1.parquet").write_bytes(whole[:300] + b"?" * 300 + whole[600:])
    with pytest.raises(ValueError, match=r"1\.parquet: .*[Cc]orrupt"):
        by_tasks(path, Question(1.0), 100)
    (path / "1.parquet").write_bytes(whole[:300])
    with pytest.raises(ValueError, match=r"path must hold a table, got '.*1\.parquet'"):
        layout_of(path)


def test_gaps_too_long_to_be_filled_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("aftlib.sensor_plans.pipeline.LONGEST_GAP", 20)
    path, question = write(tmp_path, "csv"), Question(1.0, window=4)
    same(by_tasks(path, question, 200)[0], in_memory(path, question))


@pytest.mark.spark
def test_spark_gives_the_same_plan(spark, tmp_path):
    path, question = write(tmp_path, "parquet"), Question(1.0)
    for cells in (100, 10**9):  # many tasks, and one
        same(survey_by_spark(spark, path, question, cells=cells), in_memory(path, question))
    sorted_last = frame().reset_index().iloc[np.r_[0:300, 310:400, 300:310, 400:545]]
    sorted_last.to_csv(tmp_path / "g.csv", index=False)
    with pytest.raises(ValueError, match="rows must be in the order of their times"):
        survey_by_spark(spark, tmp_path / "g.csv", question, cells=100)


def swapped(given):
    return given.iloc[np.r_[0:300, 310:400, 300:310, 400 : len(given)]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swapped, "rows must be in the order of their times, each time once, got 2026-01-01 00:00"),
        (lambda g: g.iloc[np.r_[0:300, 299:545]], "each time once"),
        (
            lambda g: g.iloc[::-1],
            "in the order of their times, which lie on an even grid, got 2026",
        ),
        (lambda g: g.drop(columns="at"), "must have times in its rows, got '.*f.csv' without"),
        (lambda g: g[["at", "a"]], "the file must hold at least two sensors"),
        (lambda g: g.assign(b=1.0), r"column 'b' must vary, got one value only"),
        (lambda g: g.assign(b=g["b"].where(g.index < 100)), "column 'b' must have most of its sam"),
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
            "times must all have an offset from UTC or none, got 2026.* and others without one",
        ),
        (
            lambda g: g.assign(at=g["at"].where(g.index < 544, pd.Timestamp("2200-01-01"))),
            "times must fill some part of their grid, got 2026-01-01 .* 2200-01-01 .* rows at most",
        ),
        (lambda g: g[:70], "window must leave at least 8 windows, got 7"),
    ],
)
def test_rows_that_cannot_be_read_in_pieces_are_refused(tmp_path, monkeypatch, change, message):
    monkeypatch.setattr(layouts, "HEAD", 50)
    change(frame().reset_index()).to_csv(tmp_path / "f.csv", index=False)
    with pytest.raises(ValueError, match=message):
        by_tasks(tmp_path / "f.csv", Question(1.0), 100)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "path must hold .csv or .parquet files, all of one kind, got"),
        ({"a.csv": b"x", "b.parquet": b"x"}, "with 'a.csv', 'b.parquet'"),
        ({"a.csv": b""}, "path must hold a table, got '.*a.csv'"),
        ({"a.parquet": b"PAR1"}, "path must hold a table, got '.*a.parquet'"),
    ],
)
def test_directories_that_hold_no_table_are_refused(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    with pytest.raises(ValueError, match=message):
        layout_of(tmp_path)
    with pytest.raises(ValueError, match="must be an existing .csv or .parquet file"):
        layout_of(tmp_path / "none.csv")


@pytest.mark.parametrize("cut", [1, 20, 599])
def test_counts_of_pieces_add_up(cut):
    values = (
        frame().reindex(pd.date_range("2026-01-01", periods=600, freq="10min")).to_numpy().copy()
    )
    values[max(0, cut - 3) : cut + 3, 0] = 7.0  # a run across the cut
    whole = asdict(Tally.of(values))
    halves = [Tally.from_bytes(Tally.of(part).to_bytes()) for part in np.split(values, [cut])]
    joined = asdict(halves[0] + halves[1])
    for name, part in whole.items():
        np.testing.assert_equal(joined[name], part, name)
    silent = asdict(Tally.silent_for(cut, 3))
    for name, part in asdict(Tally.of(np.full((cut, 3), np.nan))).items():
        np.testing.assert_equal(silent[name], part, name)
