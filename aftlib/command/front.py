"""The scorecard of all notebooks as pages.

Each run of `aft reproduce` writes ``index.html`` and ``claims.json``, which git ignores. A full run
without failures also writes ``full.json`` and, made from it alone, ``README.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from nbconvert.filters.markdown_mistune import MarkdownWithMath

from aftlib.command.batch import Executed
from aftlib.command.documents import DOCUMENTS
from aftlib.command.pages import TEMPLATES, Markdown, fill_summary
from aftlib.core.storage import write_whole
from aftlib.notebook.scorecard import ClaimRecord, claims_table, count_text, tally
from aftlib.notebook.texts import render

#: The last full run, beside the index.
STORED = "full.json"


def write_index(
    folder: Path, reports: Mapping[str, Executed], claims: Sequence[ClaimRecord]
) -> Path:
    """Write ``claims.json`` and ``index.html``; return the index."""
    write_json(folder / "claims.json", [claim.model_dump(mode="json") for claim in claims])
    page = render_index(reports, claims, programs="claims.json")
    return write_whole(folder / "index.html", page)


def render_index(
    reports: Mapping[str, Executed], claims: Sequence[ClaimRecord], programs: str = ""
) -> str:
    """Return the index of the reports; `programs` is the file of claims, if any."""
    sections = []
    for document in DOCUMENTS:
        mine = [claim for claim in claims if claim.notebook == document.notebook]
        executed = reports.get(document.notebook)
        sections.append(
            {
                "document": document,
                "box": fill_summary(document, executed, mine) if executed else None,
                "table": Markup(claims_table(mine, link=True)),
                "report": executed is not None,
                "error": executed.error if executed else None,
            }
        )
    terms = MarkdownWithMath(renderer=Markdown()).render(explain_terms())
    return render(
        TEMPLATES,
        "index.html.j2",
        programs=programs,
        sections=sections,
        run=describe_runs(reports),
        terms=Markup(terms),
        count_text=count_text,
        **count_verdicts(claims),
    )


def keep_full_run(
    folder: Path, reports: Mapping[str, Executed], claims: Sequence[ClaimRecord]
) -> Path | None:
    """Write ``full.json`` and ``README.md``; return the latter.

    None, and nothing is written, unless the reports are those of a full run.
    """
    if not is_full_run(reports):
        return None
    boxes = {}
    for document in DOCUMENTS:
        mine = [claim for claim in claims if claim.notebook == document.notebook]
        box = fill_summary(document, reports[document.notebook], mine)
        boxes[document.id] = [sentence for _, sentence in box or ()]
    lines = [claim.model_dump(mode="json") for claim in claims]
    full = describe_runs(reports) | {"summaries": boxes, "claims": lines}
    write_json(folder / STORED, full)
    return write_whole(folder / "README.md", write_card(full))


def is_full_run(reports: Mapping[str, Executed]) -> bool:
    """Whether each notebook has a run of the profile *full* without failure."""
    full = [one for one in reports.values() if one.record["profile"] == "full" and not one.error]
    return len(full) == len(DOCUMENTS)


def write_card(full: Mapping[str, Any]) -> str:
    """Return the scorecard as Markdown, from the contents of ``full.json``."""
    claims = [ClaimRecord(**line) for line in full["claims"]]
    ordered = [
        claim
        for document in DOCUMENTS
        for claim in sorted(claims, key=lambda claim: claim.verdict)
        if claim.notebook == document.notebook
    ]
    return render(
        TEMPLATES,
        "readme.md.j2",
        full=full,
        rows=[[table_cell(text) for text in claim_row(claim)] for claim in ordered],
        terms=explain_terms(),
        count_text=count_text,
        **count_verdicts(claims),
    )


def claim_row(claim: ClaimRecord) -> tuple[str, ...]:
    """Return claim, sentence, verdict, number, evidence and what would change the verdict."""
    sentence = f"{claim.quote} ({claim.section})" if claim.section else claim.quote
    number = claim.number
    if claim.threshold.startswith("ours"):
        number += f" (bound {claim.threshold})"
    return claim.id, sentence, claim.word, number, claim.evidence, claim.sensitivity


def table_cell(text: str) -> str:
    r"""Return any text as one cell of a table in Markdown.

    >>> print(table_cell("|O| <\n 3"))
    \|O\| &lt; 3
    """
    one_line = " ".join(text.split())
    return one_line.replace("\\", r"\\").replace("|", r"\|").replace("<", "&lt;")


def explain_terms() -> str:
    """Return what the table's words mean, as Markdown."""
    known = [claim.id for document in DOCUMENTS for claim in document.claims]
    return render(TEMPLATES, "terms.md.j2", missing=missing_numbers(known))


def missing_numbers(ids: Iterable[str]) -> list[str]:
    """Return the ids that would make the numbers of each document's claims consecutive.

    >>> missing_numbers(["D2-1", "D2-3", "G-2"])
    ['D2-2', 'G-1']
    """
    numbers: dict[str, set[int]] = {}
    for name in ids:
        document, _, number = name.partition("-")
        numbers.setdefault(document, set()).add(int(number))
    return [
        f"{document}-{number}"
        for document, present in sorted(numbers.items())
        for number in range(1, max(present))
        if number not in present
    ]


def describe_runs(reports: Mapping[str, Executed]) -> dict[str, str]:
    """Return dates and profiles of the runs, joined, and their origins; `reports` by notebook."""
    records = {notebook: executed.record for notebook, executed in reports.items()}
    return {
        "date": ", ".join(sorted({record["started"][:10] for record in records.values()})),
        "profile": ", ".join(sorted({record["profile"] for record in records.values()} - {""})),
        "origin": describe_origin(records),
    }


def describe_origin(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return commit and machine of runs; where runs differ, of which rows each is the origin.

    `records` has the records of the runs by notebook. The origin with most labels comes last, as
    that of all other rows.
    """
    rows: dict[str, list[str]] = {}
    for document in DOCUMENTS:
        if document.notebook not in records:
            continue
        record = records[document.notebook]
        commit = f"commit {record['commit']}" if record.get("commit") else ""
        origin = ", ".join(filter(None, [commit, record.get("machine")]))
        others = [claim.id for claim in document.claims if claim.document != document.id]
        rows.setdefault(origin, []).extend([document.id, *others])
    if len(rows) < 2:
        return "".join(rows)
    *few, most = sorted(rows, key=lambda origin: len(rows[origin]))
    parts = [f"{', '.join(rows[origin])}: {origin}" for origin in few]
    return "; ".join([*parts, f"all other rows: {most}"])


def count_verdicts(claims: Sequence[ClaimRecord]) -> dict[str, dict[str, int]]:
    """Return how many claims of the documents, and of this project, have each verdict."""
    return {
        "counts": tally(claim.verdict for claim in claims if not claim.project),
        "own": tally(claim.verdict for claim in claims if claim.project),
    }


def write_json(path: Path, contents: Any) -> Path:
    """Write `contents` as JSON that people can read, too."""
    return write_whole(path, json.dumps(contents, ensure_ascii=False, indent=1) + "\n")
