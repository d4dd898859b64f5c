"""Each verdict of D4 comes out as recorded, and turns when the code or the data are made wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.reports.documents import CLAIMS
from aftlib.upstream_backup import experiments, recursion, routes, verdicts
from aftlib.upstream_backup.closed_form import Traffic
from aftlib.upstream_backup.experiments.recoveries import one_point
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES

CASE = experiments.Sweep((200, 1000, 5000), 12, seed=1)


def trials_of(case=CASE):
    """What `recoveries` returns, without Spark."""
    points = [(s, r, 0, case.drawn(r)) for r in case.rates for s in SCHEMES]
    return pd.DataFrame([row for point in points for row in one_point(point)])


def verdict(name):
    """What the code as it is now makes of a claim."""
    given = {
        "D4-1": lambda: verdicts.sends_less(experiments.saved(trials_of(), "resent")),
        "D4-2": lambda: verdicts.grows_with_rate(experiments.saved(trials_of(), "resent")),
        "D4-3": lambda: verdicts.recovers_sooner(
            experiments.saved(trials_of(), "recovery_ms"), experiments.against_ns3()
        ),
        "D4-4": lambda: verdicts.blames_nagle(experiments.tcp_parts()),
        "D4-5": lambda: verdicts.costs_as_named(
            experiments.overheads(CASE), experiments.counted_traffic()
        ),
        "D4-6": lambda: verdicts.recovers_as_named(trials_of()),
    }
    return given[name]()


@pytest.fixture(scope="module")
def usual():
    costs, ns3 = experiments.overheads(CASE), experiments.against_ns3()
    counted = experiments.counted_traffic()
    found = verdicts.verdicts(trials_of(), experiments.tcp_parts(), costs, ns3, counted)
    return {one.id: one for one in found}


def test_all_come_out_as_recorded(usual):
    recorded = {name: claim.recorded for name, claim in CLAIMS.items() if claim.document == "D4"}
    assert {name: one.verdict for name, one in usual.items()} == recorded


@pytest.mark.parametrize("share", [0.999, 0.1])
def test_d4_1_turns_with_the_primarys_share(share, monkeypatch):
    """Nothing is saved, or far more than the half that the closed form leaves."""

    def uneven(parameters, time):
        return np.asarray(time) % 200_000_000 < share * 200_000_000

    monkeypatch.setattr(recursion, "primary_turn", uneven)
    assert verdict("D4-1").verdict == "deviates"


def test_d4_2_turns_when_the_difference_does_not_grow(monkeypatch):
    monkeypatch.setattr(experiments.Sweep, "at", lambda case, rate: case.parameters)
    assert verdict("D4-2").verdict == "deviates"


def test_d4_2_turns_when_low_rates_differ_as_much(usual):
    fewer = experiments.saved(trials_of(), "resent")
    flat = fewer.assign(**{name: 90.0 for name in ("mean", "low", "high")})
    assert verdicts.grows_with_rate(flat).verdict == "deviates"
    assert verdicts.grows_with_rate(-fewer.assign(rate=-fewer["rate"])).verdict == "deviates"


@pytest.mark.parametrize("rates", [(5000, 10_000), (1000, 1001), (200, 300, 400)])
def test_d4_2_raises_no_alarm_for_few_or_close_rates(rates):
    found = experiments.saved(trials_of(experiments.Sweep(rates, 4)), "resent")
    assert verdicts.grows_with_rate(found).verdict == "holds"


def test_d4_2_cannot_be_told_from_one_rate():
    found = verdicts.grows_with_rate(
        experiments.saved(trials_of(experiments.Sweep((1000,), 4)), "resent")
    )
    assert (found.verdict, found.note[:22]) == ("not run", "Growth needs two rates")


def test_d4_3_turns_when_upstream_is_as_quick(monkeypatch):
    warm = replace(SCHEMES["upstream backup"], warm=True)
    monkeypatch.setitem(SCHEMES, warm.name, warm)
    assert verdict("D4-3").verdict == "deviates"


def test_d4_3_turns_when_the_proposal_is_too_quick(monkeypatch):
    """Half the time that ns-3 takes is no good news."""
    whole = recursion.Recovery._since
    monkeypatch.setattr(recursion.Recovery, "_since", lambda *given: whole(*given) / 2)
    assert verdict("D4-3").verdict == "deviates"


def test_d4_3_turns_when_the_proposal_is_slower():
    found = trials_of()
    slow = found["recovery_ms"].mask(found["scheme"] == PROPOSED.name, 1000.0)
    sooner = experiments.saved(found.assign(recovery_ms=slow), "recovery_ms")
    assert verdicts.recovers_sooner(sooner, experiments.against_ns3()).verdict == "deviates"


def test_d4_4_is_open_when_the_simulation_has_no_window(monkeypatch):
    monkeypatch.setattr(routes, "slow_start", lambda at, takes, *limits: routes.lindley(at, takes))
    found = verdict("D4-4")
    assert (found.verdict, found.note[:28]) == ("not run", "Simulation and ns-3 disagree")


def test_d4_4_turns_when_nagle_costs_much():
    parts = experiments.tcp_parts()
    slow = parts.assign(ns3_ms=parts["ns3_ms"].mask(parts["switch"] == "Nagle on", 100.0))
    found = verdicts.blames_nagle(slow)
    assert found.verdict == "holds"
    assert "does make most" in found.note


def test_d4_5_turns_with_the_denominator(monkeypatch, usual):
    """By the stream into the node alone the claim holds, and the note says so."""
    assert "the claim does hold" in usual["D4-5"].note
    monkeypatch.setattr(Traffic, "share_of_all", Traffic.relative_to_input)
    assert verdict("D4-5").verdict == "holds"
    monkeypatch.setattr(Traffic, "relative_to_input", Traffic.relative)
    assert "the claim does not hold" in verdict("D4-5").note


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((1.0, 0.3, 0.01), "holds"),
        ((0.5, 0.3, 0.01), "deviates"),
        ((2.0, 0.3, 0.01), "deviates"),
        ((1.0, 1.0, 0.01), "deviates"),
        ((1.0, 0.3, 0.2), "deviates"),
    ],
)
def test_every_part_of_the_overheads_counts(shares, verdict):
    costs = experiments.overheads(CASE)
    value = costs["scheme"].map(dict(zip(verdicts.HWANG, shares, strict=True)))
    named = costs.assign(share_of_all=value.fillna(costs["share_of_all"]))
    assert verdicts.costs_as_named(named, experiments.counted_traffic()).verdict == verdict


def test_d4_5_is_open_when_the_closed_form_misses_traffic(monkeypatch):
    """A seventh less: as when the ACKs at a switch were left out."""
    whole = Traffic.availability.fget
    monkeypatch.setattr(Traffic, "availability", property(lambda found: 0.86 * whole(found)))
    found = verdict("D4-5")
    assert (found.verdict, found.note[:29]) == ("not run", "Closed form and ns-3 disagree")


def test_d4_6_turns_when_checkpoints_empty_no_queue(monkeypatch):
    monkeypatch.setattr(recursion, "checkpointed", lambda *given: 0)
    assert verdict("D4-6").verdict == "deviates"


def test_d4_6_turns_when_active_standby_processes_again():
    found = trials_of()
    slow = found["restored_ms"].mask(found["scheme"] == "active standby", 1000.0)
    assert verdicts.recovers_as_named(found.assign(restored_ms=slow)).verdict == "deviates"
