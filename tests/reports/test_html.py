from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from aftlib.reports import execute, export, html, notebook, reproduce, runs
from aftlib.reports.index import write_index
from aftlib.reports.notebook import Notebook
from aftlib.workbench.scorecard import MIME
from tests.reports.chromium import CHROMIUM, needs_browser
from tests.reports.conftest import execute_by_hand
from tests.tiny_project import FIRST, broken_links, executed, settled, shows, write_notebook


def page_of(*cells, **record) -> str:
    return html.render_report(executed(list(cells), **record))


def test_pages_refer_to_nothing_but_their_neighbours(done):
    reports, _ = done
    for path in reports.glob("*.html"):
        assert broken_links(path) == []
        assert "@import" not in path.read_text()


def test_a_report_beside_a_plan_leads_to_no_other_page(tmp_path):
    claim = settled("D1-1", note="By (9).")
    cells = [
        new_markdown_cell("# Title"),
        new_markdown_cell("By (9)."),
        shows({MIME: [claim.model_dump(mode="json")]}),
    ]
    page = html.write_report(executed(cells), tmp_path / "plan.html").read_text()
    assert not re.findall(r'href="(?!#|01_approximately_once.ipynb|data:)[^"]*', page)
    assert 'href="index.html"' in html.render_report(executed(cells))


def test_a_report_shows_what_its_reader_needs(done):
    page = (done[0] / "01_approximately_once.html").read_text()
    assert "<title>A tiny run of" in page
    assert "<b>D1</b> Approximately-once recovery" in page
    assert "profile <b>smoke</b>" in page
    assert "✔ 5 hold" in page
    assert "<td><b>3</b></td>" in page and "<td>number of workers</td>" in page
    assert '<a href="#a-figure">A figure</a>' in page
    assert page.count("<h1>") == 1
    assert '<tr id="claim-D1-5">' in page
    assert "<mfrac>" in page and "(7)" in page


def test_every_figure_links_to_the_code_that_draws_it(done):
    page = (done[0] / "01_approximately_once.html").read_text()
    cell = re.search(r'<a class="source screen-only" href="#(code-\d+)">', page)
    assert cell is not None
    code = page.split(f'id="{cell[1]}"')[1].split("</div></div>")[0]
    assert "Scatter" in code


def test_a_figures_data_cannot_end_its_script_element(done):
    page = (done[0] / "01_approximately_once.html").read_text()
    data = re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert data is not None and "<!--" not in data[1]
    assert json.loads(data[1])["layout"]["title"]["text"] == "</script> <!-- squares"


def test_a_failed_report_says_where(done):
    page = (done[0] / "02_failing.html").read_text()
    assert 'This run failed</strong> in <a href="#code-3">' in page
    assert "ZeroDivisionError: division by zero" in page
    assert "before" in page


def test_a_failure_in_the_first_cell_is_shown_too():
    error = new_output("error", ename="E", evalue="no", traceback=[])
    page = page_of(new_code_cell("1 / 0", outputs=[error]), error="E: no")
    assert 'This run failed</strong> in <a href="#code-0">cell 0</a>: E: no<br>' in page


def test_the_script_is_shared_and_repaired(done, tmp_path):
    shared = html.share_plotly(tmp_path)
    size = shared.stat().st_size
    assert size == (done[0] / "plotly.min.js").stat().st_size
    shared.write_text("cut off")
    assert html.share_plotly(tmp_path).stat().st_size == size


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"text/html": "<b>x</b>", "text/plain": "plain"}, '<div class="output wide"><b>x</b>'),
        ({"image/png": "aGk=\n"}, '<img src="data:image/png;base64,aGk="'),
        ({"image/jpeg": "aGk="}, '<img src="data:image/jpeg;base64,aGk="'),
        ({"image/svg+xml": "<?xml?><svg></svg>"}, '<div class="canvas"><svg></svg>'),
        ({"text/markdown": "**x**"}, "<strong>x</strong>"),
        ({"text/latex": "$$x^2$$"}, "<msup>"),
        ({"text/plain": "a < b"}, "<pre>a &lt; b</pre>"),
    ],
)
def test_each_kind_of_output_is_shown(data, shown):
    assert shown in page_of(shows(data))


def test_what_works_only_in_the_notebook_is_left_out():
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "HBox(…)"}
    page = page_of(shows(widget), shows({"application/x-unknown": "1"}), new_code_cell(""))
    assert "HBox" not in page and "x-unknown" not in page


