"""Comparisons of stored runs: changed ones first, differences held against the intervals."""

from __future__ import annotations

import json
import re

import nbformat
import pandas as pd
import pytest

from aftlib.reports import compare, data_out, runs
from aftlib.reports.data_out import PLOTLY
from tests.tiny_project import aft, executed, settled, shows

A = pd.DataFrame(
    {"m": [2, 4, 6], "rate": [0.5, 0.6, 0.7], "low": [0.4, 0.5, 0.6], "high": [0.6, 0.7, 0.8]}
)
FIGURE = {PLOTLY: {"data": [{"y": [1, 2]}], "layout": {"title": {"text": "a figure"}}}}


@pytest.fixture
def store_run(home):
    """Keep runs by hand, each with its verdicts, parameters and tables."""

    def store(key, claims, tables, figures=1, **record):
        name = "01_approximately_once"
        folder = home / "reports" / "runs" / name / key
        (folder / runs.TABLES).mkdir(parents=True)
        for title, frame in tables.items():
            frame.to_csv(folder / runs.TABLES / f"{title}.csv", index=False)
        content = {
            **{"key": key, "name": name, "parameters": {"m": 4}, "versions": {"Python": "3.11"}},
            **{"commit": "c", "dirty": False, "machine": {"cores": 2}, "seconds": 1.0},
            **{"started": "2026-03-01T14:05:00+00:00", "error": None, "profile": "", "changed": {}},
        }
        content |= {"claims": [claim.model_dump(mode="json") for claim in claims]} | record
        (folder / runs.RECORD).write_text(json.dumps(content))
        nbformat.write(
            executed([shows(FIGURE) for _ in range(figures)]).content, folder / f"{name}.ipynb"
        )
        return runs.Run(folder)

    return store


def claim(id, measured, low, high, holds=True):
    return settled(id, measured, holds, (low, high))


def states(lines):
    return [(line.name, line.state) for line in lines]


def test_claims_whose_verdict_changed_come_first_then_those_that_lie_apart(store_run):
    shared = [claim("D1-1", 1.0, 0.9, 1.1), claim("D1-4", 1.0, -2.0, -1.0)]
    a = store_run("a", [*shared, claim("D1-2", 1.0, 0.9, 1.1), claim("D1-3", 1, 0, 2)], {})
    b = store_run("b", [*shared, claim("D1-2", 2.0, 1.9, 2.1), claim("D1-3", 1, 0, 2, False)], {})
    assert states(compare.claims([a, b])) == [
        *(("D1-3", "changed"), ("D1-2", "apart"), ("D1-1", "same"), ("D1-4", "same"))
    ]
    assert compare.claims([a, b])[0].texts == ("✔ 1 [0, 2]", "✘ 1 [0, 2]")
    c = store_run("c", shared, {})
    assert ("D1-2", "changed") in states(compare.claims([a, c]))


def test_tables_are_joined_on_the_columns_that_identify_rows():
    near, far = A.assign(rate=A.rate + 0.01), A + [0, 0.3, 0.3, 0.3]
    assert states(compare.compare_frames("t", A, A.sample(frac=1))) == [("t.rate", "same")]
    (line,) = compare.compare_frames("t", A, near)
    assert line.state == "same" and line.texts[0].startswith(
        "3 rows by m: 3 differ, 0 beyond their intervals, by +0.02 of A at most"
    )
    (line,) = compare.compare_frames("t", A, far.iloc[1:])
    assert line.state == "apart"
    assert "2 rows by m, 1 in one only: 2 differ, 2 beyond" in line.texts[0]
    assert line.rows[0] == {"m": 4, "A": 0.6, "B": pytest.approx(0.9), "change": pytest.approx(0.5)}
    (line,) = compare.compare_frames("t", A, A - [0, 0.1, 0.1, 0.1])
    assert line.state == "same"  # the intervals overlap
    one = A + pd.DataFrame(0.3, A.index, A.columns[1:]).where(A.m == 4, 0.01).reindex(
        columns=A.columns, fill_value=0
    )
    (line,) = compare.compare_frames("t", A, one)
    assert [row["m"] for row in line.rows] == [4]  # not those that only differ
    bare = A[["m", "rate"]]
    (line,) = compare.compare_frames("t", bare, bare * [1, 2])
    assert (line.state, line.texts[0]) == ("changed", "3 rows by m: 3 differ, by +1 of A at most")


