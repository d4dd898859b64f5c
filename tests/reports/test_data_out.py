"""Data out: figures and tables as CSV and LaTeX, in the page and as files."""

from __future__ import annotations

import base64
import csv
import io
import re
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbformat.v4 import new_code_cell, new_output
from plotly.subplots import make_subplots

from aftlib.reports import data_out, export, figure_data, html
from aftlib.reports.data_out import (
    PLOTLY,
    TABLE,
    capture,
    in_words,
    latex_text,
    read_csv,
    store_frames,
    table_csv,
    table_latex,
)
from aftlib.reports.figure_data import figure_csv
from aftlib.workbench.scorecard import MIME
from aftlib.workbench.style import named, styled, with_slider
from tests.reports.chromium import needs_browser
from tests.tiny_project import aft, executed, shows

FRAME = pd.DataFrame({"m": [2, 2, 4], "epsilon": [0.1, 0.2, 0.1], "rate": [1 / 3, 0.5, 1.0]})
STYLED = (
    pd.DataFrame({"a_b": [0.0004, np.nan], "ε": [1000.5, -3.0]}, pd.Index([2, 4], name="m"))
    .style.format({"a_b": "{:.2%}", "ε": "{:,.1f}"}, na_rep="–")
    .set_caption("Two rows")
)
TABLE_SHOWN = {"text/html": STYLED.to_html(), TABLE: capture(STYLED)}


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def figure(**layout):
    plot = go.Figure(layout=layout)
    plot.add_scatter(
        x=[1, 2],
        y=np.array([0.5, 0.25]),
        name="<b>one</b>",
        error_y={"array": [0.1, 0.25], "arrayminus": [0.5, 0.25]},
    )
    return styled(plot, "A figure", "workers m (logarithmic)", "rate")


def test_a_figures_csv_has_a_row_a_point_with_its_bounds():
    records = rows(figure_csv(figure().to_plotly_json()))
    assert records == [
        {"series": "one", "workers m": "1", "rate": "0.5", "rate low": "0.0", "rate high": "0.6"},
        {"series": "one", "workers m": "2", "rate": "0.25", "rate low": "0.0", "rate high": "0.5"},
    ]


def test_a_slider_gives_all_that_it_can_choose():
    steps = {"0.1": [{"y": [1, 2]}], "0.2": [{"y": [3, None]}]}
    plot = with_slider(figure(), "ε", steps, active=1).to_plotly_json()
    records = [(row["ε"], row["workers m"], row["rate"]) for row in rows(figure_csv(plot))]
    assert records == [("0.1", "1", "1"), ("0.1", "2", "2"), ("0.2", "1", "3"), ("0.2", "2", "")]
    menu = [{"buttons": [{"label": "b", "method": "restyle", "args": [{"y": [[7, 8]]}, [0]]}]}]
    (one, _) = rows(figure_csv(figure(updatemenus=menu).to_plotly_json()))
    assert (one["choice"], one["rate"]) == ("b", "7")
    hidden = {"label": "b", "method": "update", "args": [{"visible": False}, {"title": "b"}, [0]]}
    two = figure(updatemenus=[{"buttons": [hidden]}]).add_scatter(y=[5], name="two")
    assert {row["series"] for row in rows(figure_csv(two.to_plotly_json()))} == {"two"}


def test_a_figures_csv_has_the_lines_that_were_named():
    plot = go.Figure(figure()).add_scatter(y=[1.0], name="two")
    both = with_slider(plot, "ε", {"0.1": [{"y": [1.0]}, {"y": [2.0]}]}, active=0).to_plotly_json()
    assert [row["series"] for row in rows(figure_csv(both))] == ["one", "one", "two"]
    assert [(row["ε"], row["rate"]) for row in rows(figure_csv(both, ["two"]))] == [("0.1", "2.0")]
    with pytest.raises(ValueError, match="series must be one of one, two, got 'three'"):
        figure_csv(both, ["three"])


