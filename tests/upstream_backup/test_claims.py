"""Each verdict of D4 comes out as recorded, and turns when the code or the data are made wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.upstream_backup import claims, experiments, recursion, routes
from aftlib.upstream_backup.claims import CLAIMS
from aftlib.upstream_backup.closed_form import Traffic
from aftlib.upstream_backup.experiments.recoveries import one_point
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES
from tests import judging

CASE = experiments.Sweep((200, 1000, 5000), 12, seed=1)


def trials_of(case=CASE):
    """What `recoveries` returns, without Spark."""
    points = [(s, r, 0, case.drawn(r)) for r in case.rates for s in SCHEMES]
    return pd.DataFrame([row for point in points for row in one_point(point)])


FRAMES = {
    "found": trials_of,
    "parts": experiments.tcp_parts,
    "costs": lambda: experiments.overheads(CASE),
    "ns3": experiments.against_ns3,
    "counted": experiments.counted_traffic,
}
NEEDED = {
    "D4-1": ["found"],
    "D4-2": ["found"],
    "D4-3": ["found", "ns3"],
    "D4-4": ["parts"],
    "D4-5": ["costs", "counted"],
    "D4-6": ["found"],
}


def record(id, **frames):
    """What is found about a claim by these frames, the others as the code makes them now."""
    given = {name: frames.get(name) for name in NEEDED[id]}
    given = {name: FRAMES[name]() if frame is None else frame for name, frame in given.items()}
    return judging.judged(CLAIMS, given, id)[id]


def verdict(id, **frames):
    return record(id, **frames).verdict


@pytest.fixture(scope="module")
def usual():
    return judging.judged(CLAIMS, {name: frame() for name, frame in FRAMES.items()})


def test_all_claims_come_out_as_recorded(usual):
    assert [id for id, found in usual.items() if not found.as_recorded] == []


@pytest.mark.parametrize("share", [0.999, 0.1])
def test_d4_1_turns_with_the_primarys_share(share, monkeypatch):
    """Nothing is saved, or far more than the half that the closed form leaves."""

    def uneven(parameters, time):
        return np.asarray(time) % 200_000_000 < share * 200_000_000

    monkeypatch.setattr(recursion, "primary_turn", uneven)
    assert verdict("D4-1") == "deviates"


def test_d4_2_turns_when_the_difference_does_not_grow(monkeypatch):
    monkeypatch.setattr(experiments.Sweep, "at", lambda case, rate: case.parameters)
    assert verdict("D4-2") == "deviates"


def test_d4_2_turns_when_low_rates_differ_as_much(monkeypatch):
    fewer = experiments.saved(trials_of(), "resent")
    flat = fewer.assign(**{name: 90.0 for name in ("mean", "low", "high")})
    for saved in (flat, -fewer.assign(rate=-fewer["rate"])):
        monkeypatch.setattr(claims, "saved", lambda *given, saved=saved: saved)
        assert verdict("D4-2") == "deviates"


@pytest.mark.parametrize("rates", [(5000, 10_000), (1000, 1001), (200, 300, 400)])
def test_d4_2_raises_no_alarm_for_few_or_close_rates(rates):
    assert verdict("D4-2", found=trials_of(experiments.Sweep(rates, 4))) == "holds"


def test_d4_2_cannot_be_told_from_one_rate():
    found = record("D4-2", found=trials_of(experiments.Sweep((1000,), 4)))
    assert (found.verdict, found.note[:22]) == ("not run", "Growth needs two rates")


def test_d4_3_turns_when_upstream_is_as_quick(monkeypatch):
    warm = replace(SCHEMES["upstream backup"], warm=True)
    monkeypatch.setitem(SCHEMES, warm.name, warm)
    assert verdict("D4-3") == "deviates"


def test_d4_3_turns_when_the_proposal_is_too_quick(monkeypatch):
    """Half the time that ns-3 takes is no good news."""
    whole = recursion.Recovery._since
    monkeypatch.setattr(recursion.Recovery, "_since", lambda *given: whole(*given) / 2)
    assert verdict("D4-3") == "deviates"


def test_d4_3_turns_when_the_proposal_is_slower():
    found = trials_of()
    slow = found["recovery_ms"].mask(found["scheme"] == PROPOSED.name, 1000.0)
    assert verdict("D4-3", found=found.assign(recovery_ms=slow)) == "deviates"


def test_d4_4_is_open_when_the_simulation_has_no_window(monkeypatch):
    monkeypatch.setattr(routes, "slow_start", lambda at, takes, *limits: routes.lindley(at, takes))
    found = record("D4-4")
    assert (found.verdict, found.note[:28]) == ("not run", "Simulation and ns-3 disagree")


def test_d4_4_turns_when_nagle_costs_much():
    parts = experiments.tcp_parts()
    slow = parts.assign(ns3_ms=parts["ns3_ms"].mask(parts["switch"] == "Nagle on", 100.0))
    found = record("D4-4", parts=slow)
    assert found.verdict == "holds"
    assert "does make most" in found.note


def test_d4_5_turns_with_the_denominator(monkeypatch, usual):
    """By the stream into the node alone the claim holds, and the note says so."""
    assert "the claim does hold" in usual["D4-5"].note
    monkeypatch.setattr(Traffic, "share_of_all", Traffic.relative_to_input)
    assert verdict("D4-5") == "holds"
    monkeypatch.setattr(Traffic, "relative_to_input", Traffic.relative)
    assert "the claim does not hold" in record("D4-5").note


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((1.0, 0.3, 0.01), "holds"),
        ((0.5, 0.3, 0.01), "deviates"),
        ((2.0, 0.3, 0.01), "deviates"),
        ((1.0, 1.0, 0.01), "deviates"),
        ((1.0, 0.3, 0.2), "deviates"),
    ],
)
def test_every_part_of_the_overheads_counts(shares, expected):
    costs = experiments.overheads(CASE)
    value = costs["scheme"].map(dict(zip(claims.HWANG, shares, strict=True)))
    named = costs.assign(share_of_all=value.fillna(costs["share_of_all"]))
    assert verdict("D4-5", costs=named) == expected


def test_d4_5_is_open_when_the_closed_form_misses_traffic(monkeypatch):
    """A seventh less: as when the ACKs at a switch were left out."""
    whole = Traffic.availability.fget
    monkeypatch.setattr(Traffic, "availability", property(lambda found: 0.86 * whole(found)))
    found = record("D4-5")
    assert (found.verdict, found.note[:29]) == ("not run", "Closed form and ns-3 disagree")


def test_d4_6_turns_when_checkpoints_empty_no_queue(monkeypatch):
    monkeypatch.setattr(recursion, "checkpointed", lambda *given: 0)
    assert verdict("D4-6") == "deviates"


def test_d4_6_turns_when_active_standby_processes_again():
    found = trials_of()
    slow = found["restored_ms"].mask(found["scheme"] == "active standby", 1000.0)
    assert verdict("D4-6", found=found.assign(restored_ms=slow)) == "deviates"
