"""Reports: one page per executed notebook, which opens without a network."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any

import plotly
from jinja2 import pass_context
from markupsafe import Markup
from math_core import LatexError, LatexToMathML
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell
from plotly.io import to_html

from aftlib.command.batch import Executed
from aftlib.command.documents import Document
from aftlib.core.storage import write_whole
from aftlib.notebook.claims import NOT_RUN
from aftlib.notebook.scorecard import MIME, ClaimRecord, claims_table, count_text, tally
from aftlib.notebook.texts import render

PLOTLY = "application/vnd.plotly.v1+json"
PLOTLY_SCRIPT = "plotly.min.js"
TEMPLATES = Path(__file__).with_name("templates")
HEADINGS = ("Claimed", "Found", "How sure", "Where it stops")
_LATEX = LatexToMathML(fancy_error=False, xml_namespace=False)


class Markdown(IPythonRenderer):
    """Markdown with formulas as MathML, which browsers set without a script."""

    def inline_math(self, body: str) -> str:
        """Return a formula inside a line."""
        return mathml(body)

    def block_math(self, body: str) -> str:
        """Return a displayed formula."""
        return f'<div class="formula">{mathml(body, block=True)}</div>'


def mathml(latex: str, block: bool = False) -> str:
    r"""Return `latex` as MathML; a formula that cannot be set stays source.

    A ``\tag`` in a displayed formula works as it does in Jupyter.
    """
    source = latex.strip()
    if block and r"\tag" in source and not source.startswith(r"\begin{"):
        source = rf"\begin{{equation}}{source}\end{{equation}}"
    try:
        return _LATEX.convert_with_local_state(source, displaystyle=block)
    except LatexError as error:
        return f'<code title="{escape(str(error))}">{escape(latex)}</code>'


def without_title(figure: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a figure without its title, and the title: on a phone it would lie on the legend."""
    layout = dict(figure.get("layout", {}))
    title = layout.pop("title", {}).get("text", "")
    layout["margin"] = layout.get("margin", {}) | {"t": 40}
    return {**figure, "layout": layout}, title


def is_broad(layout: Mapping[str, Any]) -> bool:
    """Whether a figure has panels or a legend side by side, so that a phone has to scroll it."""
    return "xaxis2" in layout or layout.get("legend", {}).get("orientation", "h") != "h"


class Texts(Preprocessor):
    """Turns texts that code made into cells of Markdown, so that reports set both alike."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Return the notebook with a cell of Markdown for each text, in the outputs' order."""
        cells = []
        for cell in nb.cells:
            cells.append(cell)
            outputs = cell.get("outputs", [])
            if any(text_kind(output) for output in outputs):
                cell.outputs = []
                cells += _split_texts(outputs)
        nb.cells = cells
        return nb, resources


def text_kind(output: NotebookNode) -> str:
    """Return the kind of a `notebook.style.Text`; empty for any other output."""
    return output.get("metadata", {}).get("aft", {}).get("text", "")