def test_a_drawing_stands_where_its_slider_begins_or_where_it_is_put():
    steps = {"0.1": [{"y": [1, 2]}], "0.2": [{"y": [3, 4], "error_y.array": [9, 9]}]}
    plot = with_slider(figure(), "ε", steps, active=0).to_plotly_json()
    assert figure_data.at_label(plot)[1] == "ε = 0.1"
    put, where = figure_data.at_label(plot, "0.2")
    (trace,) = put["data"]
    assert where == "ε = 0.2" and trace["y"] == [3, 4]
    assert trace["error_y"]["array"] == [9, 9] and "error_y.array" not in trace
    assert list(trace["error_y"]["arrayminus"]) == [0.5, 0.25]
    with pytest.raises(ValueError, match=r"ε must be one of 0\.1, 0\.2, got '5'"):
        figure_data.at_label(plot, "5")
    assert figure_data.at_label(figure().to_plotly_json())[1] == ""


def test_packed_arrays_and_heat_maps_are_unfolded():
    packed = {"dtype": "f8", "bdata": base64.b64encode(np.arange(6.0).tobytes()).decode()}
    assert figure_data.unpack(packed | {"shape": "2, 3"}).tolist() == [[0, 1, 2], [3, 4, 5]]
    traces = [{"x": ["a", "b", "c"], "z": packed | {"shape": "2, 3"}}]
    records = rows(figure_csv({"data": traces, "layout": {}}))
    assert [(row["x"], row["y"], row["z"]) for row in records[::4]] == [
        ("a", "0", "0.0"),
        ("b", "1", "4.0"),
    ]
    traces[0]["text"] = [["none", "1<b>%</b>", "–"], ["a", "b", "c"]]
    texts = rows(figure_csv({"data": traces, "layout": {}}))
    assert [row["text"] for row in texts] == ["none", "1%", "–", "a", "b", "c"]
    dated = {"x": ["2024-01-31"], "y": [1], "error_x": {"array": [9]}, "z": [[1, 2], [3]]}
    assert [row["x"] for row in rows(figure_csv({"data": [dated]}))] == ["2024-01-31", ""]
    mixed = {"data": [{"x": ["1", 2], "y": ["a<br>b", None]}]}
    assert figure_csv(mixed) == "series,x,y\nseries 1,1,a b\nseries 1,2,\n"


def test_panels_and_axes_have_their_names():
    grid = make_subplots(
        rows=2,
        cols=2,
        shared_yaxes=True,
        shared_xaxes=True,
        subplot_titles=["<b>left</b>", "right"],
    )
    for row, col in ((1, 1), (1, 2), (2, 1), (2, 2)):
        grid.add_scatter(y=[row, col], name="guard", row=row, col=col)
    grid.update_yaxes(title_text="share", row=1, col=1).update_yaxes(title_text="ms", row=2, col=1)
    records = rows(figure_csv(grid.to_plotly_json()))
    assert [(r["panel"], r["series"], r["x"], r["share"], r["ms"]) for r in records[::2]] == [
        ("left", "guard", "0", "1", ""),
        ("right", "guard", "0", "1", ""),
        ("left", "guard", "0", "", "2"),
        ("right", "guard", "0", "", "2"),
    ]
    table = go.Figure(go.Heatmap(x=["a"], y=["b"], z=[[0.5]]), layout={"meta": {"least": 720}})
    table = named(table, x="measure", y="scheme", z="grade").to_plotly_json()
    assert table["layout"]["meta"]["least"] == 720
    assert rows(figure_csv(table)) == [
        {"series": "series 1", "measure": "a", "scheme": "b", "grade": "0.5"}
    ]
    same = go.Figure(go.Scatter(x=[1], y=[2]), layout={"xaxis": {"title": {"text": "t"}}})
    same.update_yaxes(title_text="t")
    assert rows(figure_csv(same.to_plotly_json())) == [{"series": "series 1", "x": "1", "y": "2"}]


def test_no_cell_is_a_formula():
    texts = ["=1+1", "@SUM(A1)", "+cmd|'/C calc'!A0", "-2+3", "-2.5", "+1e-3", "a=b", "-", "-5 %"]
    safe = ["'=1+1", "'@SUM(A1)", "'+cmd|'/C calc'!A0", "'-2+3", *texts[4:]]
    frame = pd.DataFrame({"=name": texts, "n": -1.5}, pd.Index(texts, name="=index"))
    lines = list(csv.reader(io.StringIO(data_out.frame_csv(frame))))
    assert lines[0] == ["'=index", "'=name", "n"]
    assert [row[1] for row in lines[1:]] == [row[0] for row in lines[1:]] == safe
    assert {row[2] for row in lines[1:]} == {"-1.5"}
    drawn = go.Figure(
        go.Bar(x=["=1+1"], y=[-1], name="=2"), layout={"xaxis": {"title": {"text": "=x"}}}
    )
    assert figure_csv(drawn.to_plotly_json()) == "series,'=x,y\n'=2,'=1+1,-1\n"


