"""The front pages: ``index.html``, and ``README.md`` with one picture per document."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from aftlib.core.paths import require_writable, write_whole
from aftlib.reports.data_out import PLOTLY
from aftlib.reports.documents import DOCUMENTS, cited
from aftlib.reports.export import draw_plotly, find_browser
from aftlib.reports.html import to_inline_html
from aftlib.reports.notebook import Notebook, summary_of, title_of
from aftlib.reports.runs import Executed, Run, runs_dir
from aftlib.workbench.pages import duration, not_default, render, tally
from aftlib.workbench.scorecard import ClaimRecord, claims_table, unexpected

PICTURE = "picture"  # tag of the cell whose output is drawn
PICTURES = "pictures"
SEED = "seed"  # the parameter that only draws other samples


def write_index(
    notebooks: Sequence[Notebook],
    reports: Mapping[str, Executed],
    claims: Sequence[ClaimRecord],
    runs: Sequence[Run],
    target: Path,
) -> Path:
    """Write the index of `reports`, with the scorecard `claims` and the `runs`; return `target`."""
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
        counts=tally(claim.verdict for claim in claims if not claim.project),
        own_counts=tally(claim.verdict for claim in claims if claim.project),
        deviating=[c for c in ran if c.verdict == "deviates" and not c.project],
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


def stability(verdicts: Iterable[str]) -> str:
    """Return in how many decided runs a claim held: ``holds in 4 of 5``; empty for one run."""
    counts = tally(verdicts)
    count = counts["holds"] + counts["deviates"]
    return f"holds in {counts['holds']} of {count}" if count > 1 else ""


def over_seeds(notebook: Notebook, report: Executed | None, runs: Sequence[Run]) -> dict[str, str]:
    """Return the stability of each claim over `runs` that differ from `report` by seed only."""
    if report is None or report.error or SEED not in report.record["parameters"]:
        return {}
    own = dict(report.record["parameters"])
    by_seed = {own.pop(SEED): {s.id: s.verdict for s in report.settled}}
    for run in (run for run in runs if run.notebook == notebook.name):
        values = dict(run.record["parameters"])
        seed = values.pop(SEED, None)
        same = values == own and seed not in by_seed and not run.record["error"]
        if same and run.record.get("key") == notebook.key(run.record["parameters"]):
            by_seed[seed] = run.verdicts
    ids = {id for verdicts in by_seed.values() for id in verdicts}
    return {id: stability(v[id] for v in by_seed.values() if id in v) for id in ids}


def write_readme(
    reports: Mapping[str, Executed], claims: Sequence[ClaimRecord], target: Path
) -> Path:
    """Write ``README.md`` for readers who only browse files: the scorecard and its pictures.

    It shows `reports` by name, each with its picture, if there is one, and its claims.
    """
    shown = []
    for name, executed in sorted(reports.items()):
        picture = picture_path(target.parent, name)
        about = {name: getattr(executed, name) for name in ("title", "summary", "error")}
        about["picture"] = f"{PICTURES}/{picture.name}" if picture.exists() else ""
        shown.append(about | {"claims": [claim for claim in claims if claim.notebook == name]})
    page = render(
        "readme.md.j2",
        profiles=", ".join(sorted({executed.profile for executed in reports.values()})),
        counts=tally(claim.verdict for claim in claims if not claim.project),
        own_counts=tally(claim.verdict for claim in claims if claim.project),
        reports=shown,
    )
    return write_whole(target, page.rstrip() + "\n")


def picture_path(folder: Path, name: str) -> Path:
    """Return where the picture of the notebook `name` lies."""
    return folder / PICTURES / f"{name}.png"


def draw_pictures(reports: Mapping[str, Executed], folder: Path) -> list[str]:
    """Draw the picture of each report whose notebook has a cell tagged ``picture``.

    Return one reason for each picture that could not be drawn; its old file stays.
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
