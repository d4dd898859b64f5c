"""`aft plan`: its input, its output, and a clear error for input that cannot be planned."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from aftlib.core.planfile import digest_of, read_plan
from aftlib.reports import cli
from aftlib.sensor_plans import command
from aftlib.sensor_plans.sensor_file import read_sensors

HTML = "<script>alert(1)</script><b>x</b>"


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def frame(rows=1200, n=4):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(rows, 1)) + 0.2 * rng.normal(size=(rows, n))
    time = pd.date_range("2026-01-01", periods=rows, freq="h", name="time")
    return pd.DataFrame(values, time, list("abcdefghij")[:n])


FRAME = frame()
STILL, TWICE = FRAME.assign(b=1, c=2), pd.concat([FRAME, FRAME + 1])
MARKED = FRAME.assign(a=FRAME["a"].where(FRAME.index != FRAME.index[7], -999.0))
TEXT = "hello world\nthis is a text\nof no table\n"


def aft_plan(*arguments, report=False):
    more = () if report else ("--no-report",)
    return CliRunner().invoke(cli.main, ["plan", *map(str, arguments), *more])


def test_the_input_is_summarized_first_and_the_plan_is_written(there):
    frame().to_csv("f.csv")
    done = aft_plan("f.csv", "--epsilon-sd", 0.5, "--workers", 2, "--window", "6h", "--slide", 3)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[:3] == [
        "The input as it was read:",
        "  sensors: 4 (a, b, c, d)",
        "  time: 2026-01-01 00:00:00 to 2026-02-19 23:00:00",
    ]
    assert lines[-1] == "Plan: plan.json"
    plan = json.loads((there / "plan.json").read_text())
    assert read_plan("plan.json").data.source.path == str(there / "f.csv")
    assert (plan["data"]["first"], plan["data"]["last"]) == tuple(lines[2][8:].split(" to "))
    question = plan["question"]
    assert (question["window"], question["slide"], question["workers"]) == (6, 3, 2)


def test_data_that_grow_while_they_are_read_are_not_those_of_the_plan(there, monkeypatch):
    def growing(path, **reading):
        table = read_sensors(path, **reading)
        frame(1300).to_csv(path)
        return table

    frame().to_csv("f.csv")
    before = digest_of(there / "f.csv")
    monkeypatch.setattr(command, "read_sensors", growing)
    assert aft_plan("f.csv", "--epsilon-sd", 0.5).exit_code == 0
    source = json.loads((there / "plan.json").read_text())["data"]["source"]
    assert source["sha256"] == before != digest_of(there / "f.csv")


def test_a_long_file_and_an_epsilon_a_sensor(there):
    long = frame().reset_index().melt("time", var_name="id", value_name="reading")
    long.to_parquet("long.parquet")
    (there / "e.csv").write_text("a,0.3\nb,0.4\nc,0.5\n")
    done = aft_plan(
        *("long.parquet", "--long", "time,id,reading", "--drop", "d", "--epsilon", "e.csv"),
        *("--output", there / "new" / "out.json", "--query", "sum", "--t-sla", "50ms"),
    )
    assert done.exit_code == 0, done.output
    plan = json.loads((there / "new" / "out.json").read_text())
    assert plan["question"]["epsilon"] == {"a": 0.3, "b": 0.4, "c": 0.5}
    assert plan["question"]["t_sla_ms"] == 50


def test_exports_are_read_as_one_long_file(there):
    frame().to_csv("f.csv")
    long = frame().reset_index().melt("time", var_name="id", value_name="reading")
    long = long.assign(status="Good", unit="°C").sort_values("time", kind="stable")
    bad = long[::7].assign(reading=99.0, status="Bad")
    for number, part in enumerate([long[:2000], long[2000:]]):
        part = pd.concat([part, bad[number::2]])
        part.to_csv(f"part-{number}.csv.gz", index=False, encoding="cp1252")
    reading = ("--long", "time,id,reading", "--where", "status=Good", "--encoding", "cp1252")
    plans = []
    for data, options in (("f.csv", ()), ("part-*.csv.gz", reading)):
        done = aft_plan(data, "--epsilon-sd", 0.5, *options)
        assert done.exit_code == 0, done.output
        plans.append(json.loads((there / "plan.json").read_text()))
        table = read_plan("plan.json").data.source.read_again(there)
        np.testing.assert_array_equal(table.values, frame().to_numpy())
    assert f"rows left out by --where: {len(bad)}" in done.output
    assert "other columns, not read: unit" in done.output
    for part in ("assignment", "checkpoints", "replay", "backtest"):
        assert plans[0][part] == plans[1][part]


@pytest.mark.parametrize(
    ("data", "given", "message"),
    [
        (TEXT, (), "f.csv: column 'hello world' must hold numbers or ISO 8601 times"),
        ("", (), "path must hold a table, got 'f.csv'"),
        (None, (), "path must be an existing file, got 'f.csv'"),
        (STILL, (), "f.csv: column 'b', 'c' must vary, got one value only; leave it out with --dr"),
        (FRAME, ("--epsilon", "0"), "f.csv: --epsilon or --epsilon-sd must be given, and not both"),
        (TWICE, (), "keep one of them, or average them by --resample '1h'"),
        (FRAME, ("--t-sla", "1ms"), "f.csv: --t-sla must be at least 28.33"),
        (FRAME, ("--workers", "5"), "f.csv: --workers must be at most the 4 sensors, got 5"),
        (FRAME, ("--window", "900"), "f.csv: --window must leave at least 8 windows, got 1"),
        (FRAME, ("--resample", "x"), "f.csv: --resample must be a duration such as '2s'"),
        (FRAME, ("--time", "x"), "f.csv: --time must be a column, got 'x'"),
        (FRAME, ("--drop", "x"), "f.csv: --drop must be a list of columns, got ['x']"),
        (FRAME, ("--long", "a,b"), "f.csv: --long must name three columns"),
        (FRAME, ("--output", "plan.txt"), "f.csv: --output must end in .json, got 'plan.txt'"),
        (FRAME, ("--output", "there.json"), "f.csv: --output must be a file, got the directory"),
        (MARKED, (), "f.csv: column 'a' must hold measurements, got -999 (1 such) where others"),
        (b"time,f\xfcr\n", (), "invalid start byte); save it as UTF-8"),
        (FRAME, ("--pieces", "--resample", "2h"), "--resample must not be given with a file that"),
        (FRAME, ("--spark", "--long", "a,b,c"), "f.csv: --long must not be given with a file that"),
        (FRAME, ("--query", "max"), "'max' is not one of 'mean', 'sum'"),
    ],
)
def test_bad_input_has_a_clear_end(there, data, given, message):
    (there / "there.json").mkdir()
    if isinstance(data, pd.DataFrame):
        data.to_csv(there / "f.csv")
    elif data is not None:
        (there / "f.csv").write_bytes(data if isinstance(data, bytes) else data.encode())
    done = aft_plan("f.csv", *(() if "--epsilon-sd" in given else ("--epsilon-sd", 0.5)), *given)
    assert done.exit_code == 2
    assert message in done.output.splitlines()[-1]
    assert "Traceback" not in done.output
    assert not (there / "plan.json").exists()


@pytest.mark.slow
def test_the_report_lies_beside_and_escapes_names_in_html(there):
    frame().rename(columns={"a": HTML}).to_csv("f.csv")
    done = aft_plan("f.csv", "--epsilon-sd", 0.5, report=True)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "Report: plan.html"
    page = (there / "plan.html").read_text()
    assert "alert(1)" in page
    assert "<script>alert" not in page and "<b>x</b>" not in page
    assert (there / "plotly.min.js").exists()
