"""Every claim is judged by one notebook and has all that a card shows."""

from __future__ import annotations

import pytest

from aftlib.reports.documents import DOCUMENTS, all_claims
from aftlib.workbench.claims import Claim

CLAIMS = [claim for _, claim in all_claims().values() if isinstance(claim, Claim)]


def test_notebooks_are_numbered_in_order():
    names = [document.notebook for document in DOCUMENTS]
    assert names == sorted(set(names))


def test_no_claim_is_judged_twice(monkeypatch):
    twice = [DOCUMENTS[0], DOCUMENTS[0]]
    monkeypatch.setattr("aftlib.reports.documents.DOCUMENTS", twice)
    with pytest.raises(ValueError, match="is listed twice"):
        all_claims()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_card_has_at_most_60_words(claim):
    words = f"{claim.quote} {claim.section} {claim.condition} {claim.expected}".split()
    assert claim.quote and claim.main and (claim.section or claim.project)
    assert len(words) <= 60 - 12  # verdict, number, evidence