def test_a_shown_frame_carries_its_values_and_its_texts(monkeypatch):
    data = {TABLE: capture(STYLED)}
    assert table_csv(data).splitlines() == ["m,a_b,ε", "2,0.0004,1000.5", "4,,-3.0"]
    lines = table_latex(data).splitlines()
    assert lines[:3] == ["% Two rows", r"\begin{tabular}{rrr}", r"\toprule"]
    assert r" & a\_b & $\varepsilon$ \\" in lines and r"4 & -- & -3.0 \\" in lines
    assert r"2 & 0.04\% & 1,000.5 \\" in lines and lines.index(r"\midrule") == 5
    hidden = capture(STYLED.hide(axis="index"))
    assert hidden["csv"].startswith("a_b,ε\n") and hidden["rows"][0] == ["a_b", "ε"]
    wide = FRAME.pivot(index="m", columns="epsilon", values=["rate"])
    heads, rows = capture(wide.style)["rows"][:3], capture(wide.style)["rows"][3:]
    assert heads == [["", "rate", "rate"], ["epsilon", "0.100000", "0.200000"], ["m", "", ""]]
    assert [row[0] for row in rows] == ["2", "4"] and capture(wide.style)["heads"] == 3
    assert capture(FRAME.iloc[:0].style)["heads"] == 1
    monkeypatch.setattr(data_out, "MOST_SHOWN", 8)
    assert capture(FRAME.style) is None
    assert latex_text("a~b") == r"a\textasciitilde{}b"


def test_a_shown_table_has_headings_in_words_and_its_csv_the_names():
    shell = InteractiveShell()
    data_out.load_ipython_extension(shell)
    words = SimpleNamespace(HEADINGS={"a_b": "A of B", "m": "workers"})
    for module, shown in (("experiments", STYLED.data.style), ("figures", STYLED.data)):
        shell.user_ns.pop("experiments", None)
        shell.user_ns[module] = words
        data, _ = shell.display_formatter.format(shown)
        heads = re.findall(r"<th[^>]*>([^<]+)</th>", data["text/html"])
        assert {"A of B", "ε", "workers"} < set(heads) and not {"a_b", "m"} & set(heads)
        assert data[TABLE]["rows"][:2] == [["", "A of B", "ε"], ["workers", "", ""]]
        assert table_csv(data).startswith("m,a_b,ε\n")
    data, _ = shell.display_formatter.format(pd.DataFrame({"tau": [1]}))
    assert "<th>checkpoint τ</th>" in data["text/html"]  # a word that packages share
    grouped = FRAME.pivot(index="m", columns="epsilon", values=["rate"]).style
    grouped.format_index("{:g}", axis=1, level=1)
    worded = in_words(grouped, {"rate": "share", "epsilon": "ε"})
    assert capture(worded)["rows"][:2] == [["", "share", "share"], ["ε", "0.1", "0.2"]]
    assert capture(grouped)["rows"][0] == ["", "rate", "rate"]


def test_frames_are_stored_by_the_names_of_their_variables(tmp_path, monkeypatch):
    monkeypatch.setattr(data_out, "MOST_CELLS", 9)
    large = pd.DataFrame({"x": range(10)})
    styled_one = (FRAME * 2).style
    variables = {"a": FRAME, "b": FRAME, "_c": FRAME + 1, "large": large, "n": 1, "s": styled_one}
    store_frames(variables | {"none": pd.DataFrame()}, tmp_path / "t")
    frames = {path.stem: read_csv(path.read_text()) for path in (tmp_path / "t").iterdir()}
    assert frames.keys() == {"a", "s", "none"} and frames["none"].empty
    pd.testing.assert_frame_equal(frames["a"], FRAME, check_exact=True)
    assert frames["s"].m.tolist() == [4, 4, 8]


