"""What each claim rests on: the figure that shows it, and the formula that it is about.

A report links both ways: from a claim to its figure and from a figure to the claims it settles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from aftlib.reports.claims import ClaimRecord
from aftlib.reports.data_out import PLOTLY, Shown, plain_text
from aftlib.reports.documents import DOCUMENTS, Document


def title_of_figure(shown: Shown) -> str:
    """Return the title of a figure as plain text, empty where it has none."""
    title = shown.data.get(PLOTLY, {}).get("layout", {}).get("title") or ""
    return plain_text(title if isinstance(title, str) else title.get("text") or "")


def figures_of(claims: Iterable[ClaimRecord], shown: Iterable[Shown]) -> Mapping[str, Shown]:
    """Return, by claim, its figure among what a report shows, where there is one."""
    titled = [(title_of_figure(one), one) for one in shown if one.kind == "figure"]
    found = {}
    for claim in claims:
        figures = (one for title, one in titled if title.startswith(claim.figure))
        if claim.figure and (figure := next(figures, None)):
            found[claim.id] = figure
    return found


def equations(document: Document) -> set[str]:
    """Return the numbers of the equations that the page of `document` shows; none without one."""
    if not document.source.exists():
        return set()
    return set(re.findall(r'id="eq-(\d+)"', document.source.read_text(encoding="utf-8")))


def cited(claims: Iterable[ClaimRecord], root: str = "") -> dict[str, str]:
    """Return, by claim, links into its document's page: to the equations that it names, or to all.

    Of its formula and its note those numbers count that the page has; a project whose document has
    no page gives no links. `root` leads to the folder of the index.
    """
    links = {}
    for claim in claims:
        document = DOCUMENTS.get(claim.document)
        if document is None or not document.source.exists():
            continue
        named = claim.formula + claim.note
        numbers = re.findall(r"\\tag\{(\d+)\}|(?<!\w)\((\d+)\)", named)
        known = dict.fromkeys(a or b for a, b in numbers if (a or b) in equations(document))
        targets = {f"equation ({n})": f"#eq-{n}" for n in known} or {f"what {document.id} says": ""}
        href = f"{root}documents/{document.page}.html"
        links[claim.id] = " · ".join(f'<a href="{href}{at}">{n}</a>' for n, at in targets.items())
    return links


def linked(prose: str, document: Document, root: str = "") -> str:
    """Return Markdown whose numbers of equations, as in "by (9)", lead to the document's page."""
    known = equations(document)

    def link(found: re.Match[str]) -> str:
        at = f"{root}documents/{document.page}.html#eq-{found[1]}"
        return f"[({found[1]})]({at})" if found[1] in known else found[0]

    return re.sub(r"(?<=[a-z] )\((\d+)\)", link, prose)
