"""An executed notebook as an HTML page that opens without network: prose, figures, tables.

Code is there but hidden, behind one switch, and every figure links to the cell that made it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

import jinja2
import plotly
from markupsafe import Markup
from nbconvert.filters import Highlight2HTML, ansi2html
from nbformat import NotebookNode

from aftlib.core.paths import atomic_file, notebooks_dir
from aftlib.reports.claims import SYMBOLS, tally
from aftlib.reports.documents import DOCUMENTS
from aftlib.reports.markdown import mathml, slug, to_html, to_inline_html
from aftlib.reports.parameters import read_parameters
from aftlib.reports.record import Executed

TEMPLATES = Path(__file__).parent / "templates"
PLOTLY = "application/vnd.plotly.v1+json"
PLOTLY_SCRIPT = "plotly.min.js"
_HIGHLIGHT = Highlight2HTML(pygments_lexer="python")
_DEFAULT_HEIGHT = 450  # Plotly's own


def environment() -> jinja2.Environment:
    """Return the template environment of all pages; texts are escaped unless marked as HTML."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    made = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    made.filters |= {"literal": _literal, "counted": _counted}
    return made


def asset(name: str) -> Markup:
    """Return a style sheet or script of the templates folder, to be put into a page as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def write_report(executed: Executed, target: Path) -> Path:
    """Write the report of `executed` to `target`, and the shared Plotly script beside it."""
    page = render_report(executed)
    share_plotly(target.parent)
    with atomic_file(target) as scratch:
        scratch.write_text(page, encoding="utf-8")
    return target


def share_plotly(folder: Path) -> Path:
    """Put the one copy of Plotly's script that all pages in `folder` use there, if not there."""
    source = Path(plotly.__file__).parent / "package_data" / PLOTLY_SCRIPT
    target = folder / PLOTLY_SCRIPT
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        with atomic_file(target) as scratch:
            shutil.copyfile(source, scratch)
    return target


def render_report(executed: Executed) -> str:
    """Return the page of `executed`."""
    cells = executed.content.cells
    parts = _parts(executed)
    template = environment().get_template("report.html.j2")
    return template.render(
        title=Markup(to_inline_html(executed.title)),
        document=_document(executed),
        record=executed.record,
        known=read_parameters(executed.content),
        started=started(executed),
        duration=duration(executed.record["seconds"]),
        counts=tally(settled.verdict for settled in executed.settled),
        error=executed.error,
        failed_cell=_failed_cell(cells),
        sections=_sections(cells),
        parts=parts,
        executed_link=executed.path.name,
        has_plotly=any('class="plotly"' in part for part in parts),
        css=asset("base.css") + asset("report.css"),
        js=asset("report.js"),
    )


def _document(executed: Executed) -> Any:
    name = executed.record["name"]
    return next((d for d in DOCUMENTS.values() if d.notebook == name), None)


