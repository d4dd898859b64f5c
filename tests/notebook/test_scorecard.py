"""A scorecard is a table for readers and a record for programs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from aftlib.notebook.claims import Claim, Finding, Threshold
from aftlib.notebook.scorecard import MIME, ClaimRecord, Scorecard, claims_table, unexpected


def claim(id="D1-1", **about) -> Claim:
    usual = {"quote": "It is <so>.", "section": "6.2", "main": "m is at least 3"}
    usual |= {"judge": lambda m: Finding(m, (m - 0.5, m + 0.5), n=12, counted="kills")}
    return Claim(id, **usual | {"threshold": Threshold("ours", low=3)} | about)


def record(m=4.0, profile="quick", **about) -> ClaimRecord:
    (made,) = Scorecard([claim(**about)], {"m": m}).records
    return made.with_run("01_x", profile)


def test_a_record_survives_the_notebooks_file():
    bundle = Scorecard([claim()], {"m": 4})._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain", MIME}
    assert ClaimRecord(**bundle[MIME][0]).with_run("01_x", "quick") == record(4)
    assert bundle["text/plain"] == "D1-1: holds"


def test_a_record_has_the_fields_that_programs_read():
    promised = "id document quote section expected measured interval verdict condition basis n"
    assert {*promised.split(), "sensitivity", "notebook", "profile"} <= record().model_dump().keys()


@pytest.mark.parametrize("change", [{"verdict": "true"}, {"basis": "guessed"}, {"measured": 1e999}])
def test_a_record_must_fit(change):
    line = record().model_dump(mode="json")
    with pytest.raises(ValidationError, match=next(iter(change))):
        ClaimRecord(**(line | change))


def test_the_table_escapes_texts_and_shows_what_does_not_hold_first():
    html = claims_table([record(), record(1.0, id="D1-2")])
    assert "It is &lt;so&gt;. <small>(6.2)</small>" in html
    assert html.index("D1-2") < html.index("D1-1")
    assert "✘ does not hold" in html and "measured, 12 kills" in html


def test_the_condition_stands_beside_holds_if():
    made = record(condition="there are 10⁵ keys", recorded="holds if")
    assert made.word == "✔ holds if there are 10⁵ keys"


def test_a_condition_of_the_run_replaces_the_claims():
    made = record(
        condition="there are {n} keys",
        recorded="holds if",
        judge=lambda m: Finding(m, condition="there are 700 keys"),
    )
    assert made.word == "✔ holds if there are 700 keys"


def test_too_few_measured_times_are_counted_in_the_number():
    about = {"unit": "ms", "judge": lambda m: Finding(m, n=2, counted="turns, of one machine")}
    assert record(timed=True, **about).number == "4 ms; not enough turns (2)"
    assert record(**about).number == "4 ms"


@pytest.mark.parametrize(
    ("m", "about", "surprising", "contradicting"),
    [
        (4.0, {}, False, False),
        (1.0, {}, True, True),
        (3.2, {}, True, False),  # open
        (1.0, {"timed": True}, True, False),
        (1.0, {"timed": True, "profile": "smoke"}, False, False),
        (1.0, {"profile": "smoke"}, True, True),
        (3.2, {"profile": "smoke"}, False, False),
    ],
)
def test_a_verdict_against_its_record(m, about, surprising, contradicting):
    made = record(m, **about)
    assert bool(unexpected([made])) == surprising
    assert made.contradicts == contradicting or not surprising


def test_not_run_is_always_unexpected():
    (made,) = Scorecard([claim(judge=lambda: Finding(None, missing="no Spark"))], {}).records
    assert made.verdict == "not run" and made.sensitivity == "no Spark"
    assert unexpected([made.with_run("01_x", "smoke")])
