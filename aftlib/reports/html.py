"""An executed notebook as an HTML page that opens without network: prose, figures, tables.

Code is there but hidden, behind one switch, and every figure links to the cell that made it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import plotly
from markupsafe import Markup
from nbconvert.filters import Highlight2HTML, ansi2html
from nbformat import NotebookNode
from plotly.utils import PlotlyJSONEncoder

from aftlib.core.paths import atomic_file, notebooks_dir, reports_dir, write_whole
from aftlib.reports.claims import (
    MIME,
    SYMBOLS,
    ClaimRecord,
    Settled,
    claims_table,
    counted,
    not_default,
    tally,
)
from aftlib.reports.data_out import (
    PICTURES,
    PLOTLY,
    Shown,
    figure_csv,
    is_caption,
    shown_in,
    table_csv,
    table_latex,
)
from aftlib.reports.documents import CLAIMS, DOCUMENTS
from aftlib.reports.evidence import EVIDENCE, cited, figures_of, linked, title_of_figure
from aftlib.reports.executed import Executed
from aftlib.reports.markdown import mathml, slug, to_html, to_inline_html
from aftlib.reports.parameter_cell import read_parameters

TEMPLATES = Path(__file__).parent / "templates"
PLOTLY_SCRIPT = "plotly.min.js"
_HIGHLIGHT = Highlight2HTML(pygments_lexer="python")
_DEFAULT_HEIGHT = 450  # Plotly's own


def render(template: str, **values: Any) -> str:
    """Return a page made from `template`; texts are escaped unless marked as HTML."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    made = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    literal = partial(json.dumps, ensure_ascii=False, default=str)
    made.filters |= {"literal": literal, "counted": counted}
    words = (asset, duration, not_default, started, tally)
    made.globals |= {word.__name__: word for word in words} | {"symbols": SYMBOLS}
    return made.get_template(template).render(values)


def asset(name: str) -> Markup:
    """Return a style sheet or script of the templates folder, to be put into a page as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def write_report(executed: Executed, target: Path, root: str = "") -> Path:
    """Write the report of `executed` to `target`, and the Plotly script that all share.

    `root` leads from `target`'s final place to the folder of the script and the index. A report
    that is written elsewhere, such as beside a plan, stands alone: it leads to no other page.
    """
    alone = not root and target.parent.resolve() != reports_dir().resolve()
    page = render_report(executed, None if alone else root)
    share_plotly(reports_dir() if root else target.parent)
    return write_whole(target, page)


def share_plotly(folder: Path) -> Path:
    """Put the one copy of Plotly's script that all pages in `folder` use there, if not there."""
    source = Path(plotly.__file__).parent / "package_data" / PLOTLY_SCRIPT
    target = folder / PLOTLY_SCRIPT
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        with atomic_file(target) as scratch:
            shutil.copyfile(source, scratch)
    return target


def render_report(executed: Executed, root: str | None = "") -> str:
    """Return the page of `executed`, to lie where `root` leads to the index; None: to none."""
    parts, headings, failed, title_seen = [], [], None, False
    numbered = {(shown.cell, shown.output): shown for shown in shown_in(executed.content)}
    evidence = figures_of([s.id for s in executed.settled], numbered.values())
    document = {d.notebook: d for d in DOCUMENTS.values()}.get(executed.record["name"])
    for index, cell in enumerate(executed.content.cells):
        if is_caption(cell):
            continue  # it stands below its figure
        if cell.cell_type == "markdown":
            source = cell.source
            lines = source.splitlines()
            headings += [to_inline_html(ln[3:].strip()) for ln in lines if ln.startswith("## ")]
            if not title_seen and source.lstrip().startswith("# "):
                source, title_seen = source.lstrip().partition("\n")[2], True  # it is in the header
            source = source if root is None or not document else linked(source, document, root)
            parts.append(to_html(source, str(notebooks_dir()), cell.get("attachments")))
        elif cell.cell_type == "code" and cell.source.strip():
            shown = [
                _output(output, numbered.get((index, place)), executed, evidence, index, root)
                for place, output in enumerate(cell.outputs)
            ]
            head = f'<div class="code" id="code-{index}" data-cell="cell {index}">'
            parts.append(f"{head}{_HIGHLIGHT(cell.source)}</div>{''.join(shown)}")
            if failed is None and any(o.output_type == "error" for o in cell.outputs):
                failed = index

    return render(
        "report.html.j2",
        executed=executed,
        title=Markup(to_inline_html(executed.title)),
        document=document,
        root=root,
        home=root or "",
        known=read_parameters(executed.content),
        counts=tally(settled.verdict for settled in executed.settled),
        failed_cell=failed,
        sections=[(Markup(title), slug(title)) for title in headings],
        cites_figures=bool(document) and any("(fig" in part for part in parts),
        parts=[Markup(part) for part in parts if part],
        figures=any('class="plotly"' in part for part in parts),
    )


