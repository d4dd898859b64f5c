from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from aftlib.reports import documents
from aftlib.reports.claims import (
    MIME,
    ClaimRecord,
    Scorecard,
    Settled,
    claims_table,
    settle,
    shown,
    shown_interval,
    tally,
    unexpected,
)
from aftlib.reports.documents import CLAIMS, DOCUMENTS, STATEMENTS, UNITS, Claim
from tests.tiny_project import only_tiny_claims

SETTLED = Settled("D1-1", 0.05, 0.049, (0.04, 0.06), "holds", "measured", "")


@pytest.fixture(autouse=True)
def tiny_claims(monkeypatch):
    only_tiny_claims(monkeypatch)


def record(id: str = "D1-1", holds: bool = True) -> ClaimRecord:
    return ClaimRecord.of(settle(id, expected=1, measured=2, holds=holds), "01_x", "quick")


def shown_html(*settled: Settled) -> str:
    return Scorecard(settled)._repr_mimebundle_()["text/html"]


def test_every_claim_of_d1_is_registered():
    assert [id for id in CLAIMS if CLAIMS[id].document == "D1"] == [f"D1-{i}" for i in range(1, 6)]


def test_what_is_said_of_a_claim_is_said_of_one_that_there_is():
    assert documents.STATEMENTS.keys() >= documents.DEVIATING | documents.TIMED


def test_documents_name_notebooks_in_order():
    notebooks = [document.notebook for document in DOCUMENTS.values()]
    assert notebooks == sorted(set(notebooks))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "D99-1"}, "claim id 'D99-1' must begin with one of D1, D2"),
        ({"recorded": "maybe"}, "recorded verdict 'maybe' of D1-1 is not one of"),
    ],
)
def test_a_claim_must_fit(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CLAIMS["D1-1"], **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "D1-99"}, "claim id 'D1-99' is not known; known are D1-1, D1-2"),
        ({"verdict": "true"}, "verdict 'true' is not one of holds, deviates, undecided, not run"),
        ({"basis": "guessed"}, "basis 'guessed' is not one of measured, modelled, derived"),
        ({"expected": float("nan")}, "expected must be a finite number, a text or None, got nan"),
        ({"measured": np.inf}, "measured must be a finite number"),
        ({"measured": True}, "measured must be a finite number, a text or None, got True"),
        ({"measured": [1, 2]}, "measured must be a finite number"),
        ({"interval": (0.2, 0.1)}, "interval must run from low to high"),
        ({"interval": (0.1,)}, r"interval must be \(low, high\) or None"),
        ({"interval": (None, 0.1)}, r"interval must be \(low, high\) or None"),
        ({"interval": (0.1, float("nan"))}, "interval must be a finite number"),
    ],
)
def test_a_verdict_must_fit(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SETTLED, **change)


def test_values_of_numpy_become_plain():
    settled = settle(
        "D1-2",
        expected=np.int64(3),
        measured=np.float32(0.5),
        holds=np.bool_(False),
        interval=np.array([0.25, 0.75]),
    )
    assert json.loads(json.dumps(Scorecard([settled])._repr_mimebundle_()[MIME])) == [
        {
            "id": "D1-2",
            "expected": 3,
            "measured": 0.5,
            "interval": [0.25, 0.75],
            "verdict": "deviates",
            "basis": "measured",
            "note": "",
        }
    ]


def test_settled_values_do_not_change():
    with pytest.raises(FrozenInstanceError):
        SETTLED.verdict = "deviates"


@pytest.mark.parametrize("holds", [1, 0.0, "holds", None])
def test_holds_is_a_truth_value(holds):
    with pytest.raises(ValueError, match="holds must be True or False"):
        settle("D1-1", expected=1, measured=1, holds=holds)


def test_a_scorecard_is_a_table_and_a_record():
    bundle = Scorecard([SETTLED])._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain", MIME}
    line = bundle[MIME][0]
    assert Settled(**line) == SETTLED
    assert bundle["text/plain"] == "D1-1: holds"
    assert CLAIMS["D1-1"].statement in bundle["text/html"]
    assert 'id="claim-D1-1"' in bundle["text/html"]


def test_a_verdict_is_told_by_word_and_symbol_not_by_colour_alone():
    html = shown_html(SETTLED, replace(SETTLED, id="D1-2", verdict="deviates"))
    assert "✔ holds" in html and "✘ deviates" in html and "measured<br>recorded: holds" in html


