"""Executed notebooks as records: claims, errors, and why a claim was not run."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from aftlib.reports import notebook, reproduce
from aftlib.reports.claims import MIME
from aftlib.reports.documents import all_claims
from aftlib.reports.notebook import find_notebook
from aftlib.reports.runs import Executed, gather, read_reports
from tests.tiny_project import CLAIMS as SETTLE_CLAIMS
from tests.tiny_project import FIRST, executed, settled, shows, write_notebook


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


def test_a_run_that_another_profile_takes_over_is_said_to_be_of_that_profile(home, monkeypatch):
    def perform(profile, **overrides):
        (job,) = reproduce.plan(profile, ["D1"], overrides)
        return job.reusable, reproduce.perform(job)

    reused, run = perform("quick", m="3")
    assert (reused, run.profile, run.changed) == (False, "quick", {"m": 3})
    page = (home / "reports" / f"{run.name}.html").read_text()
    assert "<li>m = 3, not the default</li>" in page and "as recorded" not in page
    index = reproduce.conclude([]).index.read_text()
    assert "<li>m = 3, not the default</li>" in index and "as recorded<" not in index
    assert "<b>5</b><span>of other values than the defaults</span>" in index

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
