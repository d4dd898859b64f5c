"""Data out: figures and tables as CSV and LaTeX, in the page and as files."""

from __future__ import annotations

import base64
import csv
import io
import re
from urllib.parse import unquote

import numpy as np
import plotly.graph_objects as go
import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_output

from aftlib.reports import browser, cli, data_out, export, html
from aftlib.reports.claims import MIME
from aftlib.reports.data_out import PLOTLY, figure_csv, latex_text, table_csv, table_latex, table_of
from aftlib.reports.style import styled, with_slider
from tests.tiny_project import executed, shows

CHROMIUM = browser.find_browser()
TABLE = """<style>td {color: red}</style><table><caption>Two <b>rows</b></caption>
<thead><tr><th rowspan="2">m</th><th colspan="2">found &amp; so</th></tr>
<tr><th>a_b</th><th>c</th></tr></thead>
<tbody><tr><th>2</th><td>1,000.5</td><td>none</td></tr><tr><th>4</th><td>−3%</td><td>ε</td></tr>
</tbody></table>"""


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def figure(**layout):
    made = go.Figure(layout=layout)
    made.add_scatter(
        x=[1, 2],
        y=np.array([0.5, 0.25]),
        name="<b>one</b>",
        error_y={"array": [0.1, 0.25], "arrayminus": [0.5, 0.25]},
    )
    return styled(made, "A figure", "workers m (logarithmic)", "rate")


def test_a_figures_csv_has_a_row_a_point_with_its_bounds():
    found = rows(figure_csv(figure().to_plotly_json()))
    assert found == [
        {"trace": "one", "workers m": "1", "rate": "0.5", "rate low": "0.0", "rate high": "0.6"},
        {"trace": "one", "workers m": "2", "rate": "0.25", "rate low": "0.0", "rate high": "0.5"},
    ]


def test_a_slider_gives_all_that_it_can_choose():
    steps = {"0.1": [{"y": [1, 2]}], "0.2": [{"y": [3, None]}]}
    made = with_slider(figure(), "ε", steps, active=1).to_plotly_json()
    found = [(row["ε"], row["workers m"], row["rate"]) for row in rows(figure_csv(made))]
    assert found == [("0.1", "1", "1"), ("0.1", "2", "2"), ("0.2", "1", "3"), ("0.2", "2", "")]
    menu = [{"buttons": [{"label": "b", "method": "restyle", "args": [{"y": [[7, 8]]}, [0]]}]}]
    (one, _) = rows(figure_csv(figure(updatemenus=menu).to_plotly_json()))
    assert (one["choice"], one["rate"]) == ("b", "7")
    hidden = {"label": "b", "method": "update", "args": [{"visible": False}, {"title": "b"}, [0]]}
    two = figure(updatemenus=[{"buttons": [hidden]}]).add_scatter(y=[5], name="two")
    assert {row["trace"] for row in rows(figure_csv(two.to_plotly_json()))} == {"two"}


def test_a_drawing_stands_where_its_slider_begins_or_where_it_is_put():
    steps = {"0.1": [{"y": [1, 2]}], "0.2": [{"y": [3, 4], "error_y.array": [9, 9]}]}
    made = with_slider(figure(), "ε", steps, active=0).to_plotly_json()
    assert data_out.chosen(made)[1] == "ε = 0.1"
    put, where = data_out.chosen(made, "0.2")
    (trace,) = put["data"]
    assert where == "ε = 0.2" and trace["y"] == [3, 4]
    assert trace["error_y"]["array"] == [9, 9] and "error_y.array" not in trace
    assert list(trace["error_y"]["arrayminus"]) == [0.5, 0.25]
    with pytest.raises(ValueError, match=r"the figure has ε at 0\.1, 0\.2, got '5'"):
        data_out.chosen(made, "5")
    assert data_out.chosen(figure().to_plotly_json())[1] == ""