def test_as_recorded_is_said_of_a_profiles_own_values_only():
    def verdict_cell(*about) -> str:
        return claims_table([ClaimRecord.of(SETTLED, "01_x", *about)]).rpartition("<td>")[2]

    assert "<small>measured<br>as recorded<" in verdict_cell("quick")
    assert "<small>measured<" in verdict_cell()  # a notebook by itself knows no profile
    changed = verdict_cell("quick", {"seed": 7, "file": "<" * 50})
    assert "as recorded" not in changed and "<br>seed = 7, not the default<br>" in changed
    assert f"file = &quot;{'&lt;' * 37} …, not the default" in changed


def test_what_is_out_of_date_shows_what_it_was():
    old = ClaimRecord.of(SETTLED, "01_x", "quick").outdated()
    assert (old.verdict, old.earlier) == ("not run", "holds")
    (row,) = claims_table([old], link=True).split("<tbody>")[1].split("</tr>")[:-1]
    assert 'class="aft-earlier"' in row and 'href="01_x.html#claim-D1-1"' in row
    assert "0.049" in row and "[0.04, 0.06]" in row
    assert "○ out of date" in row and "was ✔ holds" in row
    assert unexpected([old]) == [old]


def test_texts_are_escaped():
    html = shown_html(replace(SETTLED, note="<script>", expected="a < b"))
    assert "&lt;script&gt;" in html and "a &lt; b" in html and "<script>" not in html


def test_a_claim_is_settled_once_a_scorecard():
    with pytest.raises(ValueError, match="settled holds D1-1 more than once"):
        Scorecard([SETTLED, SETTLED])


def test_links_lead_to_the_line_in_the_report():
    assert 'href="01_x.html#claim-D1-1"' in claims_table([record()], link=True)
    not_run = replace(record(), verdict="not run")
    assert "href" not in claims_table([not_run], link=True)


def test_unexpected_are_those_that_differ_from_the_recorded_verdict(monkeypatch):
    monkeypatch.setitem(CLAIMS, "D1-3", Claim("D1-3", "It does not hold.", "deviates"))
    claims = [
        record("D1-1"),
        record("D1-2", holds=False),
        record("D1-3", holds=False),
        replace(record("D1-4"), verdict="not run"),
    ]
    assert [claim.id for claim in unexpected(claims)] == ["D1-2", "D1-4"]


def test_tally_counts_every_verdict():
    counts = {"holds": 2, "deviates": 0, "undecided": 0, "not run": 1}
    assert tally(["holds", "holds", "not run"]) == counts


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), ("≤ 1", "≤ 1"), (12345, "12,345"), (0.049123, "0.04912"), (1e-9, "1e-09")],
)
def test_values_are_shown_short(value, text):
    assert shown(value) == text


def test_intervals_are_shown_in_brackets():
    assert shown_interval((0.0412345, 2.0)) == "[0.04123, 2]"
    assert shown_interval(None) == "–"


def test_a_timed_claim_of_the_smoke_profile_is_no_alarm(monkeypatch):
    monkeypatch.setitem(CLAIMS, "D1-3", replace(CLAIMS["D1-3"], timed=True))
    slow = Settled("D1-3", 0.9, 0.5, None, "deviates", "measured", "")
    assert unexpected([ClaimRecord.of(slow, profile="smoke")]) == []
    (alarm,) = unexpected([ClaimRecord.of(slow, profile="quick")])
    assert alarm.id == "D1-3"
    assert unexpected([ClaimRecord.of(replace(slow, id="D1-1"), profile="smoke")])
    assert unexpected([ClaimRecord.of(replace(slow, verdict="not run"), profile="smoke")])


def test_a_number_has_its_unit_and_a_text_says_its_own():
    assert set(STATEMENTS) - set(UNITS) == {"D4-2", "D4-4", "D4-5", "D4-6", "F-1"}  # texts
    number = ClaimRecord.of(settle("D1-3", expected="≤ 0.05", measured=0.049, holds=True))
    assert '<td class="aft-value">0.049 <small>of the estimates</small></td>' in claims_table(
        [number]
    )
    text = ClaimRecord.of(settle("D1-3", expected="≤ 5 %", measured="4 %", holds=True))
    assert '<td class="aft-value">4 %</td>' in claims_table([text])


def test_why_a_claim_deviates_is_not_folded():
    for holds, head in ((True, "<details><summary>"), (False, "<details open><summary>")):
        found = settle("D1-3", expected=1, measured=2, holds=holds, note="A ratio. Because of it.")
        assert f"{head}A ratio.</summary>Because of it." in claims_table([ClaimRecord.of(found)])
