"""Pages that open without network: reports of executed notebooks, and the documents' pages.

A report's code is hidden behind one switch, and every figure links to the cell that draws it.
Formulas are MathML, which browsers set without a script.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import plotly
from markupsafe import Markup
from math_core import LatexError, LatexToMathML
from nbconvert.filters import Highlight2HTML, ansi2html
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from plotly.utils import PlotlyJSONEncoder

from aftlib.core.paths import atomic_file, notebooks_dir, reports_dir, write_whole
from aftlib.reports.data_out import (
    PICTURES,
    PLOTLY,
    TABLE,
    WIDGET,
    Shown,
    is_caption,
    shown_in,
    table_csv,
    table_latex,
)
from aftlib.reports.documents import DOCUMENTS, Document, all_claims, cited, linked, with_all_claims
from aftlib.reports.figure_data import figure_csv, plain_text
from aftlib.reports.parameter_cell import read_parameters
from aftlib.reports.runs import Executed
from aftlib.workbench.pages import render, slug, tally
from aftlib.workbench.scorecard import MIME, ClaimRecord, claims_table

PLOTLY_SCRIPT = "plotly.min.js"
_HIGHLIGHT = Highlight2HTML(pygments_lexer="python")
_DEFAULT_HEIGHT = 450  # Plotly's own
_LATEX = LatexToMathML(fancy_error=False, xml_namespace=False)


class _Markdown(IPythonRenderer):
    """Markdown of this project's authors, so raw HTML in it is passed through."""

    def heading(self, text: str, level: int, **attrs: object) -> str:
        anchor = slug(text)
        link = f'<a class="anchor" href="#{anchor}" aria-label="link to this section">#</a>'
        return f'<h{level} id="{anchor}">{text}{link}</h{level}>\n'

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def paragraph(self, text: str) -> str:
        # No line breaks between a formula and the punctuation that follows.
        nobreak = r'<span class="nobreak">\1\2</span>'
        joined = re.sub(r"(<math>(?:(?!</math>).)*</math>)([.,;:!?)]+)", nobreak, text)
        return str(super().paragraph(joined))

    def block_math(self, body: str) -> str:
        return f'<span class="formula-block">{mathml(body, block=True)}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(rf"\begin{{{name}}}{body}\end{{{name}}}")

    def table(self, text: str) -> str:
        return f'<div class="wide"><table>{text}</table></div>\n'


def mathml(latex: str, block: bool = False) -> str:
    r"""Return `latex` as MathML; an unreadable formula stays source, with the reason as title.

    A ``\tag`` in a displayed formula works as it does in Jupyter.
    """
    source = latex.strip()
    if block and r"\tag" in source and not source.startswith(r"\begin{"):
        source = rf"\begin{{equation}}{source}\end{{equation}}"
    try:
        return _LATEX.convert_with_local_state(source, displaystyle=block)
    except LatexError as error:
        return f'<code class="formula" title="{escape(str(error))}">{escape(latex)}</code>'


def to_html(text: str, folder: str = "", attachments: dict | None = None) -> Markup:
    """Return Markdown `text` as HTML, with pictures (relative to `folder`) put into the page."""
    renderer = _Markdown(
        escape=False, embed_images=True, path=folder, attachments=attachments or {}
    )
    return Markup(MarkdownWithMath(renderer=renderer).render(text))


def to_inline_html(text: str) -> Markup:
    """Return one paragraph of Markdown as HTML without its ``<p>``."""
    return Markup(to_html(text).strip().removeprefix("<p>").removesuffix("</p>"))


def plotly_box(figure: Mapping[str, Any]) -> Markup:
    """Return the part of a page in which its script draws a Plotly figure."""
    height = figure.get("layout", {}).get("height") or _DEFAULT_HEIGHT
    return Markup(
        f'<div class="plotly" style="min-height:{height:g}px"></div>'
        f'<script type="application/json">{in_script(figure)}</script>'
        '<noscript><p class="missing">This figure needs JavaScript, and plotly.min.js next to '
        "this page.</p></noscript>"
    )


def in_script(value: Any) -> str:
    """Return `value` as JSON for a script element; nothing in it looks like the element's end."""
    text = json.dumps(value, ensure_ascii=False, cls=PlotlyJSONEncoder)
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def share_plotly(folder: Path) -> Path:
    """Copy Plotly's script, which the pages in `folder` share, to `folder`; return the copy's path.

    If a file of its size is there, nothing is copied.
    """
    source = Path(plotly.__file__).parent / "package_data" / PLOTLY_SCRIPT
    target = folder / PLOTLY_SCRIPT
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        with atomic_file(target) as scratch:
            shutil.copyfile(source, scratch)
    return target


