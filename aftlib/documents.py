"""The documents that the project reproduces, and every claim of theirs that a notebook settles.

To add a claim, add a line to `CLAIMS`; to add a document, a line to `DOCUMENTS` as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

RECORDED = ("holds", "deviates")


@dataclass(frozen=True)
class Document:
    """A document, and the notebook that reproduces it (its name without ``.ipynb``)."""

    id: str
    title: str
    notebook: str


@dataclass(frozen=True)
class Claim:
    """One claim of a document, in our words, with the verdict that our runs are expected to give.

    `recorded` is ``"holds"`` or ``"deviates"``; a run that comes out otherwise is an alarm.

    Raises
    ------
    ValueError
        When `document` is unknown, `id` is not one of its names, or `recorded` is no verdict.
    """

    id: str
    document: str
    statement: str
    recorded: str

    def __post_init__(self) -> None:
        if self.document not in DOCUMENTS:
            raise ValueError(f"document {self.document!r} is not one of {', '.join(DOCUMENTS)}")
        if not self.id.startswith(f"{self.document}-"):
            raise ValueError(f"claim id {self.id!r} must begin with '{self.document}-'")
        if self.recorded not in RECORDED:
            raise ValueError(
                f"recorded verdict {self.recorded!r} of {self.id} is not one of {RECORDED}"
            )


def _documents(documents: Iterable[Document]) -> dict[str, Document]:
    return {document.id: document for document in documents}


def _claims(claims: Iterable[Claim]) -> dict[str, Claim]:
    return {claim.id: claim for claim in claims}


DOCUMENTS: dict[str, Document] = _documents(
    [
        Document("D1", "Approximately-once recovery", "01_approximately_once"),
    ]
)

CLAIMS: dict[str, Claim] = _claims(
    [
        Claim(
            "D1-1",
            "D1",
            "Greedy assignment does not reach the best spread (h-best) but assigns well.",
            "holds",
        ),
        Claim("D1-2", "D1", "The number of estimable workers scales with the workers m.", "holds"),
        Claim("D1-3", "D1", "The error rate stays at or below δ = 0.05 in every setting.", "holds"),
        Claim("D1-4", "D1", "Greedy's error rate is close to h-best's.", "holds"),
        Claim(
            "D1-5",
            "D1",
            "An assignment that knows the model has a far lower error rate than a random one.",
            "deviates",
        ),
    ]
)
