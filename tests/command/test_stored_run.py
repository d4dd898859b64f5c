"""The stored full run, reports/full.json, against today's claims and against the figures of pages.

After a claim was reworded, or added, these tests fail until a full run is stored.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from aftlib.command.documents import DOCUMENTS
from aftlib.command.front import STORED, write_card
from aftlib.notebook.claims import not_run
from aftlib.notebook.scorecard import ClaimRecord
from tests.command.test_documents import verdicts_of

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "reports" / "full"
CLAIMS = [claim for document in DOCUMENTS for claim in document.claims]
FULL = json.loads((ROOT / "reports" / STORED).read_text())
LINES = {line["id"]: line for line in FULL["claims"]}
TEXTS = ("quote", "section", "main", "expected", "threshold", "basis")
TEXTS += ("by_construction", "project", "timed", "recorded", "notebook")


def test_the_stored_scorecard_is_made_from_the_stored_records():
    assert (ROOT / "reports" / "README.md").read_text() == write_card(FULL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.id)
def test_the_stored_boxes_are_those_of_the_stored_records(document):
    """A box depends on nothing but records and parameters, so none can be older than its text."""
    lines = [line for line in FULL["claims"] if line["notebook"] == document.notebook]
    records = {line["id"]: ClaimRecord(**line) for line in lines}
    box = vars(document.summarize(records, document.parameters.profile("full"))).values()
    assert FULL["summaries"][document.id] == [*box]
    assert {*box} <= {*texts_of(PAGES / f"{document.notebook}.html")}
    index = texts_of(PAGES / "index.html")
    assert all(any(sentence in text for text in index) for sentence in box)


def texts_of(page: Path) -> list[str]:
    return re.split(r"<[^>]*>", html.unescape(page.read_text()))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_stored_record_has_the_texts_of_its_claim(claim):
    """A claim that was reworded since the full run makes the stored scorecard stale."""
    (notebook,) = [document.notebook for document in DOCUMENTS if claim in document.claims]
    today = ClaimRecord.of(claim, not_run("only its texts are compared")).with_run(notebook)
    wanted = {name: getattr(today, name) for name in TEXTS}
    stored = LINES[claim.id]
    assert {name: stored.get(name) for name in TEXTS} == wanted
    assert has_condition(stored["condition"], today.condition)
    assert "{" not in stored["condition"] or stored["verdict"] != "holds if"


def has_condition(stored: str, condition: str) -> bool:
    """Return whether a stored condition is the claim's, whatever number the run put in braces."""
    static = [re.escape(part) for part in re.split(r"\{\w+\}", condition)]
    computed = re.fullmatch(r"[\d.,]+(?: %)?".join(static), stored)
    return stored == condition or bool(computed)


def test_the_static_part_of_a_computed_condition_is_compared():
    assert has_condition("n is at least 9,300.", "n is at least {n}.")
    assert has_condition("at least 50 % are replayed", "at least {share} are replayed")
    assert not has_condition("n is at most 9,300.", "n is at least {n}.")
    assert not has_condition("there are 10⁵ keys", "there are 10⁶ keys")


def test_the_stored_records_are_those_of_all_claims():
    assert {*LINES} == {claim.id for claim in CLAIMS}


def test_the_stored_scorecard_has_the_recorded_verdicts_and_readme_counts_them():
    """Of a claim that depends on measured time, a run may decide less or else than its record."""
    recorded = {claim.id: claim.recorded for claim in CLAIMS}
    card = verdicts_of((ROOT / "reports" / "README.md").read_text(), 2)
    exact = {claim.id for claim in CLAIMS if not claim.timed}
    assert {*card} == {*recorded}
    assert {id: card[id] for id in exact} == {id: recorded[id] for id in exact}

    counts = Counter(card[claim.id] for claim in CLAIMS if not claim.project)
    text = " ".join((ROOT / "README.md").read_text().split())
    said = re.search(
        r"documents' (\d+) claims (\d+) hold, (\d+) hold under a condition, (\d+) do not hold"
        r"(?:, (\d+) (?:is|are) open)?",
        text,
    )
    numbers = [int(number or 0) for number in said.groups()]
    assert numbers == [counts.total(), *(counts[word] for word in ("holds", "holds if"))] + [
        counts[word] for word in ("does not hold", "open")
    ]


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.html")), ids=lambda page: page.name)
def test_links_and_pictures_of_stored_reports_lead_to_files(page):
    links = re.findall(r'(?:href|src)="([^"#]+)', page.read_text())
    files = [link for link in links if not link.startswith("http")]
    assert [file for file in files if not (page.parent / file).exists()] == []


NUMBER = re.compile(r"(?<![\w.,-])[−-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w-])")


def read_number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def numbers_of(line: dict) -> list[float]:
    """All numbers that a stored record gives, in its fields and in its texts."""
    values = [line["measured"], line.get("n"), *(line.get("interval") or ())]
    texts = ("text", "sensitivity", "condition", "expected", "quote", "by_construction")
    found = NUMBER.findall(" ".join(str(line.get(name, "")) for name in texts))
    return [float(v) for v in values if isinstance(v, int | float)] + [*map(read_number, found)]


def unsupported_figures(text: str, lines: dict[str, dict]) -> list[str]:
    """Figures of the sentences and cells with a claim's id that links to the scorecard.

    Returned are those before the link which, at their printed precision, are no number of that
    claim's record; a share may be printed as a percentage.
    """
    wrong = []
    for part in re.split(r"(?<=[.;:|])\s|\n\n", text):
        named = re.search(r"\[([DGP]\d?-\d+)\]\([^)]*reports(?:/README)?\.md", part)
        if not named:
            continue
        known = numbers_of(lines[named[1]])
        for figure in NUMBER.findall(part[: named.start()]):
            half = 0.5 * 10.0 ** -len(figure.partition(".")[2]) * (1 + 1e-9)
            near = (
                abs(v * scale - read_number(figure)) <= half for v in known for scale in (1, 100)
            )
            if not any(near):
                wrong.append(f"{figure} ({named[1]})")
    return wrong


def test_a_figure_beside_a_claims_id_must_be_one_of_its_record():
    lines = {"D2-11": {"measured": 2.732, "interval": [2.59, 2.89], "sensitivity": "43 against 3"}}
    link = "[D2-11](../reports/README.md)"
    good = f"It is 2.7 times ({link}). With 43 checkpoints, not 3 ({link}). 99 is free (D2-11)."
    assert unsupported_figures(good, lines) == []
    bad = f"It is 2.8 times {link}, and 44 | 2.59 to 3 {link} | 273 % {link}"
    assert unsupported_figures(bad, lines) == ["2.8 (D2-11)"]
    assert unsupported_figures(f"Now 44\nto 3 {link}", lines) == ["44 (D2-11)"]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_figures_of_readme_and_docs_are_those_of_the_full_run(page):
    assert unsupported_figures(page.read_text(), LINES) == []
