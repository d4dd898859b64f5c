"""The front pages of all reports: ``index.html``, and ``README.md`` with a picture a document."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from aftlib.core.paths import require_writable, write_whole
from aftlib.reports.browser import draw_plotly, find_browser
from aftlib.reports.claims import (
    SYMBOLS,
    ClaimRecord,
    claims_table,
    not_default,
    shown,
    shown_interval,
    tally,
    unexpected,
)
from aftlib.reports.data_out import PLOTLY
from aftlib.reports.documents import DOCUMENTS
from aftlib.reports.evidence import cited
from aftlib.reports.html import duration, render, to_inline_html
from aftlib.reports.notebook import Notebook, summary_of, title_of
from aftlib.reports.runs import Executed, Run, runs_dir
from aftlib.reports.sweeps import over_seeds

PICTURE = "picture"  # tag of the cell whose output is drawn
PICTURES = "pictures"


def write_index(
    notebooks: Sequence[Notebook],
    reports: Mapping[str, Executed],
    claims: Sequence[ClaimRecord],
    runs: Sequence[Run],
    target: Path,
) -> Path:
    """Write the index of `reports` with the scorecard `claims` and own `runs`; return `target`."""
    ran = [claim for claim in claims if claim.verdict != "not run"]
    stable = {
        id: text
        for notebook in notebooks
        for id, text in over_seeds(notebook, reports.get(notebook.name), runs).items()
    }
    tables = []
    for document in DOCUMENTS.values():
        group = [claim for claim in claims if claim.document == document.id]
        if group:
            leads = {id: f"<small>{links}</small>" for id, links in cited(group).items()}
            tables.append((document, Markup(claims_table(group, True, stable, leads))))

    page = render(
        "index.html.j2",
        cards=[_card(n, reports.get(n.name), claims) for n in notebooks],
        counts=tally(claim.verdict for claim in claims),
        deviating=[claim for claim in ran if claim.verdict == "deviates"],
        surprises=unexpected(claim for claim in ran if not claim.changed),
        changed=sum(bool(claim.changed) for claim in ran),
        old=sum(bool(claim.earlier) for claim in claims),
        tables=tables,
        own=[run for run in runs if not run.record["profile"]],
        sweeps=sorted(f"{p.parent.name}/{p.name}" for p in runs_dir().glob("*/sweep-*.html")),
    )
    return write_whole(target, page)


def _card(
    notebook: Notebook, executed: Executed | None, claims: Sequence[ClaimRecord]
) -> dict[str, Any]:
    content = executed.content if executed else notebook.content
    number, document = notebook.name.split("_")[0], notebook.document
    mine = [claim for claim in claims if claim.notebook == notebook.name]
    if executed is None:
        chips = ["not run yet"]
    else:
        chips = [f"profile {executed.profile}", duration(executed.record["seconds"])]
        chips += not_default(executed.changed)
        chips += [] if executed.is_current(notebook) else ["older than the code"]
    return {
        "tag": f"{number} · {document}" if document else number,
        "title": Markup(to_inline_html(title_of(content, notebook.name))),
        "summary": Markup(to_inline_html(summary_of(content))),
        "link": f"{notebook.name}.html" if executed else None,
        "error": executed.error if executed else None,
        "chips": chips,
        "counts": tally(claim.earlier or claim.verdict for claim in mine),
        "old": any(claim.earlier for claim in mine),
    }


def write_readme(
    reports: Mapping[str, Executed], claims: Sequence[ClaimRecord], target: Path
) -> Path:
    """Write ``README.md`` for whoever only browses files: scorecard, and pictures that lie beside.

    It shows `reports` by name, each with its picture, if there is one, and its claims.
    """
    profiles = ", ".join(sorted({executed.profile for executed in reports.values()}))
    counts = tally(claim.verdict for claim in claims)
    totals = ", ".join(f"{SYMBOLS[v]} {count} {v}" for v, count in counts.items() if count)
    parts = [
        "# Scorecard",
        f"Made by `aft reproduce` (profile {profiles}), not by hand: run it to get the "
        "reports themselves, as `index.html` in this folder.",
        totals or "No claims yet.",
    ]
    for name, executed in sorted(reports.items()):
        parts += [f"## {executed.title}", executed.summary]
        if executed.error:
            parts.append(f"**This notebook failed:** `{executed.error}`")
        picture = picture_path(target.parent, name)
        if picture.exists():
            parts.append(f"![{executed.title}]({PICTURES}/{picture.name})")
        lines = [_line(claim) for claim in claims if claim.notebook == name]
        if lines:
            head = "| claim | what the document says | expected | measured | interval | verdict |"
            parts.append("\n".join([head, "|---|---|---|---|---|---|", *lines]))
    return write_whole(target, "\n\n".join(filter(None, parts)) + "\n")


def _line(claim: ClaimRecord) -> str:
    said = [claim.basis] if claim.verdict != "not run" else []
    said = [f"was {claim.earlier}"] if claim.earlier else said
    said += not_default(claim.changed)
    note = f"<br><sub>{claim.note}</sub>" if claim.note else ""
    cells = (
        claim.id,
        claim.statement + note,
        shown(claim.expected),
        f"{shown(claim.measured)} {claim.unit}".strip(),
        shown_interval(claim.interval),
        f"{claim.word} ({'; '.join(said)})" if said else claim.word,
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def picture_path(folder: Path, name: str) -> Path:
    """Return where the picture of the notebook `name` lies."""
    return folder / PICTURES / f"{name}.png"


def draw_pictures(reports: Mapping[str, Executed], folder: Path) -> list[str]:
    """Draw the picture of each report whose notebook has a cell tagged ``picture``.

    Returns what could not be drawn and why; the old pictures stay then.
    """
    problems: list[str] = []
    for name, executed in reports.items():
        tagged = [c for c in executed.content.cells if PICTURE in c.metadata.get("tags", [])]
        outputs = [output.get("data", {}) for cell in tagged[:1] for output in cell.outputs]
        drawn = next((d for d in outputs if PLOTLY in d or "image/png" in d), None)
        if drawn is None:
            continue
        target = picture_path(folder, name)
        require_writable(target.parent)
        try:
            if PLOTLY in drawn:
                browser = find_browser()
                if browser is None:
                    raise RuntimeError("no browser found: install Chromium or set AFT_BROWSER")
                draw_plotly(drawn[PLOTLY], target, browser)
            else:
                write_whole(target, base64.b64decode(drawn["image/png"]))
        except (RuntimeError, FileNotFoundError) as error:
            problems.append(f"picture of {name}: {error}")
    return problems
