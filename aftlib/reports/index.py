"""The front page of all reports: a card a notebook, and the scorecard claim by claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from aftlib.core.paths import atomic_file
from aftlib.reports.claims import SYMBOLS, ClaimRecord, claims_table, tally, unexpected
from aftlib.reports.documents import DOCUMENTS
from aftlib.reports.html import asset, duration, environment, started
from aftlib.reports.markdown import to_inline_html
from aftlib.reports.notebook import Notebook, summary_of, title_of
from aftlib.reports.record import Executed


def write_index(
    notebooks: Sequence[Notebook],
    reports: Mapping[str, Executed],
    claims: Sequence[ClaimRecord],
    target: Path,
) -> Path:
    """Write the index of `reports` with the scorecard `claims` to `target`, and return it."""
    template = environment().get_template("index.html.j2")
    ran = [claim for claim in claims if claim.verdict != "not run"]
    page = template.render(
        cards=[_card(n, reports.get(n.name), claims) for n in notebooks],
        counts=tally(claim.verdict for claim in claims),
        surprises=len(unexpected(ran)),
        tables=_tables(claims),
        own=_own_runs(target.parent, notebooks),
        symbols=SYMBOLS,
        css=asset("base.css") + asset("index.css"),
    )
    with atomic_file(target) as scratch:
        scratch.write_text(page, encoding="utf-8")
    return target


def _card(
    notebook: Notebook, executed: Executed | None, claims: Sequence[ClaimRecord]
) -> dict[str, Any]:
    content = executed.content if executed else notebook.content
    number, document = notebook.name.split("_")[0], notebook.document
    return {
        "tag": f"{number} · {document}" if document else number,
        "title": Markup(to_inline_html(title_of(content, notebook.name))),
        "summary": Markup(to_inline_html(summary_of(content))),
        "link": f"{notebook.name}.html" if executed else None,
        "error": executed.error if executed else None,
        "chips": _chips(notebook, executed),
        "counts": tally(claim.verdict for claim in claims if claim.notebook == notebook.name),
    }


def _chips(notebook: Notebook, executed: Executed | None) -> list[str]:
    if executed is None:
        return ["not run yet"]
    stale = [] if executed.is_current(notebook) else ["older than the code"]
    return [f"profile {executed.profile}", duration(executed.record["seconds"]), *stale]


def _tables(claims: Sequence[ClaimRecord]) -> list[tuple[Any, Markup]]:
    groups = {id: [claim for claim in claims if claim.document == id] for id in DOCUMENTS}
    return [
        (DOCUMENTS[id], Markup(claims_table(group, link=True)))
        for id, group in groups.items()
        if group
    ]


def _own_runs(folder: Path, notebooks: Sequence[Notebook]) -> list[dict[str, Any]]:
    """Return the runs of `aft run` whose reports lie in `folder`, newest first."""
    names = {notebook.name for notebook in notebooks}
    found = [Executed.find(p) for p in folder.glob("*.ipynb") if p.stem not in names]
    runs = [_own_run(executed) for executed in found if executed is not None]
    return sorted(runs, key=lambda run: run["started"], reverse=True)


def _own_run(executed: Executed) -> dict[str, Any]:
    return {
        "name": executed.name,
        "link": f"{executed.name}.html",
        "error": executed.error,
        "given": executed.record["given"],
        "started": started(executed),
        "duration": duration(executed.record["seconds"]),
    }
