"""Each claim has a table under which it turns, and turns under no other's."""

from types import SimpleNamespace

import pytest

from aftlib.core.requirement import Requirement
from aftlib.failure_drill.claims import CLAIMS
from tests import judging
from tests.failure_drill.tables import good_table, long_windows

DRILL = SimpleNamespace(
    requirement=Requirement(1, 0.05), windows=SimpleNamespace(width=20), event_batches=[(12, 12)]
)


def done(table, **long):
    drilled = SimpleNamespace(table=table, drill=DRILL, turns=5)
    return {"done": drilled, "long": long_windows(**long)}


def list_changed(table):
    return judging.list_changed(CLAIMS, done(table))


def verdict(claim, table=None, **changed):
    return judging.verdict(CLAIMS, done(good_table() if table is None else table, **changed), claim)


def test_all_claims_come_out_as_recorded():
    assert list_changed(good_table()) == set()


@pytest.mark.parametrize(
    ("scheme", "column", "value", "claims"),
    [
        ("at most once", "lost", 0, {"F-1"}),
        ("at most once", "doubled", 2, {"F-1"}),
        ("at least once", "doubled", 0, {"F-1"}),
        ("at least once", "lost", 1, {"F-1"}),
        ("exactly once", "lost", 1, {"F-2"}),
        ("exactly once", "doubled", 1, {"F-2"}),
        ("D3 shared state", "wrong", 1, {"F-2"}),
        ("D3 shared state", "doubled", 1, {"F-2"}),
        ("D1, its driver killed", "doubled", 1, {"F-2"}),
        ("D3, its supervisor killed", "faults", 0, {"F-2"}),
        ("D4 proposed", "lost", 24, {"F-2"}),
        ("D4 active standby, simulated", "lost", 24, set()),  # not in the claim
        ("exactly once", "faults", 0, {"F-2"}),  # no fault was injected
        ("D1 by model", "read", 0.35, {"F-3"}),
        ("D1 by model", "read", 0.21, {"F-3"}),
        ("D2 adaptive", "read", 0.40, {"F-4"}),
        ("D2 proposed", "read", 0.1, {"F-4"}),
        ("D1 by guard", "share_high", 0.94, {"F-5"}),
        ("D2 proposed", "lost", 1, {"F-5"}),
        ("D1 by model", "wrong", 1, {"F-5"}),
        ("D1 by guard", "overhead_low", 0.06, {"F-6"}),
    ],
)
def test_a_claim_turns(scheme, column, value, claims):
    table = good_table()
    table.loc[scheme, column] = value
    assert list_changed(table) == claims


@pytest.mark.parametrize(
    ("scheme", "values", "claims"),
    [
        ("D2 adaptive", {"planned": 1.0, "read": 1.0}, {"F-4"}),  # as planned, and nothing is saved
        ("D2 adaptive", {"read": float("nan")}, {"F-4"}),
        ("D1 by guard", {"wrong_promises": 9, "bound": 8.5}, {"F-5"}),
        ("D3 shared state", {"wrong": float("nan")}, {"F-2"}),
        ("D1 by guard", {"overhead": float("nan")}, {"F-6"}),
    ],
)
def test_what_is_missing_or_hidden_by_another_scheme_turns_a_claim(scheme, values, claims):
    table = good_table()
    table.loc[scheme, [*values]] = values.values()
    assert list_changed(table) == claims


@pytest.mark.parametrize(
    ("proposed_s", "expected"),
    [(0.030, "deviates"), (0.0205, "holds"), ([0.020, 0.021, 0.022, 0.021], "undecided")],
)
def test_the_interval_decides_on_checkpoints_of_long_windows(proposed_s, expected):
    assert verdict("F-7", proposed_s=proposed_s, adaptive_s=0.9) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.91, 0.98, "holds"), (0.88, 0.98, "undecided")]
)
def test_estimates_distinguish_the_guarantee_from_twice_its_failures(low, high, expected):
    table = good_table()
    table["share_low"] = table["share_low"].where(table["share_low"].isna(), low)
    table["share_high"] = table["share_high"].where(table["share_high"].isna(), high)
    assert verdict("F-5", table) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.01, 0.04, "holds"),
        (0.01, 0.08, "undecided"),
        (0.06, 0.08, "deviates"),
        (-0.2, -0.1, "undecided"),  # faster than without: the runs differ by something else
    ],
)
def test_the_interval_decides_on_the_cost_of_d1(low, high, expected):
    table = good_table()
    table.loc["D1 by guard", ["overhead_low", "overhead_high"]] = low, high
    assert verdict("F-6", table) == expected


def test_the_note_has_the_time_of_a_checkpoint_in_d2s_own_plan():
    record = judging.judge(CLAIMS, done(good_table()))["F-7"]
    assert record.measured == pytest.approx(0.5) and "A checkpoint adds 3.3 ms" in record.note
    assert "a window takes 933 ms to read. The checkpoints would be 1.1% of it" in record.note


def test_what_was_harmed_by_no_fault_bounds_the_rate_of_harm():
    note = judging.judge(CLAIMS, done(good_table()))["F-2"].note
    assert "D1, its driver killed: 6; D3, its supervisor killed: 6" in note
    assert "exclude only harm at a rate above 12% (exact" in note
    harmed = good_table()
    harmed.loc["exactly once", "lost"] = 1
    assert "exclude" not in judging.judge(CLAIMS, done(harmed))["F-2"].note


@pytest.mark.parametrize(("turns", "needed"), [(2, "6"), (20, "1,056")])
def test_the_turns_that_would_decide_an_overhead_are_those_of_its_own_spread(turns, needed):
    table = good_table()
    table.loc["D1 by guard", ["overhead", "overhead_low", "overhead_high"]] = 0.134, -0.343, 0.959
    frames = done(table)
    frames["done"].turns = turns
    assert f"Some {needed} turns would decide it" in judging.judge(CLAIMS, frames)["F-6"].note


def test_what_lacks_its_schemes_is_not_run():
    table = good_table().drop(index=["at most once", "D3 shared state"])
    table = table[~table.index.str.startswith(("D1", "D2"))]
    records = judging.judge(CLAIMS, done(table))
    verdicts = {record.verdict for id, record in records.items() if id != "F-7"}
    assert verdicts == {"not run"}  # F-7 has runs of its own
