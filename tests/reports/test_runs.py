"""Executed notebooks as records, the store of runs, and the commands that list and open them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell

from aftlib.reports import cli, data_out, execute, notebook, reproduce, runs
from aftlib.reports.documents import all_claims
from aftlib.reports.notebook import find_notebook
from aftlib.reports.runs import Executed, gather, read_reports
from aftlib.workbench.scorecard import MIME
from tests.tiny_project import CLAIMS as SETTLE_CLAIMS
from tests.tiny_project import FIRST, aft, broken_links, executed, settled, shows, write_notebook

FRAME = """import pandas as pd
counts = pd.DataFrame({"m": [m], "rate": [m / 3]})
display(counts.style.format(precision=1))
(counts * 2).set_index("m").style.format("{:.0%}").set_caption("Doubled")"""


@pytest.fixture
def short(home):
    """The first notebook without a figure, with a frame and a verdict that m decides."""
    decided = FIRST[-1].source.replace("Finding(m)", "Finding(m, conditions=m < 9)")
    cells = [*FIRST[:2], new_code_cell(FRAME), new_code_cell(decided)]
    write_notebook(home / "notebooks" / "01_approximately_once.ipynb", cells)
    return home


def test_a_run_is_stored_once_with_all_its_results(short):
    subprocess.run(["git", "init", "-q", str(short)], check=True)
    first = aft("run", "1", "-p", "m=5")
    assert first.exit_code == 0, first.output
    (run,) = runs.all_runs()
    record = run.record
    assert (record["name"], record["changed"]) == ("01_approximately_once", {"m": 5})
    assert record["parameters"]["epsilons"] == [0.65, 0.7]
    assert [claim["measured"] for claim in record["claims"]] == [5] * 5
    assert record["versions"]["pandas"] == pd.__version__
    assert record["machine"]["cores"] >= 1 and record["commit"] is None  # nothing committed yet
    tables = run.tables()
    assert [*tables] == ["counts", "Table 2"]  # the first shown frame is counts
    assert tables["counts"].loc[0, "rate"] == 5 / 3
    assert tables["Table 2"].to_dict("list") == {"m": [10], "rate": [10 / 3]}
    assert data_out.CAPTURE not in (run.folder / f"{run.notebook}.ipynb").read_text()
    page = run.page.read_text()
    assert "% Doubled" in unquote(page) and r"10 & 333\% \\" in unquote(page)
    assert broken_links(run.page) == []

    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    again = aft("run", "1", "-p", "m=5", "-p", "epsilons=[0.65, 0.7]")
    assert "unchanged since its last run" in again.output and "remove its folder" in again.output
    assert {path: path.read_bytes() for path in before} == before
    assert len(runs.all_runs()) == 1

    assert aft("run", "1", "-p", "m=9").exit_code == 0
    index = (short / "reports" / "index.html").read_text()
    assert all(f'href="runs/{run.name}/' in index for run in runs.all_runs())
    assert "✘ 5 deviate" in index and "✔ 5 hold" in index

    listed = aft("runs").output.splitlines()
    assert len(listed) == 3 and "✘ 5 deviate  m=9" in listed[0] and "✔ 5 hold  m=5" in listed[1]
    for filters in (["-p", "m=5"], ["--claim", "D1-1=holds"], ["01", "-p", "m=5"]):
        assert aft("runs", *filters).output.splitlines()[:-1] == listed[1:2]
    assert aft("runs", "2").output.startswith("0 of 2 runs")
    assert aft("open", run.name[:-4]).output == f"{run.page}\n"


def test_a_reproduction_is_stored_too_and_taken_from_there(quick, home):
    assert aft("run", "1", "-p", "m=3").exit_code == 0
    (job,) = reproduce.plan("smoke", ["D1"], {})
    assert job.reusable
    executed = reproduce.perform(job)
    assert executed.profile == "smoke" and executed.path.parent == home / "reports"
    assert runs.all_runs()[0].record["profile"] == ""  # the store is not touched
    (fresh,) = reproduce.plan("smoke", ["D1"], {}, fresh=True)
    written = (runs.all_runs()[0].folder / runs.RECORD).stat().st_mtime_ns
    assert not fresh.reusable and reproduce.perform(fresh).error is None and len(quick) == 2
    (run,) = runs.all_runs()
    assert (run.folder / runs.RECORD).stat().st_mtime_ns == written


def test_a_run_that_failed_is_stored_until_the_next_try(quick):
    failed = aft("run", "1", "-p", "m=9")
    assert failed.exit_code == 1
    assert "✘ 01_approximately_once failed: ValueError: nine" in failed.output
    (run,) = runs.all_runs()
    assert run.record["error"] == "ValueError: nine" and run.page.exists()
    assert "✘ failed: ValueError: nine" in aft("runs", "--failed").output
    (run.folder / "old").touch()
    again = aft("run", "1", "-p", "m=9")
    assert again.exit_code == 1 and "▶ 01_approximately_once runs" in again.output
    (run,) = runs.all_runs()
    assert not (run.folder / "old").exists()
    assert runs.stored_run(find_notebook("1"), {"m": 9}) is None


def test_a_profiles_own_values_are_shown_by_its_name(quick):
    for given in ({}, {"m": "7"}):
        (job,) = reproduce.plan("smoke", ["D1"], given)
        reproduce.perform(job)
    *lines, _ = aft("runs").output.splitlines()
    assert sorted(line.partition("  profile ")[2] for line in lines) == ["smoke", "smoke m=7"]


def test_run_uses_the_values_of_a_profile_where_none_is_given(quick):
    result = aft("run", "1", "--profile", "smoke", "-p", "seed=2")
    assert result.exit_code == 0, result.output
    (run,) = runs.all_runs()
    assert run.record["parameters"] == {"m": 3, "seed": 2}
    assert "unchanged" in aft("run", "1", "-p", "m=3", "-p", "seed=2").output


def store_run(home, name, **record):
    folder = home / "reports" / "runs" / name
    folder.mkdir(parents=True)
    base = dict.fromkeys(runs.FIELDS, {}) | {"started": "2026-01-01", "claims": [], "error": None}
    (folder / runs.RECORD).write_text(json.dumps(base | record))
    return folder


OLD = json.dumps(dict.fromkeys(runs.FIELDS - {"changed"}, "2025"))


@pytest.mark.parametrize("text", ["", '{"notebook": "01', "[]", OLD, "\udcff"])
def test_a_record_that_cannot_be_read_is_no_run_and_is_replaced(home, done, text):
    store_run(home, "mine/b", changed={}, seconds=1.0, started="2026-01-03T00:00:00")
    executed = Executed.read(done[0] / "01_approximately_once.ipynb")
    key = executed.record["key"][: runs.KEY_LENGTH]
    broken = store_run(home, f"01_approximately_once/{key}")
    (broken / runs.RECORD).write_text(text, errors="surrogateescape")
    assert [run.name for run in runs.all_runs()] == ["mine/b"]
    reproduce.conclude([])
    listed = aft("runs").output
    assert "1 of 1 runs" in listed and f"! {broken} has no run.json that can be read" in listed

    assert execute.store(executed, broken / "none").record["key"] == executed.record["key"]
    (broken / runs.RECORD).unlink()  # as one that is removed by hand, file by file
    assert execute.store(executed, broken / "none").exists()


def test_a_run_is_found_by_part_of_its_key_or_its_notebook(home):
    store_run(home, "01_approximately_once/aa1", started="2026-01-02")
    store_run(home, "01_approximately_once/aa2", started="2026-01-01")
    store_run(home, "mine/b", started="2026-01-03")
    names = {wanted: runs.find_run(wanted).name for wanted in ("last", "mine", "D1", "1/aa2", "b")}
    assert names == {
        "last": "mine/b",
        "mine": "mine/b",
        "D1": "01_approximately_once/aa1",
        "1/aa2": "01_approximately_once/aa2",
        "b": "mine/b",
    }
    with pytest.raises(ValueError, match="run 'aa' may be any of .*/aa1, .*/aa2: give more"):
        runs.find_run("aa")
    for wanted in ("zz", "", "mine/aa1"):
        with pytest.raises(ValueError, match=f"no run '{wanted}': `aft runs` lists the 3"):
            runs.find_run(wanted)


def test_where_nothing_is_stored_yet_the_error_says_how_to_run(home):
    for wanted in ("last", "02", "ab"):
        with pytest.raises(ValueError, match=f"no run '{wanted}', because none is stored yet"):
            runs.find_run(wanted)
    assert aft("runs").output == "No run is stored yet: `aft run 02`, say, stores one.\n"


def test_a_notebook_without_runs_is_not_the_beginning_of_a_key(home):
    store_run(home, "01_approximately_once/2ab")
    with pytest.raises(ValueError, match="no run '2'"):
        runs.find_run("2")  # the second notebook has none
    assert runs.find_run("2a").name == runs.find_run("1/2").name == "01_approximately_once/2ab"


def test_open_shows_the_page_only_where_there_is_a_screen(home, monkeypatch):
    store_run(home, "mine/b")
    pages = []
    monkeypatch.setattr(cli.click, "launch", pages.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert aft("open").output.splitlines() == [str(home / "reports/runs/mine/b/mine.html")]
    assert pages == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert aft("open", "mine").exit_code == 0 and len(pages) == 1


def test_help_is_there_before_the_library_is_imported():
    source = (
        "import sys, aftlib.reports.cli\nassert not {'numpy', 'plotly', 'pyspark'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", source], check=True, cwd=Path(cli.__file__).parents[2])
    listed = aft("--help").output
    assert "plan" in listed and "Plan which sensors in FILE may be lost" in listed


def test_claims_are_read_from_the_executed_notebooks(done):
    reports, outcome = done
    claims = json.loads((reports / "claims.json").read_text())
    assert [claim["id"] for claim in claims] == list(all_claims())
    assert list(claims[0]) == [
        *("version", "id", "document", "statement", "source", "expected", "measured", "unit"),
        *("interval", "n", "counted", "detectable", "readings", "parts"),
        *("threshold", "grounds", "verdict", "basis", "note", "project", "timed", "recorded"),
        *("figure", "formula"),
        *("notebook", "profile", "changed", "earlier"),
    ]
    assert claims[0]["verdict"] == "holds"
    assert claims[0]["notebook"] == "01_approximately_once"
    assert claims[0]["profile"] == "smoke"
    assert outcome.surprises == []
    assert [run.name for run in outcome.failed] == ["02_failing"]
    assert not outcome.success()


def first_claim(reports) -> tuple[str, str]:
    known = notebook.all_notebooks()
    first = gather(known, reports)[0]
    return first.verdict, first.note


def test_claims_of_notebooks_that_did_not_run_are_not_run(home):
    first = find_notebook("1")
    claims = [new_code_cell(SETTLE_CLAIMS, outputs=[])]
    name, key = first.name, first.key({})
    assert first_claim({}) == ("not run", "Its notebook has not been run.")
    cases = {
        "Its notebook failed.": executed(claims, error="ValueError: x", key=key),
        "Its last run is older than the code.": executed(claims, key="another"),
        "Its notebook does not settle it.": executed(claims, key=key),
    }
    for why, report in cases.items():
        assert first_claim({name: report}) == ("not run", why)
    one = settled("D1-1", 2, note="So it is.").model_dump(mode="json")
    old = gather(notebook.all_notebooks(), {name: executed([scorecard_cell(one)], key="another")})
    assert (old[0].verdict, old[0].earlier, old[0].measured) == ("not run", "holds", 2)
    assert old[0].note == "So it is."
    assert (old[1].verdict, old[1].earlier) == ("not run", None)


def test_a_run_that_another_profile_reuses_is_relabelled(home, quick):
    def perform(profile, **overrides):
        (job,) = reproduce.plan(profile, ["D1"], overrides)
        return job.reusable, reproduce.perform(job)

    reused, run = perform("quick", m="3")
    assert (reused, run.profile, run.changed) == (False, "quick", {"m": 3})
    page = (home / "reports" / f"{run.name}.html").read_text()
    assert "<li>m = 3, not the default</li>" in page and "as recorded" not in page
    index = reproduce.conclude([]).index.read_text()
    assert "<li>m = 3, not the default</li>" in index and "as recorded<" not in index
    assert "<b>1</b><span>of other values than the defaults</span>" in index

    reused, run = perform("smoke")
    assert (reused, run.profile, run.changed) == (True, "smoke", {})
    assert Executed.read(run.path).record == run.record
    assert "not the default" not in reproduce.conclude([]).index.read_text()
    assert "<br>as recorded<" in (home / "reports" / f"{run.name}.html").read_text()


def scorecard_cell(*lines) -> nbformat.NotebookNode:
    return shows({MIME: list(lines)})


def test_the_last_word_on_a_claim_counts():
    one = settled("D1-1").model_dump(mode="json")
    run = executed([scorecard_cell(one), scorecard_cell(one | {"measured": 2})])
    assert [settled.measured for settled in run.settled] == [2]


@pytest.mark.parametrize("line", [{"version": 1}, {"verdict": "x"}, {"new": 1}])
def test_a_scorecard_that_cannot_be_read_is_an_error_of_the_run(line):
    one = settled("D1-1").model_dump(mode="json")
    run = executed([scorecard_cell(one | line)])
    assert run.error is not None and run.error.startswith("scorecard not readable: ")
    assert run.settled == []


def test_a_notebook_of_another_making_is_no_report(home):
    path = write_notebook(home / "reports" / "01_approximately_once.ipynb", FIRST)
    with pytest.raises(ValueError, match="has no record of a run"):
        Executed.read(path)
    assert read_reports(home / "reports", notebook.all_notebooks()) == {}
