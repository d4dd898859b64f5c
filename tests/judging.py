"""Verdicts of a package's claims over given frames, for the tests of its `claims`."""

from __future__ import annotations

from aftlib.notebook.scorecard import ClaimRecord, Scorecard


def judge(claims, frames, *ids) -> dict[str, ClaimRecord]:
    """Return the records of the claims called `ids`, or of all, by id."""
    chosen = [claim for claim in claims if not ids or claim.id in ids]
    return {record.id: record for record in Scorecard(chosen, frames).records}


def verdict(claims, frames, id) -> str:
    return judge(claims, frames, id)[id].verdict


def list_changed(claims, frames) -> set[str]:
    """Return the claims whose verdict differs from the recorded one."""
    return {id for id, record in judge(claims, frames).items() if not record.as_recorded}
