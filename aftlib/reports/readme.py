"""``reports/README.md``: scorecard and a picture a document, for whoever only browses files."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from aftlib.core.paths import atomic_file, require_writable
from aftlib.reports.browser import draw_plotly, find_browser
from aftlib.reports.claims import SYMBOLS, ClaimRecord, shown, shown_interval, tally
from aftlib.reports.html import PLOTLY
from aftlib.reports.record import Executed

TAG = "picture"
PICTURES = "pictures"


def write_readme(
    reports: Mapping[str, Executed], claims: Sequence[ClaimRecord], target: Path
) -> Path:
    """Write the README of `reports` to `target`, with the pictures that lie beside it."""
    sections = [
        _section(name, executed, claims, target.parent)
        for name, executed in sorted(reports.items())
    ]
    profiles = sorted({executed.profile for executed in reports.values()})
    text = "\n\n".join([_head(claims, profiles), *sections]) + "\n"
    with atomic_file(target) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return target


def _head(claims: Sequence[ClaimRecord], profiles: Sequence[str]) -> str:
    counts = tally(claim.verdict for claim in claims)
    totals = ", ".join(f"{SYMBOLS[v]} {count} {v}" for v, count in counts.items() if count)
    return (
        "# Scorecard\n\n"
        f"Made by `aft reproduce` (profile {', '.join(profiles)}), not by hand: run it to get the "
        f"reports themselves, as `index.html` in this folder.\n\n{totals or 'No claims yet.'}"
    )


def _section(name: str, executed: Executed, claims: Sequence[ClaimRecord], folder: Path) -> str:
    picture = picture_path(folder, name)
    parts = [f"## {executed.title}", executed.summary]
    if executed.error:
        parts.append(f"**This notebook failed:** `{executed.error}`")
    if picture.exists():
        parts.append(f"![{executed.title}]({PICTURES}/{picture.name})")
    lines = [_line(claim) for claim in claims if claim.notebook == name]
    if lines:
        head = "| claim | what the document says | expected | measured | interval | verdict |"
        parts.append("\n".join([head, "|---|---|---|---|---|---|", *lines]))
    return "\n\n".join(filter(None, parts))


def _line(claim: ClaimRecord) -> str:
    basis = "" if claim.verdict == "not run" else f" ({claim.basis})"
    note = f"<br><sub>{claim.note}</sub>" if claim.note else ""
    cells = (
        claim.id,
        claim.statement + note,
        shown(claim.expected),
        shown(claim.measured),
        shown_interval(claim.interval),
        f"{SYMBOLS[claim.verdict]} {claim.verdict}{basis}",
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def picture_path(folder: Path, name: str) -> Path:
    """Return where the picture of the notebook `name` lies."""
    return folder / PICTURES / f"{name}.png"


def draw_pictures(reports: Mapping[str, Executed], folder: Path) -> list[str]:
    """Draw the picture of each report whose notebook has a cell tagged ``picture``.

    Returns
    -------
    list of str
        What could not be drawn and why; the old pictures stay then.
    """
    tagged = {name: output for name, e in reports.items() if (output := _tagged(e)) is not None}
    problems: list[str] = []
    for name, output in tagged.items():
        try:
            _draw(output, picture_path(folder, name))
        except (RuntimeError, FileNotFoundError) as error:
            problems.append(f"picture of {name}: {error}")
    return problems


def _tagged(executed: Executed) -> dict[str, Any] | None:
    for cell in executed.content.cells:
        if TAG in cell.metadata.get("tags", []):
            return next(filter(None, map(_drawable, cell.get("outputs", []))), None)
    return None


def _drawable(output: NotebookNode) -> dict[str, Any] | None:
    data = output.get("data", {})
    return data if PLOTLY in data or "image/png" in data else None


def _draw(data: dict[str, Any], target: Path) -> None:
    require_writable(target.parent)
    if PLOTLY not in data:
        with atomic_file(target) as scratch:
            scratch.write_bytes(base64.b64decode(data["image/png"]))
        return
    browser = find_browser()
    if browser is None:
        raise RuntimeError("no browser found: install Chromium or set AFT_BROWSER")
    draw_plotly(data[PLOTLY], target, browser)
