"""The documents that the project reproduces, their claims, and links to their equations.

A claim is added in the ``claims.py`` of its package, a document by a line in `DOCUMENTS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import aftlib
from aftlib.core.paths import project_root
from aftlib.workbench.claims import Claim

if TYPE_CHECKING:
    from aftlib.workbench.scorecard import ClaimRecord

YEAR = 2026
"""When this version was written."""


@dataclass(frozen=True)
class Document:
    """A document, and the notebook that reproduces it (its name without ``.ipynb``)."""

    id: str
    title: str
    notebook: str
    package: str = ""  # within `aftlib`; by default the notebook's name without its number
    authors: tuple[str, ...] = ()  # with the next two, for a citation; empty where unknown
    published_as: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        if not self.package:
            object.__setattr__(self, "package", self.notebook.partition("_")[2])

    @property
    def page(self) -> str:
        """The name of the document's page next to the reports."""
        return "guard" if self.id == "G" else self.id.lower()

    @property
    def source(self) -> Path:
        """The Markdown file of the document's page; it does not exist in a project without docs."""
        return project_root() / "docs" / "documents" / f"{self.page}.md"


DOCUMENTS: dict[str, Document] = {
    document.id: document
    for document in [
        Document("D1", "Approximately-once recovery", "01_approximately_once"),
        Document(
            "D2",
            "Checkpoints and partial replay",
            "02_checkpoint_planning",
            authors=("Takao, Hiroki", "Sugiura, Kento", "Ishikawa, Yoshiharu"),
            published_as="チェックポインティングを考慮した近似的耐障害性保証",
            where="DEIM 2020, in Japanese",
        ),
        Document("D3", "State shared through a database", "03_shared_state"),
        Document(
            "D4",
            "Upstream backup with a working secondary",
            "04_upstream_backup",
            authors=(
                *("Nagano, Kyoko", "Itokawa, Tsuyoshi"),
                *("Kitasuka, Teruaki", "Aritsugi, Masayoshi"),
            ),
            published_as="An Approach to Reducing Recovery Cost for High-Availability Stream "
            "Processing Systems",
            where="in Japanese",
        ),
        Document(
            "D5",
            "Exponential histogram",
            "05_exponential_histogram",
            authors=("Meijer, Michael",),
            published_as="イベント ストリームを使いこなす: 高速概算集計",
            where="in Japanese",
        ),
        Document("G", "A guarantee for any data", "06_your_sensors", "sensor_plans"),
        Document("F", "One failure drill for every scheme", "07_failure_drill"),
        Document("P", "Does approximate recovery pay?", "08_does_it_pay"),
    ]
}


def bibtex() -> str:
    """Return how to cite this version, and the documents whose authors are known, as BibTeX."""
    entries = {
        "@software{aftlib": {
            "title": "{aftlib: approximate fault tolerance for data streams}",
            "author": "{The aftlib authors}",
            "year": str(YEAR),
            "version": aftlib.__version__,
            "license": "Apache-2.0",
        }
    }
    for document in DOCUMENTS.values():
        if document.authors:
            year = re.search(r"\d{4}", document.where)
            fields = {"title": f"{{{document.published_as}}}", "year": year[0] if year else ""}
            fields |= {"author": " and ".join(document.authors), "note": document.where}
            entries[f"@misc{{{document.id}"] = fields
    return "\n".join(
        ",\n  ".join([head, *(f"{name} = {{{text}}}" for name, text in fields.items() if text)])
        + ",\n}"
        for head, fields in entries.items()
    )


@cache
def all_claims() -> dict[str, Claim]:
    """Return all claims by id, in order; ValueError for an id that belongs to another document."""
    claims: dict[str, Claim] = {}
    for document in DOCUMENTS.values():
        for claim in import_module(f"aftlib.{document.package}.claims").CLAIMS:
            if claim.document != document.id or claim.id in claims:
                raise ValueError(
                    f"claim {claim.id!r} of aftlib.{document.package} is of another document or "
                    f"listed twice: give it the next free number of {document.id}"
                )
            claims[claim.id] = claim
    return claims


def equations(document: Document) -> set[str]:
    """Return the numbers of the equations that the page of `document` shows; none without page."""
    if not document.source.exists():
        return set()
    return set(re.findall(r'id="eq-(\d+)"', document.source.read_text(encoding="utf-8")))


def with_all_claims(text: str, document: Document) -> str:
    """Return the Markdown `text` of the document's page with a row for each claim.

    A claim that the page's table of verdicts lacks gets a row with its recorded verdict and its
    statement.
    """

    def complete(table: re.Match[str]) -> str:
        rows = [table[0]]
        for claim in all_claims().values():
            if claim.document == document.id and not re.search(rf"\n\| {claim.id}\b", table[0]):
                statement = claim.statement.replace("|", "\\|")
                rows.append(f"| {claim.id} | {claim.recorded} | {statement} |\n")
        return "".join(rows)

    return re.sub(r"^\| claim \| verdict \|.*\n(?:\|.*\n)+", complete, text, flags=re.MULTILINE)


def cited(claims: Iterable[ClaimRecord], root: str = "") -> dict[str, str]:
    """Return, by claim, links to the claim's equations on its document's page, or to the page.

    A claim's equations are those of the page whose numbers stand in its formula or note. Without a
    page there are no links. `root` is the path to the folder of the index.
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

    def link(match: re.Match[str]) -> str:
        at = f"{root}documents/{document.page}.html#eq-{match[1]}"
        return f"[({match[1]})]({at})" if match[1] in known else match[0]

    return re.sub(r"(?<=[a-z] )\((\d+)\)", link, prose)