def test_packed_arrays_and_heat_maps_are_unfolded():
    packed = {"dtype": "f8", "bdata": base64.b64encode(np.arange(6.0).tobytes()).decode()}
    assert data_out.unpacked(packed | {"shape": "2, 3"}).tolist() == [[0, 1, 2], [3, 4, 5]]
    traces = [{"x": ["a", "b", "c"], "z": packed | {"shape": "2, 3"}}]
    found = rows(figure_csv({"data": traces, "layout": {}}))
    assert [(row["x"], row["y"], row["z"]) for row in found[::4]] == [
        ("a", "0", "0.0"),
        ("b", "1", "4.0"),
    ]
    traces[0]["text"] = [["none", "1<b>%</b>", "–"], ["a", "b", "c"]]
    told = rows(figure_csv({"data": traces, "layout": {}}))
    assert [row["text"] for row in told] == ["none", "1%", "–", "a", "b", "c"]
    dated = {"x": ["2024-01-31"], "y": [1], "error_x": {"array": [9]}, "z": [[1, 2], [3]]}
    assert [row["x"] for row in rows(figure_csv({"data": [dated]}))] == ["2024-01-31", ""]
    mixed = {"data": [{"x": ["1", 2], "y": ["a<br>b", None]}]}
    assert figure_csv(mixed) == "trace,x,y\ntrace 1,1,a b\ntrace 1,2,\n"


def test_a_table_is_read_as_it_is_seen():
    heads, body, caption = table_of(TABLE)
    assert heads == [["m", "found & so", "found & so"], ["m", "a_b", "c"]]
    assert body == [["2", "1,000.5", "none"], ["4", "−3%", "ε"]]
    assert caption == "Two rows"
    assert table_csv(TABLE).splitlines()[-2:] == ['2,"1,000.5",none', "4,−3%,ε"]
    lines = table_latex(TABLE).splitlines()
    assert lines[:3] == ["% Two rows", r"\begin{tabular}{rrl}", r"\toprule"]
    assert r"m & a\_b & c \\" in lines and r"4 & $-$3\% & $\varepsilon$ \\" in lines
    assert lines.index(r"\midrule") == 5
    assert table_of("<p>none</p>") == ([], [], "")
    odd = '<table><tr><td rowspan="0">1</td><td colspan="all">2</td></tr></table>'
    assert table_of(odd) == ([], [["1", "2"]], "")
    assert table_of("<table><tr><td>a<td>b<tr><td>c<td>d</table>")[1] == [["a", "b"], ["c", "d"]]
    left_open = "<table><caption>C<thead><tr><th>h<th>i<tbody><tr><td><b>1</b>2<td>3</table>"
    assert table_of(left_open) == ([["h", "i"]], [["12", "3"]], "C")
    inner = "<table><tr><td>1<td>2</table>"
    nested = f"<table><tr><td>x{inner}y</td><td><style>b</style>z</td></tr></table>"
    assert table_of(nested)[1] == [["xy", "z"], ["1", "2"]]
    assert latex_text("a~b") == r"a\textasciitilde{}b"


def test_figures_and_tables_are_numbered_as_shown_and_carry_their_data():
    claims = {MIME: [], "text/html": "<table></table>"}
    both = new_code_cell(
        "both()",
        outputs=[
            new_output("display_data", {PLOTLY: figure().to_plotly_json()}),
            new_output("display_data", {"text/html": TABLE}),
            new_output("stream", text="said"),
        ],
    )
    cells = [shows({"image/svg+xml": "<svg/>"}), shows(claims), both, shows({"text/plain": "1"})]
    found = [(s.kind, s.number, s.cell) for s in data_out.shown_in(executed(cells).content)]
    assert found == [("figure", 1, 0), ("figure", 2, 2), ("table", 1, 2)]
    page = html.render_report(executed(cells))
    assert re.findall(r'id="(figure-\d|table-\d)"', page) == ["figure-1", "figure-2", "table-1"]
    saved = dict(re.findall(r'download="([^"]+)" href="([^"]+)"', page))
    name = "01_approximately_once"
    assert set(saved) == {
        *(f"{name}-figure-1.svg", f"{name}-figure-2.csv", f"{name}-table-1.csv"),
        f"{name}-table-1.tex",
    }
    assert unquote(saved[f"{name}-figure-2.csv"]).partition(",")[2].startswith("trace,workers m")
    assert unquote(saved[f"{name}-table-1.tex"]).endswith("\\end{tabular}\n")
    assert page.count("data-save=") == 2