def title_of_figure(shown: Shown) -> str:
    """Return the title of a figure as plain text, empty where it has none."""
    title = shown.data.get(PLOTLY, {}).get("layout", {}).get("title") or ""
    return plain_text(title if isinstance(title, str) else title.get("text") or "")


def figures_of(claims: Iterable[ClaimRecord], shown: Iterable[Shown]) -> Mapping[str, Shown]:
    """Return, by claim, the claim's figure in the report; claims without a figure are left out."""
    titled = [(title_of_figure(one), one) for one in shown if one.kind == "figure"]
    by_claim = {}
    for claim in claims:
        figures = (one for title, one in titled if title.startswith(claim.figure))
        if claim.figure and (figure := next(figures, None)):
            by_claim[claim.id] = figure
    return by_claim


def render_document(document: Document, text: str, reports: str | None = None) -> Markup:
    """Return Markdown `text` from the page of `document` as HTML, for reports and ``make docs``.

    With `reports`, the path to the folder of the reports, each claim links to its line there.
    """
    text = with_all_claims(text, document)
    text = re.sub(r"\]\((\w+)\.md\)", r"](\1.html)", text).replace("](../../", "](")
    for id, claim in all_claims().items() if reports is not None else ():
        link = f"{reports}{DOCUMENTS[claim.document].notebook}.html#claim-{id}"
        text = text.replace(f"\n| {id} |", f"\n| [{id}]({link}) |")
    return to_html(text, str(document.source.parents[2]))


def write_documents(folder: Path) -> None:
    """Write the page of each document that has one into `folder`, inside the reports' folder."""
    for document in DOCUMENTS.values():
        if document.source.exists():
            text = document.source.read_text(encoding="utf-8")
            body = render_document(document, text, "../")
            page = render("document.html.j2", title=document.title, body=body)
            write_whole(folder / f"{document.page}.html", page)


def write_report(executed: Executed, target: Path, root: str = "") -> Path:
    """Write the report of `executed` to `target`, and the Plotly script that all reports share.

    `root` is the path from `target`'s final place to the folder of the script and the index. A
    report that is written elsewhere, such as next to a plan, has no links to other pages.
    """
    alone = not root and target.parent.resolve() != reports_dir().resolve()
    page = render_report(executed, None if alone else root)
    share_plotly(reports_dir() if root else target.parent)
    return write_whole(target, page)


def render_report(executed: Executed, root: str | None = "") -> str:
    """Return the page of `executed`; `root` is the path to the index, None without index."""
    content, shown = executed.content, shown_in(executed.content)
    document = {d.notebook: d for d in DOCUMENTS.values()}.get(executed.record["name"])
    evidence = figures_of(executed.settled, shown)
    prose = [c for c in content.cells if c.cell_type == "markdown" and not is_caption(c)]
    title = next((c for c in prose if c.source.lstrip().startswith("# ")), None)
    headings = [ln[3:].strip() for c in prose for ln in c.source.splitlines() if ln[:3] == "## "]
    errors = [i for i, cell in enumerate(content.cells) for output in cell.get("outputs", [])
              if output.output_type == "error"]  # fmt: skip
    cells: list[dict[str, Any]] = []
    for index, cell in enumerate(content.cells):
        if cell.cell_type == "code" and cell.source.strip():
            outputs = [
                _scorecard(output.data[MIME], executed, evidence, index, root)
                if MIME in output.get("data", {}) and not executed.error
                else _output(output, [s for s in shown if (s.cell, s.output) == (index, place)])
                for place, output in enumerate(cell.outputs)
            ]
            code = Markup(_HIGHLIGHT(cell.source))
            cells.append({"index": index, "code": code, "outputs": outputs})
        elif any(cell is one for one in prose):
            source = cell.source
            if cell is title:  # it is in the header
                source = source.lstrip().partition("\n")[2]
            if document and root is not None:
                source = linked(source, document, root)
            cells.append({"prose": to_html(source, str(notebooks_dir()), cell.get("attachments"))})
    return render(
        "report.html.j2",
        executed=executed,
        title=to_inline_html(executed.title),
        document=document,
        root=root,
        home=root or "",
        known=read_parameters(content),
        counts=tally(settled.verdict for settled in executed.settled),
        failed_cell=next(iter(errors), None),
        sections=[to_inline_html(heading) for heading in headings],
        cites_figures=bool(document) and "(fig" in str(cells),
        cells=cells,
        figures=any(PLOTLY in one.data for one in shown),
        settles={figure.number: [id for id in evidence if evidence[id] is figure]
                 for figure in evidence.values()},
        claims={claim.id: claim for claim in executed.settled},
    )  # fmt: skip