def test_messages_hide_with_the_code_and_bars_show_their_last_state():
    stream = new_output("stream", name="stderr", text="10%\r100%\nnext")
    page = page_of(new_code_cell("x", outputs=[stream]))
    assert '<div class="messages"><pre>100%\nnext</pre></div>' in page


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (r"Sum $\Sigma_{Y|o}$.", ['<span class="nobreak"><math>']),
        (r"\begin{align}a&=b\\c&=d\end{align}", ["<math"]),
        (r"$\nonsense{x}$", [r">\nonsense{x}</code>", "Unknown command"]),
        ("| a |\n|---|\n| 1 |", ['<div class="wide"><table>']),
    ],
)
def test_prose_with_formulas_and_tables_needs_no_network(text, parts):
    shown = html.to_html(text)
    assert [part for part in parts if part not in shown] == [] and "$" not in shown
    assert ("<mtable" in shown) == ("align" in text)


def test_the_index_shows_each_report_and_claim(done):
    page = (done[0] / "index.html").read_text()
    assert '<a href="01_approximately_once.html">A <em>tiny</em> run of <math>' in page
    assert 'The first paragraph, <span class="nobreak"><math>' in page
    assert "failed:</strong> ZeroDivisionError: division by zero" in page
    assert 'href="01_approximately_once.html#claim-D1-3"' in page
    assert "<b>✔ 5</b>" in page and "What deviates" not in page


def test_the_index_leads_to_what_deviates(tmp_path):
    claims = [settled(f"D1-{i}", i, i == 1).with_run("01_x", "quick") for i in (1, 2)]
    page = write_index([], {}, claims, [], tmp_path / "index.html").read_text()
    (line,) = [line for line in page.splitlines() if 'class="deviating' in line]
    assert "D1-1" not in line and '<a href="#claim-D1-2">D1-2</a> The number of' in line
    assert 'not as recorded: <a href="#claim-D1-2">D1-2</a></span>' in page
    assert '<tr id="claim-D1-2">' in page


def test_the_index_lists_what_was_not_run_and_runs_of_ones_own(home, monkeypatch):
    by_hand = partial(execute_by_hand, cells=lambda values: FIRST[:2])
    monkeypatch.setattr(execute, "execute", by_hand)
    write_notebook(home / "notebooks" / "01_approximately_once.ipynb", [new_code_cell("m = 1")])
    path = write_notebook(home / "mine.ipynb", FIRST[:2])
    reproduce.run_alone(Notebook(path), {"m": "5"})
    page = (home / "reports" / "index.html").read_text()
    assert "not run yet" in page
    (run,) = runs.all_runs()
    assert f'<a href="runs/{run.name}/mine.html">{run.name}</a>' in page
    assert "<code>m=5</code>" in page
    claims = json.loads((home / "reports" / "claims.json").read_text())
    assert {claim["verdict"] for claim in claims} == {"not run"}


def test_the_index_says_when_a_report_is_older_than_the_code(done, tmp_path, monkeypatch):
    shutil.copytree(done[0].parent, tmp_path / "home")
    monkeypatch.setenv("AFT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(notebook, "library_hash", lambda: "changed")
    outcome = reproduce.conclude([])
    page = outcome.index.read_text()
    assert "<li>older than the code</li>" in page and '<article class="card old">' in page
    assert 'class="aft-earlier"' in page and "not run, 5 of them out of date" in page
    assert '<li class="aft-holds">✔ 5 hold</li>' in page  # grey, as all of the card's
    assert {claim.verdict for claim in outcome.claims} == {"not run"}


def dump_page(page: Path, folder: Path) -> str:
    """Return the page as a browser without network has it after its scripts ran."""
    command = [CHROMIUM, *export._FLAGS, f"--user-data-dir={folder}", "--dump-dom"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", page.as_uri()]
    return export.subprocess.run(command, capture_output=True, text=True, timeout=500).stdout


@needs_browser
@pytest.mark.slow
def test_a_browser_without_network_draws_the_figures_of_a_report(done, tmp_path):
    reports, _ = done
    page = dump_page(reports / "01_approximately_once.html", tmp_path / "a")
    assert 'data-drawn="yes"' in page and "js-plotly-plot" in page
    assert "Share chart" not in page
    alone = tmp_path / "alone.html"
    alone.write_bytes((reports / "01_approximately_once.html").read_bytes())
    page = dump_page(alone, tmp_path / "b")
    assert 'data-drawn="yes"' not in page
    assert '<p class="missing">This figure is drawn by plotly.min.js, which should lie' in page