@pytest.fixture
def report(home):
    """A report with a figure, a picture and a table."""
    import nbformat

    cells = [shows({PLOTLY: figure().to_plotly_json()}), shows({"image/png": "aGk="})]
    path = home / "reports" / "01_approximately_once.ipynb"
    path.parent.mkdir()
    nbformat.write(executed([*cells, shows({"text/html": TABLE})]).content, path)
    return path


def aft(*arguments):
    return CliRunner().invoke(cli.main, ["export", *arguments])


def test_data_needs_no_browser(report, tmp_path, monkeypatch):
    monkeypatch.setattr(browser.shutil, "which", lambda name: None)
    monkeypatch.delenv("AFT_BROWSER", raising=False)
    monkeypatch.chdir(tmp_path)
    assert aft("01", "--figure", "1").output == "01_approximately_once-figure-1.csv\n"
    assert (tmp_path / "01_approximately_once-figure-1.csv").read_text().startswith("trace,")
    assert aft("D1", "--figure", "1", "--output", "f.json").output == "f.json\n"
    assert aft("D1", "--table", "1", "--output", "t.tex").output == "t.tex\n"
    assert (tmp_path / "t.tex").read_text() == table_latex(TABLE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["01"], "give either --figure N or --table N"),
        (["01", "--figure", "3"], "01_approximately_once has figures 1 to 2, got 3"),
        (["01", "--figure", "1", "--format", "tex"], "format of a figure must be one of csv, json"),
        (["01", "--figure", "2"], "figure 2 is a picture, without data: save it in the report"),
        (["01", "--figure", "1", "--width", "wide"], "length 'wide' must be a number with mm"),
        (["01", "--figure", "1", "--width", "1.2.3mm"], "length '1.2.3mm' must be a number"),
        (["01", "--figure", "1", "--width", "99in"], "'99in' must be from 10 to 5000 px, of which"),
        (["01", "--figure", "1", "--height", "1px"], "'1px' must be from 10 to 5000 px, of which"),
        (["01", "--figure", "1", "--format", "pdf"], "format pdf is drawn by a browser, and none"),
        (["01", "--figure", "1", "--format", "svg", "--at", "5"], "no slider or menu to be set"),
        (["2", "--figure", "1"], "no run '2'"),
    ],
)
def test_what_cannot_be_had_says_the_way_out(report, monkeypatch, arguments, message):
    monkeypatch.setattr(export, "find_browser", lambda: None)
    result = aft(*arguments)
    assert result.exit_code == 1 and message in result.output


def test_a_report_without_tables_says_so():
    with pytest.raises(ValueError, match="shows no tables"):
        export.find_shown(executed([]), "table", 1)


def test_a_browser_that_fails_is_one_line(report, tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no display >&2\n")
    broken.chmod(0o755)
    monkeypatch.setenv("AFT_BROWSER", str(broken))
    for arguments in (["--format", "svg"], ["--format", "pdf", "--height", "50mm"]):
        result = aft("01", "--figure", "1", *arguments, "--output", str(tmp_path / "x"))
        assert result.exit_code == 1 and "drew nothing: no display" in result.output
        assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")
def test_a_browser_draws_svg_and_pdf_of_the_asked_width(report, tmp_path):
    for kind, height in (("svg", []), ("pdf", ["--height", "50mm"])):  # asked for or found
        target = tmp_path / f"figure.{kind}"
        result = aft("01", "--figure", "1", "--width", "84mm", *height, "--output", str(target))
        assert result.exit_code == 0, result.output
    assert 'width="317"' in (tmp_path / "figure.svg").read_text()
    box = re.findall(rb"/MediaBox ?\[0 0 ([\d.]+)", (tmp_path / "figure.pdf").read_bytes())
    assert len(box) == 1 and float(box[0]) == pytest.approx(84 / 25.4 * 72, abs=1)
