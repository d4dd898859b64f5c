"""Counts and times that can be said without a simulation."""

import math
from dataclasses import replace

import pytest

from aftlib.upstream_backup.closed_form import expected_resent
from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.parameters import Link, Parameters, Tcp
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.routes import NEVER
from aftlib.upstream_backup.schemes import ACTIVE, ACTIVE_WAN, PASSIVE, PROPOSED, SCHEMES, UPSTREAM
from tests.upstream_backup import event_simulation
from tests.upstream_backup.trials import mean_of

P = Parameters(rate=1000)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda s: s.name)
@pytest.mark.parametrize("node", ["primary", "secondary"])
@pytest.mark.parametrize("twin", [simulate, event_simulation.simulate], ids=["fast", "events"])
def test_nothing_is_lost(scheme, node, twin):
    found = twin(P, scheme, [Failure(777.7, node)])
    assert found.delivered.max() < NEVER
    assert (found.copies >= 1).all()
    assert (found.copies > 1).sum() >= found.recoveries[0].duplicates


def test_an_idle_nodes_death_costs_nothing():
    for scheme in (UPSTREAM, PASSIVE, ACTIVE):
        found = simulate(P, scheme, [Failure(2000.5, "secondary")]).recoveries[0]
        assert (len(found.resent), found.recovery_ms, found.caught_up_ms) == (0, 0, 0)


def test_the_proposal_recovers_from_either_node():
    both = [mean_of(PROPOSED, P, lambda r: len(r.resent), node=n) for n in ("primary", "secondary")]
    assert sum(both) == pytest.approx(2 * expected_resent(P, PROPOSED), rel=0.05)


def test_the_wan_variant_has_no_gap():
    found = simulate(P, ACTIVE_WAN, [Failure(2000.5)])
    assert (found.copies[:1900] == 2).all()
    assert (found.delivered - found.written).max() == (found.delivered - found.written).min()


def test_recovery_of_a_small_queue_can_be_added_up():
    """All segments on the wire, one way, and the work on the last ones."""
    parameters = Parameters(rate=200, tcp=Tcp(handshake=False, initial_window=None))
    found = simulate(parameters, UPSTREAM, [Failure(2000.5)]).recoveries[0]
    full, rest = divmod(len(found.resent), 9)
    sent = full * parameters.link.wire_ns(9 * 58)
    wire = parameters.link.wire_ns(rest * 58)
    expected = sent + max(wire, 90_000) + 5_000_000 + rest * 10_000
    assert (full, rest) == (3, 2)
    assert found.recovery_ms == expected / 1e6


def test_tcp_switches_cost_what_they_should():
    times = {
        (handshake, window): mean_of(
            UPSTREAM, replace(P, tcp=Tcp(handshake, window)), lambda r: r.recovery_ms, count=20
        )
        for handshake in (True, False)
        for window in (1, 10, None)
    }
    gone = times[True, None] - times[False, None]
    assert gone == pytest.approx(P.handshake_ns / 1e6, abs=0.3)
    assert 15 < times[True, 1] - times[True, 10] < 35
    assert times[True, 10] > times[True, None]


def test_recovery_is_nearly_bandwidth_at_high_rates():
    parameters = Parameters(rate=20_000)
    found = simulate(parameters, PROPOSED, [Failure(2050.5)]).recoveries[0]
    wire = len(found.resent) / 9 * parameters.link.wire_ns(9 * 58) / 1e6
    assert found.recovery_ms == pytest.approx(wire + 5, abs=0.5)


def test_a_slower_survivor_recovers_later():
    slow = replace(P, secondary_us=500.0)
    assert mean_of(PROPOSED, slow, lambda r: r.recovery_ms, 10) > 2 * mean_of(
        PROPOSED, P, lambda r: r.recovery_ms, 10
    )


def test_failures_in_a_row_lose_nothing():
    failures = [Failure(2000.5), Failure(4001.5, "secondary"), Failure(6002.5), Failure(8003.5)]
    for scheme in (UPSTREAM, PROPOSED):
        found = simulate(P, scheme, failures)
        assert (found.copies >= 1).all()
        assert [r.downtime.failure for r in found.recoveries] == failures
    idle = simulate(P, UPSTREAM, failures).recoveries[3]
    assert len(idle.resent) == 0  # by then the primary stands by


def test_a_wider_link_shortens_recovery():
    wide = replace(P, link=Link(bandwidth_mbps=160))
    found = [mean_of(UPSTREAM, p, lambda r: r.recovery_ms, 5) for p in (P, wide)]
    assert found[1] < found[0]


def test_a_result_on_a_slow_link_is_a_duplicate_too():
    """It left the node before the crash and comes after the request: downstream gets it twice."""
    slow = Parameters(
        rate=332.104229, ack_ms=3.000001, heartbeat_ms=4.000001, switching_ms=40.000001,
        write_ms=19.572349, processing_us=5.001, secondary_us=6.211, message_bytes=8,
        link=Link(bandwidth_mbps=0.600001, delay_ms=0.725555, header_bytes=60),
        tcp=Tcp(handshake=False, segment_bytes=1500),
    )  # fmt: skip
    for twin in (simulate, event_simulation.simulate):
        found = twin(slow, ACTIVE, [Failure(46.903431)])
        (recovery,) = found.recoveries
        assert recovery.duplicates == (found.copies[recovery.resent] > 1).sum() == 7


def test_a_survivor_that_dies_while_it_processes_again_is_said_to():
    """Both nodes work at 95 % of what they can, so a queue takes long to be processed again."""
    busy = Parameters(rate=1900, processing_us=500, heartbeat_ms=1000, repair_ms=20)
    failures = [Failure(1000.5), Failure(2200.5, "secondary")]
    for twin in (simulate, event_simulation.simulate):
        found = twin(busy, PROPOSED, failures)
        first, second = found.recoveries
        assert first.interrupted
        assert not second.interrupted
        assert first.recovery_ms == first.restored_ms == first.caught_up_ms == math.inf
        assert 0 < second.recovery_ms < math.inf
        assert (found.copies > 0).all()
