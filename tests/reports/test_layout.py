"""Pages as their readers see them: on a phone, on a dark screen, on paper."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from aftlib.reports import data_out, html, index
from aftlib.reports.documents import DOCUMENTS
from aftlib.reports.html import write_documents
from aftlib.reports.notebook import Notebook
from aftlib.workbench.scorecard import MIME, claims_table
from aftlib.workbench.style import GREEN, ORANGE, styled, with_slider
from tests.reports import chromium
from tests.tiny_project import FIRST, executed, settled, shows, write_notebook

COMPLAINTS = Path(__file__).with_name("layout.js").read_text(encoding="utf-8")
A4 = 688  # pixels between its margins
PAGES = ["report", "index", *(document.page for document in DOCUMENTS.values())]

pytestmark = [chromium.needs_browser, pytest.mark.slow]


def figures() -> list[go.Figure]:
    """Figures whose parts would overlap in little space without the layout rules."""
    names = ["upstream backup", "active standby (WAN)", "proposed, as it was measured", "1 − δ"]
    lines = [{"y": [i + 1, i + 2, 9], "name": name} for i, name in enumerate(names)]
    lines[0] |= {"line": {"color": "#333"}}
    title = "Tuples processed again, against the rate of the input"
    x = "input rate (tuples/s, logarithmic)"
    curves = go.Figure([go.Scatter(x=[1, 2, 3], **line) for line in lines])
    frames = {name: [{"y": [i, 2, i]}] * 4 for i, name in enumerate(("0.05", "0.1", "0.2"))}
    slid = with_slider(styled(curves, title, x, "tuples"), "ε", frames, 1)

    bars = [go.Bar(x=["as it is", "no handshake", "Nagle on"], y=[1, 2, 3], name=n) for n in names]
    scales = ("linear", "log")
    buttons = [{"label": s, "method": "relayout", "args": [{"yaxis.type": s}]} for s in scales]
    menu = styled(go.Figure(bars), title, "what is changed", "recovery time (ms, simulated)")
    menu.update_layout(
        updatemenus=[{"buttons": buttons, "type": "buttons", "direction": "right", "y": -0.2}],
        legend={"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"},
        colorway=[GREEN, ORANGE],
    )
    return [slid, menu]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report and an index with claims of long notes, one out of date; all that never changes."""
    folder = tmp_path_factory.mktemp("pages")
    values = {"expected": "a < b, at every rate", "value": 0.5, "interval": (0.25, 0.75)}
    values["note"] = "A ratio of medians. " + "The others were measured beside it, by (9). " * 5
    verdicts = [settled(id, holds=id == "D1-2", **values) for id in ("D1-1", "D1-2")]
    wide = pd.DataFrame({f"a column of numbers {i}": [1.5, 2.5] for i in range(12)})
    cells = [shows({data_out.PLOTLY: figure.to_plotly_json()}) for figure in figures()]
    cells += [shows({"text/html": f"<div>{wide.to_html()}</div>"})]
    lines = [verdict.model_dump(mode="json") for verdict in verdicts]
    cells += [shows({MIME: lines, "text/html": claims_table(verdicts)})]
    run = executed([FIRST[0], *cells], changed={"a_parameter_of_a_long_name": [0.125] * 20})
    report = html.write_report(run, folder / "report.html")

    claims = [v.with_run(run.name, "quick", run.changed) for v in verdicts]
    notebook = Notebook(write_notebook(folder / "notebooks" / f"{run.name}.ipynb", FIRST))
    claims = [claims[0].outdated(), claims[1]]
    front = index.write_index([notebook], {run.name: run}, claims, [], folder / "index.html")
    write_documents(folder / "documents")
    written = {path.stem: path for path in (folder / "documents").glob("*.html")}
    return {"report": report, "index": front} | written


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with chromium.open_page(chromium.CHROMIUM, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1100, "light")])
def test_nothing_is_cut_off_or_hidden_on_a_screen(page, pages, name, width, scheme):
    page.show(pages[name], width, scheme)
    assert page.run(COMPLAINTS) == []


def test_on_a_phone_a_wide_table_scrolls_and_many_rows_get_height(page, tmp_path):
    table = go.Figure(go.Heatmap(z=[[0, 1], [1, 0]], text=[["a", "b"]] * 2))
    table.update_layout(meta={"least": 720})
    rows = make_subplots(rows=9, cols=1)
    for row in range(1, 10):
        rows.add_scatter(y=[1, 2], row=row, col=1)
    bars = go.Figure(go.Bar(x=[*range(24)], y=[f"scheme {i}" for i in range(24)], orientation="h"))
    shown = [styled(figure, "A title", "", "") for figure in (table, rows, bars)]
    run = executed([FIRST[0], *(shows({data_out.PLOTLY: f.to_plotly_json()}) for f in shown)])
    page.show(html.write_report(run, tmp_path / "report.html"), 390)
    inside = "[...document.querySelectorAll('.canvas > .plotly')].map((b) => b._fullLayout._size)"
    wide, high, _ = page.run(f"{inside}.map((size) => [size.w, size.h])")
    assert wide[0] > 500 and high[1] > 9 * 80
    named = (
        "[...document.querySelectorAll('.plotly')].at(-1).querySelectorAll('.ytick text').length"
    )
    assert page.run(named) == 24  # each bar has its name
    assert page.run("document.documentElement.scrollWidth") <= 390


