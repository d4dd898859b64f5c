"""A page a document beside the reports: source, equations by number, readings, what held."""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup

from aftlib.core.paths import write_whole
from aftlib.reports.documents import CLAIMS, DOCUMENTS
from aftlib.reports.html import render
from aftlib.reports.markdown import to_html

FOLDER = "documents"  # within the reports


def write_pages(folder: Path) -> None:
    """Write the page of each document that has one into `folder`.

    Like all reports they open without network: formulas are MathML, pictures are in the page.
    """
    for document in DOCUMENTS.values():
        if not document.source.exists():
            continue
        written = document.source.read_text(encoding="utf-8")
        text = re.sub(r"\]\((\w+)\.md\)", r"](\1.html)", written).replace("](../../", "](")
        for id, claim in CLAIMS.items():  # each leads to its line in the report
            link = f"../{DOCUMENTS[claim.document].notebook}.html#claim-{id}"
            text = text.replace(f"\n| {id} |", f"\n| [{id}]({link}) |")
        page = render(
            "document.html.j2",
            title=document.title,
            body=Markup(to_html(text, str(document.source.parents[2]))),
        )
        write_whole(folder / f"{document.page}.html", page)
