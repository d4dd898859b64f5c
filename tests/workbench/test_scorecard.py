"""Records of claims, the scorecard that shows them, and what `aft reproduce` makes of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from aftlib.reports.documents import DOCUMENTS, all_claims
from aftlib.workbench.claims import Claim, Finding, Threshold
from aftlib.workbench.scorecard import MIME, ClaimRecord, Scorecard, claims_table, unexpected
from tests.tiny_project import only_tiny_claims, settled

CLAIM = Claim(
    "D1-1",
    "It is so.",
    lambda m: Finding(m, (m - 0.5, m + 0.5), n=12, counted="kills"),
    threshold=Threshold("ours", low=3),
    source="fig. 1",
)


@pytest.fixture(autouse=True)
def tiny_claims(monkeypatch):
    only_tiny_claims(monkeypatch)


def shown_html(*claims: Claim, m=4) -> str:
    return Scorecard(claims, {"m": m})._repr_mimebundle_()["text/html"]


def test_every_package_lists_the_claims_of_its_document():
    all_claims.cache_clear()
    assert {claim.document for claim in all_claims().values()} == set(DOCUMENTS)
    notebooks = [document.notebook for document in DOCUMENTS.values()]
    assert notebooks == sorted(set(notebooks))
    assert [id for id in all_claims() if id.startswith("D1-")] == [
        f"D1-{i}" for i in range(1, sum(c.document == "D1" for c in all_claims().values()) + 1)
    ]


@pytest.mark.parametrize(
    "change",
    [{"verdict": "true"}, {"basis": "guessed"}, {"version": 1}, {"measured": float("inf")}],
    ids=str,
)
def test_a_record_must_fit(change):
    line = settled("D1-1").model_dump(mode="json")
    assert ClaimRecord(**line) == settled("D1-1")
    with pytest.raises(ValidationError, match=next(iter(change))):
        ClaimRecord(**(line | change))


def test_a_scorecard_is_a_table_and_a_record():
    bundle = Scorecard([CLAIM], {"m": 4})._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain", MIME}
    assert ClaimRecord(**bundle[MIME][0]) == ClaimRecord.of(CLAIM, CLAIM.judge(4))
    assert bundle["text/plain"] == "D1-1: holds"
    assert "It is so. <small>(fig. 1)</small>" in bundle["text/html"]
    assert 'id="claim-D1-1"' in bundle["text/html"]


OTHERS = {"by Hwang": Finding(2.5), "by D4": Finding(4)}


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({}, ["✔ holds", "n = 12 kills", "detects ± 0.71", ">threshold (ours)</small>"]),
        ({"threshold": Threshold("ours", low=5)}, ["✘ deviates", "measured<br>recorded: holds"]),
        (
            {"judge": lambda m: Finding(m, readings=OTHERS)},
            [
                "≈ undecided",
                "Other readings: 1 holds, 1 deviates",
                "by D4: 4, holds",
                "2.5, deviates",
            ],
        ),
        (
            {"judge": lambda m: Finding(m, parts={"air": Finding(2)})},
            ["✘ deviates", "Parts: 1 deviates", "air: 2, deviates"],
        ),
    ],
)
def test_a_scorecard_shows_what_a_verdict_follows_from(change, texts):
    html = shown_html(replace(CLAIM, **change))
    assert [text for text in texts if text not in html] == []
    assert "project" not in html


def decide_again(row) -> str:
    """The verdict of one row of `grounds`, from its numbers."""
    low, high = row["interval"] or [row["measured"]] * 2
    least, most = (
        end if row[name] is None else row[name]
        for name, end in (("low", float("-inf")), ("high", float("inf")))
    )
    inside = least <= low + row["margin"] and high - row["margin"] <= most
    if not row["conditions"] or low > most or high < least:
        return "deviates"
    return "holds" if inside and row["control"] else "undecided"


@pytest.mark.parametrize(
    "finding",
    [
        Finding(2, (1.75, 2.25), n=9, counted="kills"),
        Finding(2, readings={"wide": Finding(3, (1.5, 4)), "low": Finding(1)}),
        Finding(2, control=False, readings={"broken": Finding(2, conditions=False)}),
        Finding(4, threshold=Threshold("ours: another", high=3)),
        Finding(2, parts={"on air": Finding(1)}),
    ],
)
def test_a_verdict_can_be_decided_again_from_its_record(finding):
    claim = replace(CLAIM, threshold=Threshold("fig. 2", low=2, margin=0.25))
    record = ClaimRecord.of(claim, finding)
    stored = json.loads(record.model_dump_json())
    assert ClaimRecord(**stored) == record
    again = [decide_again(row) for row in stored["grounds"]]
    assert again == [row["verdict"] for row in stored["grounds"]]
    named = [row["reading"] or row["part"] for row in stored["grounds"]]
    assert named == ["", *finding.parts, *finding.readings]
    if not finding.parts:
        assert record.verdict == (again[0] if len(set(again)) == 1 else "undecided")


@pytest.mark.parametrize(
    ("finding", "reasons"),
    [
        (Finding(2, (1, 3)), ["interval crosses threshold: limit of the evidence"]),
        (Finding(3, control=False), ["control failed"]),
        (Finding(3, (2.5, 4), control=False), ["control failed"]),
        (Finding(3, readings={"low": Finding(1)}), ["readings disagree: gap of the document"]),
        (
            Finding(3, readings={"wide": Finding(2, (1, 3))}),
            ["interval crosses threshold: limit of the evidence"],
        ),
        (
            Finding(3, readings={"low": Finding(1), "wide": Finding(2, (1, 3))}),
            [
                "readings disagree: gap of the document",
                "interval crosses threshold: limit of the evidence",
            ],
        ),
        (Finding(1), []),
        (Finding(3), []),
    ],
)
def test_an_undecided_verdict_names_its_reasons(finding, reasons):
    record = ClaimRecord.of(replace(CLAIM, threshold=Threshold("fig. 2", low=2)), finding)
    assert record.doubts == reasons
    assert record.remarks[: len(reasons)] == reasons
    assert record.model_copy(update={"grounds": []}).doubts == []


def test_the_projects_own_claims_follow_under_a_heading_of_their_own():
    own, document = replace(CLAIM, id="D1-1", project=True), replace(CLAIM, id="D1-2")
    html = shown_html(own, document)
    heading = html.index("The project's own claims")
    assert html.index("claim-D1-2") < heading < html.index("claim-D1-1")
    assert "own claims" not in shown_html(own)


def test_a_verdict_contradicts_its_record_only_when_both_are_decided_and_no_time_decides():
    decided, undecided = (
        settled("D1-1", holds=False),
        settled("D1-1", holds=False, recorded="undecided"),
    )
    assert decided.contradicts and not undecided.contradicts
    assert not settled("D1-1", holds=False, timed=True).contradicts


def test_as_recorded_is_shown_for_a_profiles_own_values_only():
    def verdict_cell(*about) -> str:
        table = claims_table([settled("D1-1").with_run("01_x", *about)])
        return table.rpartition("<td>")[2].replace("&#34;", "&quot;")

    assert "<small>measured<br>as recorded<" in verdict_cell("quick")
    assert "<small>measured<" in verdict_cell()  # a notebook by itself has no profile
    changed = verdict_cell("quick", {"seed": 7, "file": "<" * 50})
    assert "as recorded" not in changed and "<br>seed = 7, not the default<br>" in changed
    assert f"file = &quot;{'&lt;' * 37} …, not the default" in changed


def test_what_is_out_of_date_shows_what_it_was():
    old = settled("D1-1", 0.049, interval=(0.04, 0.06)).with_run("01_x", "quick").outdated()
    assert (old.verdict, old.earlier) == ("not run", "holds")
    (row,) = claims_table([old], link=True).split("<tbody>")[1].split("</tr>")[:-1]
    assert 'class="aft-earlier"' in row and 'href="01_x.html#claim-D1-1"' in row
    assert "0.049" in row and "[0.04, 0.06]" in row
    assert "○ out of date" in row and "was ✔ holds" in row
    assert unexpected([old]) == [old]


def test_a_claim_is_settled_once_a_scorecard():
    with pytest.raises(ValueError, match="claims holds D1-1 more than once"):
        Scorecard([CLAIM, CLAIM], {})


def test_links_lead_to_the_line_in_the_report():
    record = settled("D1-1").with_run("01_x")
    assert 'href="01_x.html#claim-D1-1"' in claims_table([record], link=True)
    not_run = record.model_copy(update={"verdict": "not run"})
    assert "href" not in claims_table([not_run], link=True)


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        ((0.049,), '<td class="aft-value">0.049 <small>of the estimates</small></td>'),
        (("4 %",), '<td class="aft-value">4 %</td>'),  # a text has its own unit
        ((1, True, None, "A. So."), "<details><summary>A.</summary>So."),
        ((1, False, None, "A. So."), "<details open><summary>A.</summary>So."),
        ((1, True, None, "<script>"), "&lt;script&gt;"),
    ],
)
def test_a_row_shows_its_value_and_its_note(finding, text):
    html = claims_table([settled("D1-3", *finding, expected="a < b")])
    assert text in html and "a &lt; b" in html and "<script>" not in html


def test_the_smoke_profile_decides_neither_times_nor_what_more_samples_may():
    differing = [
        settled("D1-1", holds=False, timed=True),
        settled("D1-2", recorded="undecided"),
        settled("D1-3", holds=False),
        settled("D1-4", timed=True).model_copy(update={"verdict": "not run"}),
    ]
    smoke = [claim.with_run("01_x", "smoke") for claim in differing]
    assert unexpected(smoke) == smoke[2:]
    quick = [claim.with_run("01_x", "quick") for claim in differing]
    as_recorded = [settled("D1-1"), settled("D1-2", holds=False, recorded="deviates")]
    assert unexpected([*quick, *as_recorded]) == quick