def test_a_frame_that_cannot_be_written_is_left_out(tmp_path):
    index = pd.MultiIndex.from_tuples([(1, 2), (3, 4), (5, 6)])
    twice = FRAME.set_axis(index).assign(level_0=1)  # what the unnamed index would be called
    with pytest.warns(UserWarning, match="twice is not stored: cannot insert level_0"):
        store_frames({"twice": twice, "a": FRAME}, tmp_path / "t")
    assert [path.stem for path in (tmp_path / "t").iterdir()] == ["a"]
    cell = {"store_frames": store_frames, "twice": twice, "a": FRAME, "folder": tmp_path / "g"}
    with pytest.warns(UserWarning, match="twice is not stored"):  # where its registry is new
        exec("store_frames(globals(), folder)", cell)
    assert [path.stem for path in (tmp_path / "g").iterdir()] == ["a"]
    (tmp_path / "full").touch()  # no folder can be made there
    with pytest.warns(UserWarning, match="a is not stored"):
        store_frames({"a": FRAME}, tmp_path / "full" / "t")


def test_arrays_in_cells_are_written(tmp_path):
    parts = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]  # of equal length, as a square
    store_frames({"a": pd.DataFrame({"by_part": parts, "word": ["=x", "y"]})}, tmp_path)
    assert (tmp_path / "a.csv").read_text().splitlines() == [
        "by_part,word",
        "[1. 2.],'=x",
        "[3. 4.],y",
    ]


def test_an_index_becomes_columns_unless_it_only_counts():
    def columns(frame):
        return data_out.frame_csv(frame).splitlines()[0]

    assert columns(FRAME.set_index("m")) == "m,epsilon,rate"
    assert columns(FRAME.set_axis([1, 5, 7])) == "index,m,epsilon,rate"
    wide = FRAME.pivot(index="m", columns="epsilon", values=["rate"])
    assert columns(wide) == "m,rate / 0.1,rate / 0.2"
    assert columns(FRAME.set_index("m", drop=False)) == "m,epsilon,rate"


def test_figures_and_tables_are_numbered_as_shown_and_carry_their_data():
    claims = {MIME: [], "text/html": "<table></table>"}
    both = new_code_cell(
        "both()",
        outputs=[
            new_output("display_data", {PLOTLY: figure().to_plotly_json()}),
            new_output("display_data", TABLE_SHOWN),
            new_output("stream", text="printed"),
        ],
    )
    cells = [shows({"image/svg+xml": "<svg/>"}), shows(claims), both, shows({"text/plain": "1"})]
    numbers = [(s.kind, s.number, s.cell) for s in data_out.shown_in(executed(cells).content)]
    assert numbers == [("figure", 1, 0), ("figure", 2, 2), ("table", 1, 2)]
    page = html.render_report(executed(cells))
    assert re.findall(r'id="(figure-\d|table-\d)"', page) == ["figure-1", "figure-2", "table-1"]
    saved = dict(re.findall(r'download="([^"]+)" href="([^"]+)"', page))
    name = "01_approximately_once"
    assert set(saved) == {
        *(f"{name}-figure-1.svg", f"{name}-figure-2.csv", f"{name}-table-1.csv"),
        f"{name}-table-1.tex",
    }
    assert unquote(saved[f"{name}-figure-2.csv"]).partition(",")[2].startswith("series,workers m")
    assert unquote(saved[f"{name}-table-1.tex"]).endswith("\\end{tabular}\n")
    assert page.count("data-save=") == 2


@pytest.fixture
def report(home):
    """A report with a figure, a picture and a table."""
    import nbformat

    cells = [shows({PLOTLY: figure().to_plotly_json()}), shows({"image/png": "aGk="})]
    path = home / "reports" / "01_approximately_once.ipynb"
    path.parent.mkdir()
    nbformat.write(executed([*cells, shows(TABLE_SHOWN)]).content, path)
    return path


