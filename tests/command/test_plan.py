"""`aft plan`: its input, its output, its page, and a clear error for what cannot be planned."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from aftlib.command import cli
from aftlib.command.cli import default_output, page_parameters
from aftlib.sensor_plans.experiments import NotebookParameters
from aftlib.sensor_plans.question import Question


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def frame(rows=1200, n=4):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(rows, 1)) + 0.2 * rng.normal(size=(rows, n))
    time = pd.date_range("2026-01-01", periods=rows, freq="h", name="time")
    return pd.DataFrame(values, time, list("abcdefghij")[:n])


def aft_plan(*arguments):
    return CliRunner().invoke(cli.main, ["plan", *map(str, arguments)])


def test_the_input_is_summarized_first_and_the_plan_is_written(there):
    frame().to_csv("f.csv")
    done = aft_plan("f.csv", "--epsilon-sd", 0.5, "--workers", 2, "--window", "6h", "--no-report")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[:3] == [
        "The input as it was read:",
        "  sensors: 4 ('a', 'b', 'c', 'd')",
        "  time: 2026-01-01 00:00:00 to 2026-02-19 23:00:00, every 01:00:00; 1,200 steps",
    ]
    assert lines[-1] == "Plan: plans/f.json"
    plan = json.loads((there / "plans" / "f.json").read_text())
    assert (plan["question"]["window"], plan["question"]["workers"]) == (6, 2)


def test_there_is_an_option_for_each_field_of_the_question():
    text = aft_plan("--help").output
    options = [word for word in text.split() if word.startswith("--")]
    for name in Question.model_fields:
        assert f"--{name.replace('_', '-')}" in options
    assert len(set(options)) <= 25
    assert "machine failures per month, counted over all machines" in " ".join(text.split())


def test_a_long_file_an_epsilon_a_sensor_and_a_grouping(there):
    long = frame().reset_index().melt("time", var_name="id", value_name="reading")
    long.to_parquet("long.parquet")
    (there / "e.csv").write_text("a,0.3\nb,0.4\nc,0.5\n")
    (there / "g.csv").write_text("sensor,worker\na,north\nb,north\nc,south\n")
    done = aft_plan(
        *("long.parquet", "--long", "time,id,reading", "--drop", "d", "--epsilon", "e.csv"),
        *("--output", there / "new" / "out.json", "--query", "sum", "--t-sla", "50ms"),
        *("--assignment", "g.csv", "--read-rate", 0.01, "--no-report"),
    )
    assert done.exit_code == 0, done.output
    plan = json.loads((there / "new" / "out.json").read_text())
    assert plan["question"]["epsilon"] == {"a": 0.3, "b": 0.4, "c": 0.5}
    assert plan["question"]["t_sla"] == "50ms" and plan["question"]["epsilon_sd"] is None
    assert plan["assignment"] == [["a", "b"], ["c"]]
    assert "  north " in done.output and "The best regrouping that was found" in done.output
    assert "If one machine fails, at 0.01 samples per second" in done.output
    assert "1 machine failures per month, counted over all machines" in done.output


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["none.csv"], "none.csv: FILE must be a file, a directory or a pattern, got 'none.csv'"),
        (["f.csv", "--epsilon", "x"], "f.csv: epsilon must be a file with a JSON object"),
        (["f.csv", "--delta", 2], "f.csv: delta must be above 0 and below 1, got 2"),
        (["f.csv", "--delta", "x"], "f.csv: delta must fit float, got 'x'"),
        (["f.csv", "--t-sla", "2"], "f.csv: t_sla must be a duration such as '2s'"),
        (["f.csv", "--output", "x.txt"], "output must be a file that ends in .json, got 'x.txt'"),
        (["f.csv", "--assignment", "g.csv"], "assignment must be a file with a JSON object"),
        (["f.csv", "--csv", "sep"], "--csv must be KEY=VALUE, such as sep=';', got 'sep'"),
        (["f.csv", "--missing", "x"], "--missing must be numbers, or none, got 'x'"),
        (
            ["f.csv", "--workers", 9],
            "workers must be a whole number at least 1 and at most 4, got 9",
        ),
        (["nameless.csv", "--read-rate", 1], "read_rate must be given with data that have times"),
    ],
)
def test_bad_input_has_a_clear_end(there, given, message):
    frame().to_csv("f.csv")
    frame().to_csv("nameless.csv", index=False)
    done = aft_plan(*given, "--no-report")
    assert done.exit_code == 2 and done.output.splitlines()[-1].startswith("Error: ")
    assert message in done.output
    assert "Traceback" not in done.output


def test_p18_line_breaks_in_names_are_printed_as_escapes(there):
    frame().rename(columns={"a": "Flow\n[m³/h]\x1b"}).to_csv("f.csv")
    done = aft_plan("f.csv", "--no-report")
    assert done.exit_code == 0 and "Flow\\n[m³/h]\\x1b" in done.output
    assert "\x1b" not in done.output
    (names,) = {tuple(sum(json.loads((there / "plans" / "f.json").read_text())["assignment"], []))}
    assert "Flow\n[m³/h]\x1b" in names


def test_the_page_has_the_plans_parameters(there):
    frame().to_csv("f.csv")
    aft_plan("f.csv", "--epsilon-sd", 0.4, "--window", 5, "--workers", 3, "--no-report")
    parameters = page_parameters(there / "plans" / "f.json")
    NotebookParameters(**parameters)
    assert parameters["plan"] == str(there / "plans" / "f.json") and parameters["epsilon"] is None
    assert (parameters["epsilon_sd"], parameters["window"], parameters["workers"]) == (0.4, 5, 3)


def test_a_page_that_cannot_be_made_leaves_the_plan(there, monkeypatch):
    """Made as the message advises, it shows the user's sensors and nothing generated."""
    bad = "<img src=x onerror=alert(1)>"
    frame(2400).rename(columns={"a": bad, "b": "Flow\n[m³/h]"}).to_csv("f.csv")
    with monkeypatch.context() as patch:
        patch.setattr(cli, "PLAN_NOTEBOOK", there / "none.ipynb")
        done = aft_plan("f.csv", "--window", 4)
    assert done.exit_code == 1 and (there / "plans" / "f.json").exists()
    assert "f.json is written, but its page is not: [Errno 2] No such file" in done.stderr
    monkeypatch.setenv("AFT_HOME", str(there))  # as in a folder without a checkout
    done = aft_plan("f.csv", "--window", 4)
    assert done.exit_code == 0, done.output
    page = (there / "plans" / "f.html").read_text()
    assert "window" in page and "An outage of machine" in page and "plans/f.html" in done.output
    for absent in (
        "When sensors go wrong",
        "Verdicts",
        "Traceback",
        bad,
        "generated sensors share",
    ):
        assert absent not in page


@pytest.mark.parametrize(
    ("place", "data", "expected"),
    [
        ("checkout", "data/beijing_pm25.parquet", "reports/plans/beijing_pm25.json"),
        ("checkout/docs", "../data/2024*.csv", "{}/checkout/reports/plans/2024.json"),
        ("elsewhere", "/far/field [1]", "plans/field_1.json"),
        ("elsewhere", "...", "plans/plan.json"),
    ],
)
def test_a_plan_lies_among_the_reports_of_a_checkout(place, data, expected, tmp_path, monkeypatch):
    for folder in ("checkout/notebooks", "checkout/docs", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checkout" / "pyproject.toml").touch()
    monkeypatch.delenv("AFT_HOME", raising=False)
    monkeypatch.chdir(tmp_path / place)
    assert str(default_output(Path(data))) == expected.format(tmp_path)


def test_without_an_extra_the_missing_package_and_the_extra_are_named():
    code = (
        "import sys; sys.modules['threadpoolctl'] = None\nfrom aftlib.sensor_plans.plan import plan"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: aftlib.sensor_plans needs threadpoolctl, which is not installed: "
        "install aftlib with the extra notebooks, in a checkout by: pip install '.[notebooks]'"
    )