@pytest.mark.parametrize(
    ("b", "reason"),
    [
        (A.assign(m=A.m + 100), "no rows in common by m"),
        (A.drop(columns="m"), "no columns identify the rows of both"),
        (A.assign(m="x"), "no rows in common by m, rate"),
        (A.assign(m=["x", "y", "z"]), "no rows in common by m"),
    ],
)
def test_tables_that_cannot_be_joined_say_why(b, reason):
    (line,) = compare.compare_frames("t", A, b)
    assert (line.state, line.texts) == ("changed", (reason,))


def test_shown_tables_are_compared_by_their_number_unless_a_variable_names_them(store_run):
    def shows_table(frame):
        return shows({"text/html": "<table>", data_out.TABLE: data_out.capture(frame.style)})

    a, b = (store_run(key, [], {"named": A * n}) for key, n in (("a", 1), ("b", 2)))
    for run, n in ((a, 1), (b, 2)):
        cells = [shows_table(A * n), shows_table(A * 3 * n)]
        nbformat.write(executed(cells).content, run.folder / "01_approximately_once.ipynb")
    names = {line.name.partition(".")[0] for line in compare.tables([a, b])}
    assert names == {"Table 2", "named"}


def test_numbers_in_one_and_texts_in_the_other_are_reported():
    some = A[["m", "rate"]].assign(n=1)
    none = some.assign(rate=["–", "0.6", "0.7"])
    for a, b in ((some, none), (none, some)):
        rate, n = compare.compare_frames("t", a, b)
        assert (rate.name, rate.texts, rate.state) == (
            "t.rate",
            ("numbers in one only",),
            "changed",
        )
        assert (n.name, n.state) == ("t.n", "same")


def test_texts_flags_rows_and_columns_count_too():
    a = pd.DataFrame({"k": [1, 2], "word": ["yes", "no"], "flag": [True, False], "n": [1, 2]})
    b = a.assign(word=["yes", None], flag=True).rename(columns={"n": "m"})
    assert states(compare.compare_frames("t", a, b)) == [
        *(("t.n", "changed"), ("t.m", "changed"), ("t.word", "changed"), ("t.flag", "changed"))
    ]
    assert {state for _, state in states(compare.compare_frames("t", a, a))} == {"same"}
    word, _, n = compare.compare_frames("t", a, a[:1])
    assert (word.state, n.state) == ("changed", "changed")
    assert n.texts == ("1 rows by k, 1 in one only: 0 differ",)


def test_values_that_differ_without_an_interval_are_no_chance():
    a = pd.DataFrame({"k": [1, 2], "v": [1.0, 2.0], "v_low": [None, 1.0], "v_high": [None, 3.0]})
    bounded = a.assign(v_low=0.0, v_high=3.0)
    (line,) = compare.compare_frames("t", bounded, a.assign(v=[9.0, 2.0]))
    assert line.state == "changed"
    (line,) = compare.compare_frames("t", bounded, a.assign(v=[1.0, 2.1]))
    assert line.state == "same"


def test_an_interval_belongs_to_the_column_of_its_name_or_within_it():
    assert compare.intervals_of(A) == {"rate": ("low", "high")}
    named = pd.DataFrame({"x": [1, 9], "y": [2, 3], "x_low": [0, 0], "x_high": [3, 3]})
    assert compare.intervals_of(named) == {"x": ("x_low", "x_high")}
    assert compare.intervals_of(A.assign(two=A.rate)) == {}
    assert compare.intervals_of(A.drop(columns="high")) == {}


def test_the_command_prints_the_comparison_and_writes_a_page(store_run, home):
    a = store_run("aaa", [claim("D1-1", 1, 0, 2)], {"t": A, "only": A})
    b = store_run(
        "bbb",
        [claim("D1-1", 1, 0, 2, False)],
        {"t": A + [0, 0.5, 0.5, 0.5]},
        figures=2,
        parameters={"m": 5, "seed": 1},
        versions={"Python": "3.12"},
    )
    result = aft("compare", "aaa", "bbb")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == ["A", a.name, "2026-03-01", "14:05", "UTC"]
    for line in (
        "Parameters: 2 differ, 0 the same",
        "  m     4  →  5",
        "  seed  –  →  1",
        "  Python  3.11  →  3.12",
        "Run: 0 differ, 6 the same",
        "! D1-1  ✔ 1 [0, 2]  →  ✘ 1 [0, 2]",
        f"  only    only in {a.name}",
    ):
        assert line in lines
    assert any(line.startswith("! t.rate  3 rows by m: 3 differ, 3 beyond") for line in lines)
    page = home / "reports" / "runs" / "compare" / "aaa-bbb.html"
    assert lines[-1] == f"Page: {page}"
    text = page.read_text()
    assert text.count('class="plotly"') == 3 and "another verdict" in text
    for link in re.findall(r'(?:src|href)="([^"#]+)', text):
        written_by_others = link.endswith(("_once.html", "index.html"))
        assert written_by_others or (page.parent / link).exists(), link
    assert runs.all_runs() and len(runs.all_runs()) == 2  # the page is none
    assert compare.comparison_lines([a, b, store_run("ccc", [], {"t": A})])[2].startswith("C  ")


