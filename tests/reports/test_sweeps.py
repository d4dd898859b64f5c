"""Sweeps: checked before anything runs, resumed from the store, one page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from nbformat.v4 import new_code_cell

from aftlib.reports import execute as execution
from aftlib.reports import notebook, reproduce, runs, sweeps
from aftlib.reports.index import over_seeds, stability
from aftlib.reports.notebook import find_notebook
from aftlib.reports.runs import Executed
from aftlib.reports.sweeps import plan_sweep, split_values, time_of_one, write_sweep
from tests.reports.conftest import execute_by_hand
from tests.tiny_project import SEEDED, aft, broken_links, write_notebook


def sweep_of(**given) -> list[dict]:
    return list(plan_sweep(find_notebook("1"), given).points)


def test_values_are_combined_or_taken_together(quick):
    assert sweep_of(m="1,2", seed="3,4") == [
        *({"m": 1, "seed": 3}, {"m": 1, "seed": 4}, {"m": 2, "seed": 3}, {"m": 2, "seed": 4})
    ]
    first = find_notebook("1")
    assert plan_sweep(first, {"m": "1,2", "seed": "3,4"}, together=True).points == (
        *({"m": 1, "seed": 3}, {"m": 2, "seed": 4}),
    )
    assert plan_sweep(first, {"m": "1,2", "seed": "3"}, together=True).points[1]["seed"] == 3
    assert plan_sweep(first, {}).points == ({},)
    assert plan_sweep(first, {"seed": "7"}, profile="smoke").points == ({"m": 3, "seed": 7},)
    points = plan_sweep(first, {"m": "1,1,2", "seed": "1,2,2"}, together=True).points
    assert [(point["m"], point["seed"]) for point in points] == [(1, 1), (1, 2), (2, 2)]
    with pytest.raises(ValueError, match="m=1 seed=3 is given twice; give each once"):
        plan_sweep(first, {"m": "1,2,1", "seed": "3,4"})
    assert split_values("[1, 2],'a,b', c,{a: 1}") == ["[1, 2]", "a,b", "c", "{a: 1}"]
    assert (split_values(""), split_values("12:30")) == ([""], ["12:30"])
    with pytest.raises(ValueError, match=r"separated by commas, got '\[1, 2' \(.*quotes"):
        split_values("[1, 2")


def test_quotes_keep_a_texts_commas_and_are_no_part_of_it(home):
    cells = [new_code_cell("name = 'a'", metadata={"tags": ["parameters"]})]
    write_notebook(home / "notebooks" / "01_approximately_once.ipynb", cells)
    values = [point["name"] for point in sweep_of(name="""a,it's,'b, c',"d, e",[it's, 1]""")]
    assert values == ["a", "it's", "b, c", "d, e", "[it's, 1]"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m=1,x"], "parameter m wants int, got 'x'"),
        (["mm=1,2"], "has no parameter 'mm'"),
        (["m=1,2,1"], "m=1 is given twice; give each once"),
        (["m=1,0"], "Error: m=0: m must be at least 1, got 0"),
        (
            ["m=1,2", "seed=1,2,3"],
            "--zip needs the same number of values of each parameter, but m has 2, seed has",
        ),
    ],
)
def test_all_values_are_checked_before_the_first_run(quick, arguments, message):
    options = [option for text in arguments for option in ("-p", text)]
    result = aft("sweep", "1", "--zip", *options)
    assert result.exit_code == 1 and message in result.output
    assert quick == []


def test_a_failure_is_a_row_and_the_rest_is_resumed(quick, home):
    assert aft("run", "1", "-p", "m=3").exit_code == 0
    result = aft("sweep", "1", "-p", "m=2,3,9,5", "-p", "seed=1,2")
    assert result.exit_code == 1, result.output
    lines = result.output.splitlines()
    assert lines[0] == "8 runs: 1 stored already, 7 to do, about 7 min 00 s."
    assert "✘ m=9 seed=1 failed: ValueError: nine" in lines
    assert any(ln.startswith("✔ m=5 seed=2 in 1 min 00 s: ✔ 1 holds; ") for ln in lines)
    page = Path(lines[-1].removeprefix("Sweep: "))
    text = page.read_text()
    assert text.count("✘ failed: ValueError: nine") == 2 and "6 of 8 runs went well" in text
    assert "holds in 4 of 6" in text and 'class="plotly"' in text
    assert "D1-1 <span style='font-size: 12px'>of h-best's lead" in text.replace("\\u003c", "<")
    assert broken_links(page) == []
    assert f"runs/01_approximately_once/{page.name}" in (home / "reports/index.html").read_text()
    data = pd.read_csv(page.with_suffix(".csv"))
    (last,) = data[(data["m"] == 5) & (data["seed"] == 2)].to_dict("records")
    assert len(data) == 6 and (last["claim"], last["verdict"]) == ("D1-1", "holds")
    assert (last["measured"], last["low"], last["high"]) == (0.5, 0, 5)

    del quick[:]
    again = aft("sweep", "1", "-p", "m=2,3,9,5", "-p", "seed=1,2")
    assert again.output.splitlines()[0].startswith("8 runs: 6 stored already, 2 to do")
    assert [point["m"] for point in quick] == [9, 9]
    assert again.output.splitlines()[-1] == lines[-1]
    other = aft("sweep", "1", "-p", "m=3,5", "-p", "seed=8").output.splitlines()[0]
    assert other.endswith("2 to do, about 2 min 00 s, estimated from runs with other values.")


def test_a_sweep_without_claims_went_well_too(quick, monkeypatch):
    by_hand = partial(execute_by_hand, cells=lambda values: SEEDED)
    monkeypatch.setattr(execution, "execute", by_hand)
    page = Path(aft("sweep", "1", "-p", "m=2,3,9").output.splitlines()[-1][len("Sweep: ") :])
    assert "2 of 3 runs went well, 1 failed." in page.read_text()


def test_spark_runs_one_at_a_time(quick, monkeypatch):
    counts = []
    monkeypatch.setattr(sweeps, "attend", lambda works, jobs: counts.append(jobs) or [])
    assert aft("sweep", "1", "-p", "m=1,2", "--jobs", "2").exit_code == 0
    cells = [*SEEDED, new_code_cell("from aftlib.spark.session import session")]
    write_notebook(notebook.notebooks_dir() / "01_approximately_once.ipynb", cells)
    assert aft("sweep", "1", "-p", "m=1,2", "--jobs", "2").exit_code == 0
    assert counts == [2, 1]


def test_the_index_says_how_stable_each_verdict_is_over_seeds(quick, home):
    (job,) = reproduce.plan("quick", ["1"], {"m": "3"})
    reproduce.perform(job)
    first, report = find_notebook("1"), Executed.read(home / "reports/01_approximately_once.ipynb")
    assert over_seeds(first, report, runs.all_runs()) == {"D1-1": ""}
    assert "over seeds" not in reproduce.conclude([]).index.read_text().split("<table")[1]
    aft("sweep", "1", "-p", "m=3", "-p", "seed=2,3,4")
    aft("run", "1", "-p", "m=4", "-p", "seed=5")  # another m: does not count
    assert over_seeds(first, report, runs.all_runs()) == {"D1-1": "holds in 4 of 4"}
    assert '<td class="aft-seeds">holds in 4 of 4</td>' in (home / "reports/index.html").read_text()
    stored_runs = runs.all_runs()
    (old,) = (run for run in stored_runs if run.record["parameters"] == {"m": 3, "seed": 4})
    del old.record["key"]  # the version of its code is unknown
    assert over_seeds(first, report, stored_runs) == {"D1-1": "holds in 3 of 3"}
    assert over_seeds(first, None, []) == {}
    del report.record["parameters"]["seed"]  # of before the notebook had one
    assert over_seeds(first, report, runs.all_runs()) == {}
    assert stability(["holds", "deviates"]) == "holds in 1 of 2"
    started = write_sweep(plan_sweep(first, {"m": "3", "seed": "2,9"})).read_text()
    assert "1 of 2 runs went well, 1 did not run yet." in started
    assert time_of_one(plan_sweep(find_notebook("2"), {})) == (None, False)


def test_a_sweep_gives_its_tables_as_one_file(home, monkeypatch):
    cells = [*SEEDED, new_code_cell("counts = other = None"), new_code_cell("raise SystemExit")]
    write_notebook(home / "notebooks" / "01_approximately_once.ipynb", cells)
    ran = []

    def execute(notebook, parameters, target, profile="", on_cell=None, tables=None):
        values = notebook.values(parameters)
        ran.append(len(notebook.content.cells))
        frame = pd.DataFrame({"m": [1, 2], "count": [values["m"], 10 * values["seed"]]})
        tables.mkdir()
        frame.to_csv(tables / "counts.csv", index=False)
        by_hand = partial(execute_by_hand, cells=lambda values: SEEDED)
        return by_hand(notebook, parameters, target, profile, on_cell)

    monkeypatch.setattr(execution, "execute", execute)
    given = ("sweep", "1", "-p", "m=3,9", "-p", "seed=1,2", "--section", "counts")
    result = aft(*given, "--table", "counts")
    assert result.exit_code == 1 and ran == [3] * 4  # m = 9 fails; the last cell is left out
    path = Path(next(ln for ln in result.output.splitlines() if ln.startswith("Table: "))[7:])
    table = pd.read_csv(path)
    assert table.columns.tolist() == ["m (parameter)", "seed", "run", "m", "count"]
    assert table[["m (parameter)", "seed", "m", "count"]].to_numpy().tolist() == [
        *([3, 1, 1, 3], [3, 1, 2, 10], [3, 2, 1, 3], [3, 2, 2, 20])
    ]
    assert (
        table["run"].nunique() == 2 and path.parent == home / "reports/runs/01_approximately_once"
    )
    refused = aft(*given[:4], "--table", "count")
    assert "table 'count' is no variable of notebook 01_approximately_once: give counts" in (
        refused.output
    )
    assert len(ran) == 4
    missing = aft(*given, "--table", "other")
    assert "has no table 'other': give one of counts" in missing.output
    assert "section 'counts'" in aft("runs").output
    aft("run", "1")
    assert runs.find_run("1").record["section"] == ""
    aft("run", "1", "-p", "m=3", "-p", "seed=1", "--section", "counts")
    assert runs.find_run("1").record["section"] == "" and len(ran) == 7