def _split_texts(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Return a cell for each output: of Markdown for a text, of code without source for others."""
    return [
        new_markdown_cell(output.data["text/markdown"], metadata={"tags": [text_kind(output)]})
        if text_kind(output)
        else new_code_cell(outputs=[output])
        for output in outputs
    ]


class Figures(Preprocessor):
    """Adds to each Plotly output the HTML that draws it, which nbconvert lacks, and its number.

    A notebook's own table of claims gives way to the one of its records, and columns of texts are
    marked in other tables.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Return the notebook with HTML for its figures and claims."""
        name = nb.metadata.get("aft", {}).get("name", "report")
        number = 0
        for cell in nb.cells:
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                if PLOTLY in data:
                    number += 1
                    data["text/html"] = self.draw(data[PLOTLY], number, name)
                elif MIME in data:
                    records = [ClaimRecord(**line) for line in data[MIME]]
                    data["text/html"] = f'<div class="wide">{claims_table(records)}</div>'
                elif "text/html" in data:
                    data["text/html"] = mark_text_columns(data["text/html"])
        return nb, resources

    def draw(self, figure: Mapping[str, Any], number: int, notebook: str) -> str:
        """Return the HTML of a figure, with an anchor at its numbered title.

        The camera in its corner saves a picture of vectors, for papers.
        """
        picture = {"format": "svg", "filename": f"{notebook}-figure-{number}"}
        figure, title = without_title(figure)
        drawn = to_html(
            figure,
            config={"responsive": True, "displaylogo": False, "toImageButtonOptions": picture},
            include_plotlyjs=False,
            full_html=False,
            validate=False,
            div_id=f"plot-{number}",
        )
        wide = ' class="aft-broad"' if is_broad(figure["layout"]) else ""
        return f"{show_title(number, escape(title))}<div{wide}>{drawn}</div>"


def show_title(number: int, title: str) -> str:
    """Return the HTML of a figure's title, with its number and an anchor."""
    label = f'<a href="#figure-{number}">Figure {number}.</a>'
    return f'<p class="aft-title" id="figure-{number}">{label} {title}</p>'


_CELL = re.compile(
    r'(<t[dh][^>]*class="[^"]*\bcol(\d+)\b)([^"]*"[^>]*>)(.*?)(?=</t[dh]>)', re.DOTALL
)
_NUMBER = re.compile(r"[-−+×~≤≥±]?\s*[\d.]+.*|inf|nan|∞|–|", re.DOTALL)


def mark_text_columns(table: str) -> str:
    """Return a table of pandas' `Styler` in which the columns of texts have a class.

    Texts begin at the left, and numbers end at the right, each like its heading.
    """
    cells = [match for match in _CELL.finditer(table) if match[1].startswith("<td")]
    texts = {match[2] for match in cells if not _NUMBER.fullmatch(unescape(match[4]).strip())}

    def mark(match: re.Match[str]) -> str:
        text = " aft-text" * (match[2] in texts)
        return f"{match[1]}{text}{match[3]}{match[4]}"

    return _CELL.sub(mark, table)


class Report(HTMLExporter):
    """nbconvert's cells without its page: code, outputs and prose."""

    template_name = "basic"
    preprocessors = [Texts, Figures]

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        """Return Markdown of a notebook's author, so raw HTML in it is passed through."""
        renderer = Markdown(escape=False, anchor_link_text="")
        return MarkdownWithMath(renderer=renderer).render(source)


def write_report(executed: Executed, target: Path, document: Document | None = None) -> Path:
    """Write the report of `executed` as `target`, with Plotly's script beside it."""
    shutil.copyfile(plotly_script(), target.with_name(PLOTLY_SCRIPT))
    return write_whole(target, render_report(executed, document, Report(), PLOTLY_SCRIPT))


def plotly_script() -> Path:
    """Return the file of Plotly's script."""
    return Path(plotly.__file__).parent / "package_data" / PLOTLY_SCRIPT


def render_report(
    executed: Executed, document: Document | None, exporter: Report, script: str = ""
) -> str:
    """Return the page of `executed`; with a script, it links the executed notebook, too."""
    title, content = split_title(executed.content)
    body, _ = exporter.from_notebook_node(content)
    claims = executed.claims
    return render(
        TEMPLATES,
        "page.html.j2",
        title=title or executed.path.stem,
        document=document,
        record=executed.record,
        values=list_parameters(executed, document),
        box=fill_summary(document, executed, claims) if document else None,
        counts=tally(claim.verdict for claim in claims),
        count_text=count_text,
        body=Markup(body),
        script=script,
        notebook=executed.path.name,
        home=document is not None,
    )


def split_title(content: NotebookNode) -> tuple[Markup, NotebookNode]:
    """Return the heading of the first cell as HTML, and a copy of the notebook without it."""
    content = copy.deepcopy(content)
    first = content.cells[0] if content.cells else None
    if first is None or first.cell_type != "markdown" or not first.source.startswith("# "):
        return Markup(), content
    title, _, first.source = first.source.removeprefix("# ").partition("\n")
    html = MarkdownWithMath(renderer=Markdown(escape=False)).render(title)
    return Markup(html.strip().removeprefix("<p>").removesuffix("</p>")), content


def list_parameters(executed: Executed, document: Document | None) -> list[tuple[str, str, str]]:
    """Return name, value and meaning of each parameter of the run."""
    fields = document.parameters.model_fields if document else {}
    defaults = {name: field.default for name, field in fields.items()}
    values = defaults | executed.record["parameters"]
    return [
        (name, json.dumps(value, ensure_ascii=False), getattr(fields.get(name), "description", ""))
        for name, value in values.items()
    ]


def fill_summary(
    document: Document, executed: Executed, claims: Sequence[ClaimRecord]
) -> list[tuple[str, str]] | None:
    """Return the sentences of a run's box with their headings.

    None if a value that the box needs has not been measured.
    """
    records = {claim.id: claim for claim in claims if claim.verdict != NOT_RUN}
    if not records:
        return None
    try:
        summary = document.summarize(records, executed.record["parameters"])
    # not run, or a number that a tiny run did not reach ("none")
    except (KeyError, TypeError, ValueError):
        return None
    return [*zip(HEADINGS, vars(summary).values(), strict=True)]
