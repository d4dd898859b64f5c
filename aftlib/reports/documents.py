"""The documents that the project reproduces, and every claim of theirs that a notebook settles.

A claim is added in the ``claims.py`` of its package, a document by a line in `DOCUMENTS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from aftlib.core.claims import Claim
from aftlib.core.paths import project_root

PROFILES = ("smoke", "quick", "full")  # how large the notebooks' experiments are


@dataclass(frozen=True)
class Document:
    """A document, and the notebook that reproduces it (its name without ``.ipynb``)."""

    id: str
    title: str
    notebook: str
    package: str = ""  # within `aftlib`; by default the notebook's name without its number

    def __post_init__(self) -> None:
        if not self.package:
            object.__setattr__(self, "package", self.notebook.partition("_")[2])

    @property
    def page(self) -> str:
        """The name of its page beside the reports."""
        return "guard" if self.id == "G" else self.id.lower()

    @property
    def source(self) -> Path:
        """Where its page is written, in Markdown; a project without docs has none."""
        return project_root() / "docs" / "documents" / f"{self.page}.md"


DOCUMENTS: dict[str, Document] = {
    document.id: document
    for document in [
        Document("D1", "Approximately-once recovery", "01_approximately_once"),
        Document("D2", "Checkpoints and partial replay", "02_checkpoint_planning"),
        Document("D3", "State shared through a database", "03_shared_state"),
        Document("D4", "Upstream backup with a working secondary", "04_upstream_backup"),
        Document("D5", "Exponential histogram", "05_exponential_histogram"),
        Document("G", "A promise for any data", "06_your_sensors", "sensor_plans"),
        Document("F", "One failure drill for every scheme", "07_failure_drill"),
    ]
}


@cache
def all_claims() -> dict[str, Claim]:
    """Return every claim by its id, in order; ValueError where an id is another document's."""
    claims: dict[str, Claim] = {}
    for document in DOCUMENTS.values():
        for claim in import_module(f"aftlib.{document.package}.claims").CLAIMS:
            if claim.document != document.id or claim.id in claims:
                raise ValueError(
                    f"claim {claim.id!r} of aftlib.{document.package} is another document's or "
                    f"there twice: give it the next free number of {document.id}"
                )
            claims[claim.id] = claim
    return claims
