"""The claims of all notebooks in one list: gathered from executed notebooks, kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from aftlib.core.paths import atomic_file
from aftlib.reports.claims import ClaimRecord, Settled
from aftlib.reports.documents import CLAIMS, DOCUMENTS, Claim
from aftlib.reports.notebook import Notebook
from aftlib.reports.record import Executed


def read_reports(folder: Path, notebooks: Sequence[Notebook]) -> dict[str, Executed]:
    """Return the executed form of each of `notebooks` that `folder` holds, by name."""
    found = {n.name: Executed.find(folder / f"{n.name}.ipynb") for n in notebooks}
    return {name: executed for name, executed in found.items() if executed is not None}


def gather(notebooks: Sequence[Notebook], reports: Mapping[str, Executed]) -> list[ClaimRecord]:
    """Return every known claim, in order, with what its document's notebook found.

    "not run", with the reason as its note, where the notebook was not run, failed, is older than
    the code, or settled nothing about the claim.
    """
    known = {notebook.name: notebook for notebook in notebooks}
    return [_record(claim, known, reports) for claim in CLAIMS.values()]


def _record(
    claim: Claim, notebooks: Mapping[str, Notebook], reports: Mapping[str, Executed]
) -> ClaimRecord:
    name = DOCUMENTS[claim.document].notebook
    executed = reports.get(name)
    if name not in notebooks or executed is None:
        return _not_run(claim, name, "", "Its notebook has not been run.")
    if executed.error:
        return _not_run(claim, name, executed.profile, "Its notebook failed.")
    if not executed.is_current(notebooks[name]):
        return _not_run(claim, name, executed.profile, "Its last run is older than the code.")
    for settled in executed.settled:
        if settled.id == claim.id:
            return ClaimRecord.of(settled, name, executed.profile)
    return _not_run(claim, name, executed.profile, "Its notebook does not settle it.")


def _not_run(claim: Claim, notebook: str, profile: str, why: str) -> ClaimRecord:
    settled = Settled(claim.id, None, None, None, "not run", "measured", why)
    return ClaimRecord.of(settled, notebook, profile)


def write_claims(claims: Sequence[ClaimRecord], target: Path) -> Path:
    """Write `claims` as the JSON list that other tools read, and return its path."""
    with atomic_file(target) as scratch:
        lines = [asdict(claim) for claim in claims]
        text = json.dumps(lines, ensure_ascii=False, indent=1, allow_nan=False)
        scratch.write_text(text + "\n", encoding="utf-8")
    return target
