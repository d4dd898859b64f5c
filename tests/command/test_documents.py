"""Every claim is judged by one notebook and has all that a card shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aftlib.command.documents import DOCUMENTS
from aftlib.notebook.claims import Claim

ROOT = Path(__file__).parents[2]
WORDS = "holds if|holds|does not hold|open"
JUDGED = [claim for document in DOCUMENTS for claim in document.claims]
CLAIMS = [claim for claim in JUDGED if isinstance(claim, Claim)]


def test_notebooks_are_numbered_in_order():
    names = [document.notebook for document in DOCUMENTS]
    assert names == sorted(set(names))


def test_no_claim_is_judged_twice():
    assert len({claim.id for claim in JUDGED}) == len(JUDGED)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_card_has_at_most_60_words(claim):
    words = f"{claim.quote} {claim.section} {claim.condition} {claim.expected}".split()
    assert claim.quote and claim.main and (claim.section or claim.project)
    assert len(words) <= 60 - 12  # verdict, number, evidence


def test_the_one_page_has_at_most_500_words():
    page = (ROOT / "reports" / "README.md").read_text().partition("\n✔")[0]
    parts = [document.id for document in DOCUMENTS]
    assert re.findall(r"^\*\*(\w+)\.\*\*", page, re.MULTILINE) == parts
    assert len([word for word in page.split() if re.search(r"\w", word)]) <= 500


def verdicts_of(text: str, column: int) -> dict[str, str]:
    """Verdicts of a Markdown table's rows, whose first column begins with a claim's id."""
    rows = [
        re.split(r"(?<!\\) \| ", line.strip("| ")) for line in text.splitlines() if line[:2] == "| "
    ]
    found = [(re.match(r"[DGP]\d?-\d+", row[0]), row) for row in rows if len(row) > column]
    words = {at[0]: re.search(rf"(?:^|\s)({WORDS})", row[column]) for at, row in found if at}
    return {id: word[1] for id, word in words.items() if word}


def test_pages_have_a_row_with_the_recorded_verdict_of_each_claim():
    recorded = {claim.id: claim.recorded for claim in CLAIMS}
    pages = {}
    for page in sorted((ROOT / "docs" / "documents").glob("*.md")):
        of_page = verdicts_of(page.read_text(), 1)
        assert of_page == {id: recorded[id] for id in of_page}, page.name
        pages |= of_page
    assert {*pages} == {*recorded}