def _scorecard(
    lines: list[Mapping[str, Any]],
    executed: Executed,
    evidence: Mapping[str, Shown],
    cell: int,
    root: str | None,
) -> dict[str, Any]:
    """Return the table of settled claims, each with links to its figure and equations."""
    about = (executed.name, executed.profile, executed.changed)  # the notebook knew no profile
    claims = [ClaimRecord(**line).with_run(*about) for line in lines]
    pages, leads = {} if root is None else cited(claims, root), {}
    for claim in claims:
        id, formula = claim.id, claim.formula
        links = [f'<a href="#code-{cell}">code of the verdict</a>']
        if figure := evidence.get(id):
            links.insert(0, f'<a href="#figure-{figure.number}">Figure {figure.number}</a>')
        links += [pages[id]] if id in pages else []
        if formula:
            formula = f'<span class="aft-formula">{mathml(formula, block=True)}</span>'
        leads[id] = f'<div class="aft-leads"><small>{" · ".join(links)}</small>{formula}</div>'
    return {
        "html": Markup(f'<div class="output wide">{claims_table(claims, evidence=leads)}</div>')
    }


def _output(output: NotebookNode, shown: list[Shown]) -> dict[str, Any]:
    """Return an output as HTML; a figure or table with its number, title, caption and data."""
    if output.output_type == "error":
        trace = ansi2html("\n".join(output.traceback) or f"{output.ename}: {output.evalue}")
        return {"html": Markup(f'<div class="output"><pre>{trace}</pre></div>')}
    if output.output_type == "stream":
        # As in a terminal, a carriage return starts its line again.
        text = "\n".join(ln.rstrip("\r").rpartition("\r")[2] for ln in output.text.split("\n"))
        kind = "messages" if output.name == "stderr" else "output text"
        return {"html": Markup(f'<div class="{kind}"><pre>{ansi2html(text)}</pre></div>')}
    values: dict[str, Any] = {"html": _rich(output.data)}
    for one in shown:
        values |= {"shown": one, "title": title_of_figure(one), "downloads": _downloads(one)}
        values |= {"caption": to_inline_html(one.caption), "plotly": PLOTLY in one.data}
    return values


def _rich(data: NotebookNode) -> Markup:
    """Return an output as HTML, from the first kind of data below that it has."""
    if WIDGET in data:
        return Markup()  # such as a progress bar, which works only while the notebook runs
    if PLOTLY in data:
        return plotly_box(data[PLOTLY])
    kind = next((kind for kind in _AS_HTML if kind in data), None)
    return Markup(_AS_HTML[kind](data[kind]) if kind else "")


_AS_HTML: dict[str, Callable[[str], str]] = {
    "text/html": lambda html: f'<div class="output wide">{html}</div>',
    "image/svg+xml": lambda drawn: drawn[max(drawn.find("<svg"), 0) :],
    "image/png": lambda png: f'<img src="{_uri("image/png", png)}" alt="figure">',
    "image/jpeg": lambda jpeg: f'<img src="{_uri("image/jpeg", jpeg)}" alt="figure">',
    "text/markdown": lambda text: f'<div class="output">{to_html(text)}</div>',
    "text/latex": lambda latex: (
        f'<div class="output formula-block">{mathml(latex.strip().strip("$"), block=True)}</div>'
    ),
    "text/plain": lambda text: f'<div class="output text"><pre>{escape(text)}</pre></div>',
}


def _downloads(shown: Shown) -> dict[str, str]:
    """Return the data of a figure or table by file suffix, as data URLs."""
    data = shown.data
    if TABLE in data:
        tables = {"csv": ("text/csv", table_csv(data)), "tex": ("text/x-tex", table_latex(data))}
        return {suffix: _uri(*content) for suffix, content in tables.items()}
    if PLOTLY in data:
        return {"csv": _uri("text/csv", figure_csv(data[PLOTLY]))}
    pictures = [kind for kind in PICTURES if kind in data and shown.kind == "figure"]
    return {k.rpartition("/")[2].partition("+")[0]: _uri(k, data[k]) for k in pictures[:1]}


def _uri(kind: str, content: str) -> str:
    """Return `content` as a data URL, which needs neither network nor script."""
    if kind in ("image/png", "image/jpeg"):
        return f"data:{kind};base64,{''.join(content.split())}"
    return f"data:{kind};charset=utf-8,{quote(content, safe=' ,.:;/()=+-*|')}"
