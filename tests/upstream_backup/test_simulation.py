"""Counts and times that can be said without a simulation."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.upstream_backup.bandwidth import traffic
from aftlib.upstream_backup.closed_form import expected_queue, expected_resent, four_hops
from aftlib.upstream_backup.failures import Failure, failure_times
from aftlib.upstream_backup.parameters import Link, Parameters, Tcp
from aftlib.upstream_backup.run import NEVER
from aftlib.upstream_backup.schemes import ACTIVE, ACTIVE_WAN, PASSIVE, PROPOSED, SCHEMES, UPSTREAM
from aftlib.upstream_backup.simulation import simulate

P = Parameters(rate=1000)


def mean_of(scheme, parameters, measure, count=400, node="primary"):
    runs = (simulate(parameters, scheme, [Failure(t, node)]) for t in failure_times(count, 1))
    return float(np.mean([measure(run.recoveries[0]) for run in runs]))


@pytest.mark.parametrize("scheme", [PASSIVE, UPSTREAM, ACTIVE, PROPOSED], ids=lambda s: s.slug)
@pytest.mark.parametrize("rate", [200, 1000])
def test_the_closed_form_agrees(scheme, rate):
    """Within 2 % or a tuple; the rule of thumb within 5 % but for passive standby's two hops."""
    parameters = Parameters(rate=rate)
    resent = mean_of(scheme, parameters, lambda r: len(r.resent), 600)
    queue = mean_of(scheme, parameters, lambda r: r.queue_at_crash, 600)
    assert resent == pytest.approx(expected_resent(parameters, scheme), rel=0.02, abs=1)
    assert queue == pytest.approx(expected_queue(parameters, scheme), rel=0.05, abs=1)
    allowed = 0.09 if scheme is PASSIVE else 0.05
    assert resent == pytest.approx(four_hops(parameters, scheme), rel=allowed)


def test_a_checkpoints_time_on_the_wire_counts():
    parameters = Parameters(rate=20_000)
    queue = mean_of(PASSIVE, parameters, lambda r: r.queue_at_crash, 60)
    assert queue == pytest.approx(expected_queue(parameters, PASSIVE), rel=0.05)


def test_upstream_backups_queue_by_hand():
    assert expected_queue(P, UPSTREAM) == 32.5
    assert expected_resent(P, UPSTREAM) == 177.5
    assert four_hops(P, UPSTREAM) == 182.5
    assert expected_resent(P, PROPOSED) == 177.5 / 2
    assert expected_resent(P, ACTIVE_WAN) == four_hops(P, ACTIVE_WAN) == 0


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda s: s.slug)
@pytest.mark.parametrize("node", ["primary", "secondary"])
@pytest.mark.parametrize("engine", ["vectorised", "events"])
def test_nothing_is_lost(scheme, node, engine):
    run = simulate(P, scheme, [Failure(777.7, node)], engine=engine)
    assert run.delivered.max() < NEVER
    assert (run.copies >= 1).all()
    late = run.recoveries[0]
    assert (run.copies > 1).sum() >= late.duplicates


def test_an_idle_nodes_death_costs_nothing():
    for scheme in (UPSTREAM, PASSIVE, ACTIVE):
        found = simulate(P, scheme, [Failure(2000.5, "secondary")]).recoveries[0]
        assert (len(found.resent), found.recovery_ms, found.caught_up_ms) == (0, 0, 0)


def test_the_proposal_recovers_from_either_node():
    both = [mean_of(PROPOSED, P, lambda r: len(r.resent), node=n) for n in ("primary", "secondary")]
    assert sum(both) == pytest.approx(2 * expected_resent(P, PROPOSED), rel=0.05)


def test_the_wan_variant_has_no_gap():
    run = simulate(P, ACTIVE_WAN, [Failure(2000.5)])
    assert (run.copies[:1900] == 2).all()
    assert (run.delivered - run.written).max() == (run.delivered - run.written).min()


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
        run = simulate(P, scheme, failures)
        assert (run.copies >= 1).all()
        assert [r.outage.failure for r in run.recoveries] == failures
    idle = simulate(P, UPSTREAM, failures).recoveries[3]
    assert len(idle.resent) == 0  # by then the primary stands by


def test_traffic_by_hand():
    found = traffic(Parameters(rate=1000), UPSTREAM)
    assert found.stream == pytest.approx(2 * 1000 * (58 + 54), rel=1e-3)
    assert found.acks == 2 * 62 * 40
    assert found.heartbeats == 2 * 62 * 10
    assert traffic(P, PROPOSED).heartbeats == 2 * found.heartbeats
    assert found.copies == found.checkpoints == 0


def test_overheads_denominators():
    lan, wan = traffic(P, ACTIVE), traffic(P, ACTIVE_WAN)
    assert lan.copies == lan.into_node == lan.stream / 2
    assert lan.relative_to_input > 1 > lan.relative > lan.share_of_all
    assert wan.relative == pytest.approx(1, abs=0.02)
    assert wan.share_of_all == pytest.approx(0.5, abs=0.01)
    passive = traffic(P, PASSIVE)
    assert traffic(P, UPSTREAM).relative < passive.relative < lan.relative
    assert passive.checkpoints == 40 * (8 + 25 * 58 + 3 * 54 + 62)


def test_a_wider_link_shortens_recovery():
    wide = replace(P, link=Link(bandwidth_mbps=160))
    found = [mean_of(UPSTREAM, p, lambda r: r.recovery_ms, 5) for p in (P, wide)]
    assert found[1] < found[0]
