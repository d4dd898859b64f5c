"""The scorecard: its table keeps its columns, and only a whole full run replaces what is stored."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from aftlib.command import front
from aftlib.command.batch import collect_claims
from aftlib.notebook.claims import Claim, Finding
from aftlib.notebook.scorecard import ClaimRecord
from tests.command.conftest import BAD, aft, write_notebook

ODD = "|O| = 1\nis \\ <b>"


def odd_record() -> ClaimRecord:
    """A record of which every text has a bar, a new line, a backslash and a tag."""
    claim = Claim("D1-1", ODD, ODD, ODD, lambda: None, condition=ODD, recorded="holds if")
    texts = {one.name: ODD for one in fields(claim) if one.type == "str"}
    texts |= {"id": "D1-1", "basis": "exact", "recorded": "holds if"}
    finding = Finding(ODD, n=1000, counted=ODD, text=ODD, holds=True, sensitivity=ODD)
    return ClaimRecord.of(replace(claim, **texts), finding).with_run("01_tiny", "full")


def card_of(records):
    about = {"date": "2026-01-31", "origin": "commit 0123abcd+, 2 cores, a chip"}
    lines = [record.model_dump(mode="json") for record in records]
    boxes = {"D1": ["They claim.", "It holds.", "Sure.", "Here it stops."]}
    return front.write_card(about | {"profile": "full", "summaries": boxes, "claims": lines})


def rows(card):
    table = [line for line in card.splitlines() if line.startswith("| ")]
    return [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in table]


def test_a_row_has_six_cells_whatever_its_texts_contain(home):
    heading, row = rows(card_of([odd_record()]))
    assert len(heading) == len(row) == 6
    assert row[4].strip() == r"exact, by construction, 1,000 \|O\| = 1 is \\ &lt;b>"


def test_the_card_has_all_four_sentences_and_says_where_its_numbers_come_from(home):
    card = card_of([odd_record()])
    assert "**D1.** They claim. It holds. Sure. Here it stops." in card
    assert "on 2026-01-31 (commit 0123abcd+, 2 cores, a chip)." in card
    terms = card.partition("## Words of the table")[2]
    for word in ("[low, high]", "expected", "by construction", "ours", "h-best", "|O|", "T_est"):
        assert word in terms


def test_merged_runs_keep_each_commit_with_its_machine():
    old = {"commit": "a66df60e", "machine": "2 cores, AMD"}
    runs = {document.notebook: old for document in front.DOCUMENTS}
    assert front.describe_origin(runs) == "commit a66df60e, 2 cores, AMD"
    runs["06_your_sensors"] = {"commit": "3636c7ef", "machine": "2 cores, Intel"}
    runs["07_does_it_pay"] = {"commit": "", "machine": "2 cores, AMD"}
    assert front.describe_origin(runs) == (
        "G: commit 3636c7ef, 2 cores, Intel; P, D1-6, D1-7: 2 cores, AMD; "
        "all other rows: commit a66df60e, 2 cores, AMD"
    )
    # the origin of most rows is last, wherever its first document stands
    runs["01_approximately_once"] = runs["06_your_sensors"]
    assert front.describe_origin(runs).startswith("D1, G: commit 3636c7ef, 2 cores, Intel; P, ")


def test_missing_numbers_are_named_below_the_table(monkeypatch):
    some = SimpleNamespace(claims=[SimpleNamespace(id="D2-1"), SimpleNamespace(id="D2-4")])
    monkeypatch.setattr(front, "DOCUMENTS", [some])
    assert "D2-2, D2-3 are not in the table" in front.explain_terms()
    monkeypatch.setattr(front, "DOCUMENTS", [SimpleNamespace(claims=some.claims[:1])])
    assert "not in the table" not in front.explain_terms()


@pytest.mark.slow
def test_only_a_whole_full_run_without_failure_stores_records_with_their_texts_and_origin(home):
    stored = [home / "reports" / name for name in ("README.md", "full.json")]
    stored[0].parent.mkdir()
    for file in stored:
        file.write_text('{"claims": []}')
    assert aft("reproduce", "--profile", "full", "--only", "D1").exit_code == 0
    assert [file.read_text() for file in stored] == ['{"claims": []}'] * 2
    assert (home / "reports" / "index.html").is_file()

    done = aft("reproduce", "--profile", "full")
    assert done.exit_code == 0 and "Scorecard: " in done.output and "done already" in done.output
    card, text = (file.read_text() for file in stored)
    full = json.loads(text)
    assert card == front.write_card(full)
    assert full["date"] and "cores, " in full["origin"]
    assert full["claims"][0]["quote"] == "Workers <scale>."
    assert "**D1.** All works. With 4 workers it holds. Very. Here." in card
    assert "| D1-1 | Workers &lt;scale>. (6.1) | ✔ holds | 4 (bound ours) |" in card

    write_notebook(home, BAD)
    assert aft("reproduce", "--profile", "full").exit_code == 1
    assert [file.read_text() for file in stored] == [card, text]


def test_a_notebook_that_failed_or_has_another_profile_is_no_full_run():
    def run(profile, error=""):
        return SimpleNamespace(record={"profile": profile}, error=error)

    notebooks = [document.notebook for document in front.DOCUMENTS]
    reports = {notebook: run("full") for notebook in notebooks}
    assert front.is_full_run(reports)
    assert not front.is_full_run(reports | {notebooks[0]: run("full", "m / 0")})
    assert not front.is_full_run(reports | {notebooks[0]: run("quick")})


def test_claims_of_notebooks_that_have_not_run_are_no_full_run(home):
    assert front.keep_full_run(home, {}, collect_claims({})) is None
    assert not (home / "README.md").exists()