def test_data_needs_no_browser(report, tmp_path, monkeypatch):
    monkeypatch.setattr(export.shutil, "which", lambda name: None)
    monkeypatch.delenv("AFT_BROWSER", raising=False)
    monkeypatch.chdir(tmp_path)
    first = aft("export", "01", "--figure", "1", "--series", "one")
    assert first.stdout == "01_approximately_once-figure-1.csv\n"
    assert first.stderr == f"From {report}: profile quick\n"
    assert (tmp_path / "01_approximately_once-figure-1.csv").read_text().startswith("series,")
    by_words = aft("export", "01", "--figure", "a FIGURE", "--output", "words.csv")
    assert by_words.exit_code == 0 and "one" in (tmp_path / "words.csv").read_text()
    assert aft("export", "D1", "--figure", "1", "--output", "f.json").stdout == "f.json\n"
    assert aft("export", "D1", "--table", "1", "--output", "t.tex").stdout == "t.tex\n"
    assert (tmp_path / "t.tex").read_text() == table_latex(TABLE_SHOWN)


def test_without_a_number_the_figures_and_tables_are_listed(report):
    lines = ["figure  1  A figure", "figure  2", "table  1  Two rows"]
    assert aft("export", "01").stdout.splitlines() == lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["01", "--figure", "1", "--table", "1"], "give either --figure N or --table N"),
        (["01", "--figure", "3"], "01_approximately_once has figures 1 to 2, got 3"),
        (["01", "--figure", "fig"], "of one title, got 'fig': 01_approximately_once has 1 "),
        (["01", "--figure", "1", "--format", "tex"], "format of a figure must be one of csv, json"),
        (["01", "--figure", "2"], "figure 2 is a picture, without data: save it from the report"),
        (["01", "--figure", "1", "--width", "wide"], "length 'wide' must be a number with mm"),
        (["01", "--figure", "1", "--width", "1.2.3mm"], "length '1.2.3mm' must be a number"),
        (["01", "--figure", "1", "--width", "99in"], "'99in' must be from 10 to 5000 px, of which"),
        (["01", "--figure", "1", "--height", "1px"], "'1px' must be from 10 to 5000 px, of which"),
        (["01", "--figure", "1", "--format", "pdf"], "format pdf is drawn by a browser, and none"),
        (["01", "--figure", "1", "--format", "svg", "--at", "5"], "no slider or menu to be set"),
        (["01", "--figure", "1", "--series", "x"], "series must be one of one, got 'x'"),
        (["01", "--table", "1", "--series", "one"], "--series is only for a figure's csv or draw"),
        (["2", "--figure", "1"], "no run '2'"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_the_fix(report, monkeypatch, arguments, message):
    monkeypatch.setattr(export, "find_browser", lambda: None)
    result = aft("export", *arguments)
    assert result.exit_code == 1 and message in result.output


@pytest.mark.parametrize("length", ["1in", "2.54cm", "25.4mm", "72pt", "96px"])
def test_an_inch_has_96_css_pixels(length):
    assert export.pixels(length) == pytest.approx(96)


def test_a_report_without_tables_says_so():
    with pytest.raises(ValueError, match="shows no tables"):
        export.find_shown(executed([]), "table", "1")


def test_a_browser_that_fails_is_one_line(report, tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no display >&2\n")
    broken.chmod(0o755)
    monkeypatch.setenv("AFT_BROWSER", str(broken))
    for arguments in (["--format", "svg"], ["--format", "pdf", "--height", "50mm"]):
        result = aft("export", "01", "--figure", "1", *arguments, "--output", str(tmp_path / "x"))
        assert result.exit_code == 1 and "drew nothing: no display" in result.output
        assert not (tmp_path / "x").exists()


@pytest.mark.slow
@needs_browser
def test_a_browser_draws_svg_and_pdf_of_the_given_width(report, tmp_path):
    for kind, height in (("svg", []), ("pdf", ["--height", "50mm"])):  # given or computed
        target = tmp_path / f"figure.{kind}"
        result = aft(
            "export", "01", "--figure", "1", "--width", "84mm", *height, "--output", str(target)
        )
        assert result.exit_code == 0, result.output
    assert 'width="317"' in (tmp_path / "figure.svg").read_text()
    box = re.findall(rb"/MediaBox ?\[0 0 ([\d.]+)", (tmp_path / "figure.pdf").read_bytes())
    assert len(box) == 1 and float(box[0]) == pytest.approx(84 / 25.4 * 72, abs=1)