def started(record: Mapping[str, Any]) -> str:
    """Return when the run of `record` began, as ``2026-03-01 14:05 UTC``."""
    moment = datetime.fromisoformat(record["started"])
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def duration(seconds: float) -> str:
    """Return a duration as ``48 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _output(
    output: NotebookNode,
    shown: Shown | None,
    executed: Executed,
    evidence: Mapping[str, Shown],
    cell: int,
    root: str | None,
) -> str:
    if output.output_type == "error":
        trace = ansi2html("\n".join(output.traceback) or f"{output.ename}: {output.evalue}")
        return f'<div class="output"><pre>{trace}</pre></div>'
    if output.output_type == "stream":
        # A terminal leaves this: a carriage return starts its line again.
        text = "\n".join(ln.rstrip("\r").rpartition("\r")[2] for ln in output.text.split("\n"))
        kind = "messages" if output.name == "stderr" else "output text"
        return f'<div class="{kind}"><pre>{ansi2html(text)}</pre></div>'
    if MIME in output.data and not executed.error:  # the notebook knew no profile
        about = (executed.name, executed.profile, executed.changed)
        claims = [ClaimRecord.of(Settled(**line), *about) for line in output.data[MIME]]
        leads, pages = {}, {} if root is None else cited(claims, root)
        for id in (claim.id for claim in claims):
            links = [f'<a href="#code-{cell}">code of the verdict</a>']
            if figure := evidence.get(id):
                links.insert(0, f'<a href="#figure-{figure.number}">Figure {figure.number}</a>')
            links += [pages[id]] if id in pages else []
            formula = EVIDENCE[id].formula if id in EVIDENCE else ""
            if formula:
                formula = f'<span class="aft-formula">{mathml(formula, block=True)}</span>'
            leads[id] = f'<div class="aft-leads"><small>{" · ".join(links)}</small>{formula}</div>'
        return f'<div class="output wide">{claims_table(claims, evidence=leads)}</div>'
    inside = _shown(output.data)
    if shown is None or not inside:
        return inside
    settles = [id for id, figure in evidence.items() if figure == shown]
    return _numbered(inside, shown, executed.record["name"], settles)


def _shown(data: NotebookNode) -> str:
    """Return what a page shows of an output: the first of these kinds that it has."""
    if "application/vnd.jupyter.widget-view+json" in data:
        return ""  # such as a progress bar: it lives only while the notebook runs
    if PLOTLY in data:
        return plotly_box(data[PLOTLY])
    if "text/html" in data:
        return f'<div class="output wide">{data["text/html"]}</div>'
    if "image/svg+xml" in data:
        drawn = data["image/svg+xml"]
        return drawn[max(drawn.find("<svg"), 0) :]
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            source = f"data:{kind};base64,{''.join(data[kind].split())}"
            return f'<img src="{source}" alt="figure">'
    if "text/markdown" in data:
        return f'<div class="output">{to_html(data["text/markdown"])}</div>'
    if "text/latex" in data:
        formula = mathml(data["text/latex"].strip().strip("$"), block=True)
        return f'<div class="output formula-block">{formula}</div>'
    if "text/plain" in data:
        return f'<div class="output text"><pre>{escape(data["text/plain"])}</pre></div>'
    return ""


def plotly_box(figure: Mapping[str, Any]) -> Markup:
    """Return the part of a page in which its script draws a Plotly figure."""
    height = figure.get("layout", {}).get("height") or _DEFAULT_HEIGHT
    return Markup(
        f'<div class="plotly" style="min-height:{height:g}px"></div>'
        f'<script type="application/json">{in_script(figure)}</script>'
        '<noscript><p class="missing">This figure needs JavaScript, and plotly.min.js beside '
        "this page.</p></noscript>"
    )


def in_script(value: Any) -> str:
    """Return `value` as JSON for a script element; nothing in it looks like the element's end."""
    text = json.dumps(value, ensure_ascii=False, cls=PlotlyJSONEncoder)
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def _numbered(inside: str, shown: Shown, notebook: str, settles: Sequence[str]) -> str:
    """Return a figure or table with its number, its code and data below, and what it settles."""
    anchor, data = f"{shown.kind}-{shown.number}", shown.data
    name = f"{notebook}-{anchor}"
    code = f'<a class="source screen-only" href="#code-{shown.cell}">code of this {shown.kind}</a>'
    if shown.kind == "table":
        links = [_download(f"{name}.csv", "CSV", "text/csv", table_csv(data["text/html"]))]
        links += [_download(f"{name}.tex", "LaTeX", "text/x-tex", table_latex(data["text/html"]))]
    elif PLOTLY in data:
        links = [_download(f"{name}.csv", "CSV", "text/csv", figure_csv(data[PLOTLY]))]
        links += [
            f'<button type="button" data-save="{kind}" data-name="{name}">{kind.upper()}</button>'
            for kind in ("svg", "png")
        ]
    else:
        kind = next(kind for kind in PICTURES if kind in data)
        suffix = kind.rpartition("/")[2].partition("+")[0]
        links = [_download(f"{name}.{suffix}", suffix.upper(), kind, data[kind])]
    named, below = f"<b>{anchor.replace('-', ' ').capitalize()}</b>", "".join([*links, code])
    if shown.kind == "table":
        return f'<div id="{anchor}">{inside}<p class="aft-data">{named}{below}</p></div>'
    caption = to_inline_html(shown.caption)
    title = f"Figure {shown.number}: {title_of_figure(shown)}".removesuffix(": ")
    said = [re.sub(r"(?<![.?!])$", ".", title), Markup(caption).striptags()]
    said += [f"It settles {id}: {CLAIMS[id].statement}" for id in settles]
    label = escape(" ".join(filter(None, said)))
    leads = [
        f'<a class="nobreak" href="#claim-{id}" title="{escape(CLAIMS[id].statement)}">{id}</a>'
        for id in settles
    ]
    told = [named, caption, f"It settles {', '.join(leads)}." if leads else ""]
    return (
        f'<figure class="figure" id="{anchor}" aria-label="{label}">'
        f'<div class="canvas">{inside}</div><figcaption><p>{" ".join(filter(None, told))}</p>'
        f'<p class="aft-data">{below}</p></figcaption></figure>'
    )


def _download(name: str, label: str, kind: str, content: str) -> str:
    """Return a link that saves `content`, which it holds: it needs neither network nor script."""
    encoded = (
        f";base64,{''.join(content.split())}"
        if kind in ("image/png", "image/jpeg")
        else f";charset=utf-8,{quote(content, safe=' ,.:;/()=+-*|')}"
    )
    return f'<a class="screen-only" download="{name}" href="data:{kind}{encoded}">{label}</a>'
