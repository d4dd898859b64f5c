from __future__ import annotations

import json
import os
import sys
import threading

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from aftlib.reports import execute, reproduce
from aftlib.reports.notebook import Notebook
from aftlib.reports.runs import Executed
from tests.tiny_project import write_notebook


def test_a_run_is_recorded_in_the_executed_notebook(done):
    run = Executed.read(done[0] / "01_approximately_once.ipynb")
    assert run.error is None
    assert run.profile == "smoke"
    assert run.record["given"] == {"m": 3}
    assert run.record["parameters"] == {"m": 3, "epsilons": [0.65, 0.7], "path": None}
    assert run.record["versions"]["Python"] == sys.version.split()[0]
    assert [s.measured for s in run.settled] == [3] * 5
    assert str(done[0]) not in run.path.read_text()  # nothing about this machine


def test_a_failing_notebook_is_saved_with_its_error(done):
    run = Executed.read(done[0] / "02_failing.ipynb")
    assert run.error == "ZeroDivisionError: division by zero"
    outputs = [cell.get("outputs", []) for cell in run.content.cells]
    assert outputs[2][0].text == "before\n"
    assert outputs[3][0].ename == "ZeroDivisionError"
    assert outputs[4] == []
    assert len(run.content.cells) == 5  # papermill's marks are taken out
    assert run.settled == []


def test_the_kernel_is_this_interpreter_with_this_project_and_reports_progress(
    home, tmp_path, monkeypatch
):
    monkeypatch.setenv("JPY_SESSION_NAME", "open.ipynb")  # aft is run from a notebook
    spec = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"  # another one's kernel
    spec.parent.mkdir(parents=True)
    argv = ["/bin/false", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    source = (
        "import os, sys, json, aftlib.core.paths\n"
        "print(json.dumps([sys.executable, os.environ['PLOTLY_RENDERER'], os.getcwd(),"
        " os.environ['JPY_SESSION_NAME'],"
        " str(aftlib.core.paths.project_root())]))"
    )
    cells = [new_markdown_cell("## Part one"), new_code_cell(source), new_code_cell("2")]
    path, seen = write_notebook(home / "where.ipynb", cells), []
    run = execute.execute(
        Notebook(path), {}, home / "out.ipynb", on_cell=lambda *progress: seen.append(progress)
    )
    assert run.error is None
    values = json.loads(run.content.cells[1].outputs[0].text)
    assert values == [sys.executable, "plotly_mimetype", os.getcwd(), "", str(home)]
    assert seen == [(0, 3, "Part one"), (1, 3, "Part one"), (2, 3, "Part one")]


def test_a_run_while_its_data_changed_is_current_for_neither_version(home, monkeypatch):
    cell = new_code_cell(f"data = {str(home / 'd.csv')!r}", metadata={"tags": ["parameters"]})
    notebook = Notebook(write_notebook(home / "one.ipynb", [cell]))

    def changed(*arguments):
        (home / "d.csv").write_text("new!")

    monkeypatch.setattr(execute, "_run", changed)
    (home / "d.csv").write_text("old")
    before = notebook.key({})
    run = execute.execute(notebook, {}, home / "out.ipynb")
    assert notebook.key({}) != before and not run.is_current(notebook)
    assert run.record["key"] != before  # nor when the old data come back
    assert execute.execute(notebook, {}, home / "out.ipynb").is_current(notebook)


def test_a_kernel_that_crashes_is_a_failed_run_with_its_last_lines(home):
    source = "import os\nos.write(2, b'out of luck\\n')\nos.kill(os.getpid(), 9)"
    path = write_notebook(home / "dying.ipynb", [new_code_cell("1 + 1"), new_code_cell(source)])
    run = execute.execute(Notebook(path), {}, home / "out.ipynb")
    assert run.error is not None
    assert run.error.startswith("DeadKernelError: ")
    assert run.content.cells[0].outputs[0].data["text/plain"] == "2"


@pytest.mark.crash
def test_an_interrupted_run_kills_its_kernel_and_keeps_the_last_report(home):
    target = home / "out.ipynb"
    target.write_text("the last report")
    source = f"import os, time\nopen({str(home / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    cells = [new_code_cell(source), new_code_cell("time.sleep(600)")]
    asleep = write_notebook(home / "asleep.ipynb", cells)

    def interrupt(done, total, heading):
        if done == 1:
            threading.Timer(0.2, execute.stop_all).start()

    with pytest.raises(KeyboardInterrupt):
        execute.execute(Notebook(asleep), {}, target, on_cell=interrupt)
    assert target.read_text() == "the last report"
    with pytest.raises(ProcessLookupError):
        os.kill(int((home / "pid").read_text()), 0)


def test_a_job_is_reusable_until_something_changes(home, done):
    reports, _ = done
    (home / "reports").mkdir()
    for path in reports.glob("*.ipynb"):
        (home / "reports" / path.name).write_bytes(path.read_bytes())

    def reusable(**options):
        options = {"profile": "smoke", "only": [], "overrides": {}} | options
        return [job.reusable for job in reproduce.plan(**options)]

    assert reusable() == [True, False]  # the failed one is tried again
    assert reusable(fresh=True) == [False, False]
    assert reusable(profile="quick") == [False, False]
    assert reusable(overrides={"m": "5"}) == [False, False]
    record = reproduce.perform(reproduce.plan("smoke", ["D1"], {})[0]).record
    assert record == Executed.read(reports / "01_approximately_once.ipynb").record


def test_parameters_go_to_the_notebooks_that_know_them(home):
    jobs = reproduce.plan("smoke", [], {"workers": "9"})
    assert [job.parameters for job in jobs] == [{"m": 3}, {"workers": 9}]
    with pytest.raises(ValueError, match=r"no chosen notebook .* 'zz'; 01_appr.*\n  m: int.*\n"):
        reproduce.plan("smoke", [], {"zz": "9"})
    with pytest.raises(ValueError, match="no chosen notebook has a parameter 'workers'"):
        reproduce.plan("smoke", ["D1"], {"workers": "9"})


def test_a_project_without_notebooks_is_an_error(home):
    for path in (home / "notebooks").glob("*.ipynb"):
        path.unlink()
    with pytest.raises(ValueError, match="the project has no notebooks"):
        reproduce.plan("smoke", [], {})