def test_one_run_cannot_be_compared(store_run):
    store_run("aaa", [], {})
    for names in (["aaa"], ["aaa", "last"]):
        result = aft("compare", *names)
        assert result.exit_code == 1 and "give at least two different runs" in result.output


def test_many_runs_have_a_page_and_more_than_26_are_refused(store_run):
    names = [store_run(f"{number:012x}", [], {}).name for number in range(27)]
    result = aft("compare", *names[:26])
    assert result.exit_code == 0 and "Z  01_app" in result.output
    result = aft("compare", *names)
    assert (
        result.exit_code == 1 and "give at most 26 runs, labelled A to Z, got 27" in result.output
    )


def test_process_ids_are_no_quantities():
    a = pd.DataFrame({"pid": [71, 70], "crashed_pid": [7, 8], "worker": [1, 2], "s": [0.5, 0.6]})
    b = a.assign(pid=[99, 98], crashed_pid=[5, 4])
    assert states(compare.compare_frames("t", a, b)) == [
        *(("t.s", "same"), ("t.pid", "same"), ("t.crashed_pid", "same"))
    ]
    slower = compare.compare_frames("t", a.drop(columns="pid"), b.assign(s=[1.0, 0.6]))
    assert slower[0].texts[0] == "2 rows by worker: 1 differ, by +1 of A at most"


def drawn(m, at=None, kind="scatter"):
    """A figure of one trace, of m times its slider's value."""
    trace = {"type": kind, "name": "rate", "x": [1, 2], "line": {"color": "red"}}
    steps = [
        {"label": str(v), "method": "restyle", "args": [{"x": [[1, 2]], "y": [[m * v, 0]]}]}
        for v in at or []
    ]
    slider = {"active": 1, "currentvalue": {"prefix": "ε = "}, "steps": steps}
    data = [trace | {"y": [m * at[1] if at else m, 0]}]
    return {"data": data, "layout": {"sliders": [slider] if at else []}}


def test_two_runs_are_drawn_in_one_figure():
    both = compare.overlay([drawn(1, [1, 2, 3]), drawn(10, [2, 3, 4])], "AB")
    assert [(t["name"], t["y"][0]) for t in both["data"]] == [("rate (A)", 2), ("rate (B)", 20)]
    assert [t["line"].get("dash") for t in both["data"]] == [None, "dash"]
    (slider,) = both["layout"]["sliders"]
    assert (slider["active"], slider["currentvalue"]["prefix"]) == (0, "ε = ")
    moved = [(step["label"], step["args"][0]["y"]) for step in slider["steps"]]
    assert moved == [("2", [[2, 0], [20, 0]]), ("3", [[3, 0], [30, 0]])]
    apart = compare.overlay([drawn(1, [1, 2]), drawn(10, [3, 4])], "AB")  # as each begins
    assert [t["y"][0] for t in apart["data"]] == [2, 40] and not apart["layout"]["sliders"]
    bars = compare.overlay([drawn(1, kind="bar"), drawn(2, kind="bar")], "AB")
    assert [t["marker"]["pattern"]["shape"] for t in bars["data"]] == ["", "/"]
    assert compare.overlay([drawn(1), drawn(2, kind="heatmap")], "AB") is None


def test_runs_of_one_section_are_overlaid_on_the_page(store_run, home):
    for key in ("aaa", "bbb"):
        store_run(key, [], {})
    store_run("ccc", [], {}, section="counts")
    result = aft("compare", "aaa", "bbb", "--overlay")
    page = home / "reports" / "runs" / "compare" / "aaa-bbb.html"
    assert result.exit_code == 0 and page.read_text().count('class="plotly"') == 1
    refused = aft("compare", "aaa", "ccc", "--overlay")
    assert "must be of one notebook and section, got 01_approximately_once and" in refused.output