def test_a_figure_beside_another_is_as_on_a_phone(page, pages):
    page.show(pages["report"], 1100)
    page.run("document.querySelectorAll('.figure').forEach((f) => { f.style.width = '430px'; })")
    page.medium("screen", "dark")  # all are drawn anew
    page.run(chromium.DRAWN)
    assert page.run(COMPLAINTS) == []
    assert page.run("getComputedStyle(document.querySelector('.figure-title')).display") == "block"


def on_paper(page, path: Path) -> list[str]:
    """What a reader of the printed page complains of, printed from a wide and dark screen.

    What is not laid out when the event has been handled comes too late for the browser.
    """
    page.show(path, 1100, "dark")
    widths = "[...document.querySelectorAll('.main-svg')].map((svg) => +svg.getAttribute('width'))"
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert max(page.run(widths), default=0) <= A4
    page.medium("print", "dark")
    page.size(A4)
    return page.run(COMPLAINTS)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_or_hidden_on_paper(page, pages, name):
    assert on_paper(page, pages[name]) == []


@pytest.mark.parametrize(
    ("name", "medium", "style"),
    [
        ("d1", "phone", "main p { white-space: nowrap }"),
        ("d1", "dark", ":root { --ink: #444 !important }"),
        ("d1", "paper", ".wide code { white-space: nowrap }"),
    ],
)
def test_a_damaged_page_has_complaints(page, pages, name, medium, style):
    page.show(pages[name], 390 if medium == "phone" else 1100, "dark")
    if medium == "paper":
        page.medium("print", "dark")
        page.size(A4)
    worse = (
        "document.head.append(Object.assign(document.createElement('style'), {textContent: %r}))"
    )
    page.run(f"{worse % style}; 0")
    assert page.run(COMPLAINTS) != []


def test_on_a_phone_panels_are_stacked_with_their_titles(page, tmp_path):
    panels = make_subplots(cols=2, shared_yaxes=True, subplot_titles=["a long title", "another"])
    for column in (1, 2):
        panels.add_scatter(y=[1, 2], row=1, col=column)
    shown = styled(panels, "A title", "the same axis for both", "")
    cells = [FIRST[0], shows({data_out.PLOTLY: shown.to_plotly_json()})]
    page.show(html.write_report(executed(cells), tmp_path / "report.html"), 390)
    assert page.run(COMPLAINTS) == []
    layout = "document.querySelector('.canvas > .plotly')._fullLayout"
    assert page.run(f"[{layout}.xaxis.domain, {layout}.xaxis2.domain]") == [[0, 1], [0, 1]]
    upper, lower = page.run(f"[{layout}.yaxis.domain, {layout}.yaxis2.domain]")
    assert lower[1] < upper[0]
    tops = page.run(f"{layout}.annotations.map((text) => [text.x, text.y])")
    assert tops == [[0.5, upper[1]], [0.5, lower[1]]]


def test_after_printing_the_page_is_as_it_was(page, pages):
    width = "document.querySelector('.main-svg').getAttribute('width')"
    page.show(pages["report"], 1100, "dark")
    before = page.run(width)
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run(width) != before
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run(width) == before
    assert page.run(COMPLAINTS) == []


def test_a_phone_shows_the_verdict_first(page, pages):
    page.show(pages["index"], 390)
    tops = "[...document.querySelector('#D1 ~ .wide tbody tr').cells].map((c) => c.offsetTop)"
    identifier, *others, verdict = page.run(tops)
    assert verdict <= identifier < min(others)


def test_keys_move_the_slider_and_what_it_chose_stays(page, pages):
    page.show(pages["report"], 1100)
    values = "[...document.querySelector('.canvas > .plotly').data[0].y].join()"
    assert page.run(values) == "1,2,1"
    page.run("document.querySelector('.control input').focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", windowsVirtualKeyCode=39)
    assert page.run(values) == "2,2,2"
    assert page.run("document.querySelector('.control output').textContent") == "ε = 0.2"
    page.medium("screen", "dark")
    page.size(390)
    page.run(chromium.DRAWN)
    assert page.run(values) == "2,2,2"
    assert page.run(COMPLAINTS) == []
