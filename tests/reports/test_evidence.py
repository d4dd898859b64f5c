"""A claim leads to its figure, its code and its formula, and the figure back to the claim."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from aftlib.reports import html
from aftlib.reports.data_out import PLOTLY
from aftlib.reports.documents import DOCUMENTS, all_claims, cited, linked
from aftlib.reports.html import write_documents
from aftlib.workbench.pages import why_and_rest
from aftlib.workbench.scorecard import MIME
from tests.tiny_project import executed, settled, shows

LIBRARY = Path(html.__file__).parents[1]


CLAIMS = list(all_claims().values())


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_names_a_figure_and_a_formula_that_are_there(claim):
    document = DOCUMENTS[claim.document]
    cells = json.loads((LIBRARY.parent / "notebooks" / f"{document.notebook}.ipynb").read_text())
    texts = ["".join(cell["source"]) for cell in cells["cells"]]
    texts += [path.read_text() for path in LIBRARY.glob(f"{document.package}/**/*.py")]
    # without one, the claim's line leads to the code of the verdict, which is below its table
    assert not claim.figure or any(f'"{claim.figure}' in text for text in texts)
    assert 'class="formula"' not in html.mathml(claim.formula, block=True)
    page = document.source.read_text()
    for number in re.findall(r"\\tag\{(\d+)\}", claim.formula):
        assert f'id="eq-{number}"' in page and f"$${claim.formula}$$" in page


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=lambda document: document.id)
def test_a_notebook_assigns_every_frame_that_its_claims_need(document):
    cells = json.loads((LIBRARY.parent / "notebooks" / f"{document.notebook}.ipynb").read_text())
    code = ["".join(c["source"]) for c in cells["cells"] if c["cell_type"] == "code"]
    assigned = {
        node.id
        for node in ast.walk(ast.parse("\n".join(code)))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    claims = [claim for claim in CLAIMS if claim.document == document.id]
    assert set().union(*(inspect.signature(claim.judge).parameters for claim in claims)) <= assigned


def test_claim_and_figure_lead_to_each_other():
    claims = [settled("D1-1", figure="Squares", formula=r"a^2 \tag{9}")]
    claims += [settled("D1-2", figure="No such figure", formula="")]
    figure = {"data": [], "layout": {"title": {"text": "<b>Squares</b> of m"}}}
    other = {"data": [], "layout": {"title": {"text": "Another (fig. 3)"}}}
    says = new_markdown_cell("It *grows*: $m < m^2$.", metadata={"tags": ["caption"]})
    cells = [shows({PLOTLY: other}), shows({PLOTLY: figure}), says]
    cells.append(shows({MIME: [claim.model_dump(mode="json") for claim in claims]}))
    page = html.render_report(executed(cells), "../")
    first, second = page.split('id="claim-D1-')[1:]
    assert '<a href="#figure-2">Figure 2</a> · <a href="#code-3">code' in first and "<math" in first
    assert 'href="../documents/d1.html#eq-9">equation (9)</a></small>' in first
    assert "#figure" not in second and '<a href="#code-3">code of the verdict</a>' in second
    assert 'href="../documents/d1.html">what D1 says</a></small>' in second
    figures = page.split('<figure class="figure"')[1:]
    assert "settles" not in figures[0] and 'aria-label="Figure 1: Another (fig. 3)."' in figures[0]
    assert "in a title is the document's own figure" in page
    assert 'aria-label="Figure 2: Squares of m. It grows: ' in figures[1]
    assert re.search(r'aria-label="[^"]*\. It settles D1-1: ', figures[1])
    assert "<b>Figure 2</b> It <em>grows</em>: " in figures[1]
    assert 'It settles <a class="nobreak" href="#claim-D1-1" title=' in figures[1]
    assert page.count("<em>grows</em>") == 1  # below its figure, and not as prose once more


def test_a_caption_without_its_figure_is_left_out():
    says = new_markdown_cell("It grows.", metadata={"tags": ["caption"]})
    assert "It grows" not in html.render_report(executed([new_code_cell("m = 1"), says]))
    table = shows({"text/html": "<table><tr><td>1</td></tr></table>"})
    assert "It grows" not in html.render_report(executed([table, says]))


def test_equations_that_a_note_names_are_linked_where_the_page_has_them(monkeypatch, home):
    claim = settled("D1-1", formula=r"R \tag{7}", note="By (9), f(3); (7), (12) too.")
    assert cited([claim]) == {}  # a project without docs
    monkeypatch.delenv("AFT_HOME")
    assert re.findall("#eq-([0-9]+)", cited([claim])["D1-1"]) == ["7", "9"]


def test_equations_in_prose_lead_to_the_page():
    text = "the rate of (9), $P(9)$, f(9), as (55) or 1 (9)"
    links = linked(text, DOCUMENTS["D1"], "../")
    assert links == text.replace("of (9)", "of [(9)](../documents/d1.html#eq-9)")
    cells = [new_markdown_cell("# T\n\nIt"), new_markdown_cell("The rate by (9).")]
    assert '<a href="documents/d1.html#eq-9">(9)</a>' in html.render_report(executed(cells))


def test_pages_of_documents_open_without_network(tmp_path):
    write_documents(tmp_path)
    pages = {path.stem: path.read_text() for path in tmp_path.glob("*.html")}
    assert set(pages) == {document.page for document in DOCUMENTS.values()}
    for page in pages.values():
        assert 'class="formula"' not in page and "<math" in page
        assert not re.findall(r"""(?:src|href)=.?https?:|src=(?!"data:)|\.md\b|<script""", page)
    assert '<td><a href="../01_approximately_once.html#claim-D1-1">D1-1</a></td>' in pages["d1"]


@pytest.mark.parametrize(
    ("note", "why", "rest"),
    [
        ("", "", ""),
        ("Short.", "Short.", ""),
        ("It is 1.5 of N. Then more. And more.", "It is 1.5 of N.", "Then more. And more."),
        (
            f"{'word ' * 20}end, {'then ' * 20}over. More.",
            f"{'word ' * 20}end …",
            f"… {'then ' * 20}over. More.",
        ),
        (f"{'word ' * 30}end. More.", f"{'word ' * 30}end.", "More."),
    ],
)
def test_of_a_note_the_first_sentence_is_shown(note, why, rest):
    assert why_and_rest(note) == (why, rest)