def started(executed: Executed) -> str:
    """Return when the run began, as ``2026-03-01 14:05 UTC``."""
    moment = datetime.fromisoformat(executed.record["started"])
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def duration(seconds: float) -> str:
    """Return a duration as ``48 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _counted(verdict: str, count: int) -> str:
    word = verdict.removesuffix("s") if count > 1 else verdict
    return f"{SYMBOLS[verdict]} {count} {word}"


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _sections(cells: list[NotebookNode]) -> list[tuple[Markup, str]]:
    """Return the second-level headings as (HTML, anchor)."""
    lines = (line for c in cells if c.cell_type == "markdown" for line in c.source.splitlines())
    titles = (to_inline_html(line[3:].strip()) for line in lines if line.startswith("## "))
    return [(Markup(title), slug(title)) for title in titles]


def _failed_cell(cells: list[NotebookNode]) -> int | None:
    for index, cell in enumerate(cells):
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            return index
    return None


def _parts(executed: Executed) -> list[Markup]:
    parts, title_seen = [], False
    for index, cell in enumerate(executed.content.cells):
        if cell.cell_type == "markdown":
            source = cell.source
            if not title_seen and source.lstrip().startswith("# "):
                source, title_seen = source.lstrip().partition("\n")[2], True  # it is in the header
            parts.append(_prose(source, cell, notebooks_dir()))
        elif cell.cell_type == "code":
            parts.append(_code(cell, index))
    return [Markup(part) for part in parts if part]


def _prose(source: str, cell: NotebookNode, folder: Path) -> str:
    return to_html(source, str(folder), cell.get("attachments"))


def _code(cell: NotebookNode, index: int) -> str:
    if not cell.source.strip():
        return ""
    code = _HIGHLIGHT(cell.source)
    shown = [_output(output, index) for output in cell.outputs]
    return f'<div class="code" id="code-{index}" data-cell="cell {index}">{code}</div>' + "".join(
        shown
    )


def _output(output: NotebookNode, cell: int) -> str:
    if output.output_type == "error":
        trace = ansi2html("\n".join(output.traceback) or f"{output.ename}: {output.evalue}")
        return f'<div class="output"><pre>{trace}</pre></div>'
    if output.output_type == "stream":
        kind = "messages" if output.name == "stderr" else "output text"
        return f'<div class="{kind}"><pre>{ansi2html(_overwritten(output.text))}</pre></div>'
    for kind, show in _SHOWN.items():
        if kind in output.data:
            return show(output.data[kind], cell)
    return ""


def _overwritten(text: str) -> str:
    """Return `text` as a terminal leaves it: a carriage return starts its line again."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _figure(inside: str, cell: int) -> str:
    link = f'<a class="source screen-only" href="#code-{cell}">code of this figure</a>'
    return f'<figure class="figure">{inside}{link}</figure>'


def _plotly(figure: dict[str, Any], cell: int) -> str:
    height = figure.get("layout", {}).get("height") or _DEFAULT_HEIGHT
    # Nothing inside a script element may look like its end.
    data = (
        json.dumps(figure, ensure_ascii=False).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    )
    return _figure(
        f'<div class="canvas"><div class="plotly" style="min-height:{height:g}px"></div>'
        f'<script type="application/json">{data}</script>'
        '<noscript><p class="missing">This figure needs JavaScript, and plotly.min.js beside '
        "this page.</p></noscript></div>",
        cell,
    )


def _image(kind: str) -> Callable[[Any, int], str]:
    def show(data: str, cell: int) -> str:
        source = f"data:{kind};base64,{''.join(data.split())}"
        return _figure(f'<div class="canvas"><img src="{source}" alt="figure"></div>', cell)

    return show


def _svg(data: str, cell: int) -> str:
    return _figure(f'<div class="canvas">{data[max(data.find("<svg"), 0) :]}</div>', cell)


def _html(data: str, cell: int) -> str:
    return f'<div class="output wide">{data}</div>'


def _markdown(data: str, cell: int) -> str:
    return f'<div class="output">{to_html(data)}</div>'


def _latex(data: str, cell: int) -> str:
    body = data.strip().strip("$")
    return f'<div class="output formula-block">{mathml(body, block=True)}</div>'


def _nothing(data: Any, cell: int) -> str:
    return ""  # a widget, such as a progress bar, lives only while the notebook runs


def _text(data: str, cell: int) -> str:
    return f'<div class="output text"><pre>{escape(data)}</pre></div>'


# What a page shows of an output: the first of these kinds that it has.
_SHOWN: dict[str, Callable[[Any, int], str]] = {
    "application/vnd.jupyter.widget-view+json": _nothing,
    PLOTLY: _plotly,
    "text/html": _html,
    "image/svg+xml": _svg,
    "image/png": _image("image/png"),
    "image/jpeg": _image("image/jpeg"),
    "text/markdown": _markdown,
    "text/latex": _latex,
    "text/plain": _text,
}
