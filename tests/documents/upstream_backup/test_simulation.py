"""Counts and times worked out by hand, and a loop over tuples as the slow twin."""

from functools import partial

import numpy as np
import pytest

from aftlib.documents.upstream_backup.closed_form import expected_queue, expected_resent, traffic
from aftlib.documents.upstream_backup.experiments import measure_recovery
from aftlib.documents.upstream_backup.simulation import (
    NEVER,
    acknowledged,
    lindley,
    primary_turn,
    simulate,
    slow_start,
    travel,
    written_ns,
)
from aftlib.documents.upstream_backup.system import (
    ACTIVE,
    ACTIVE_WAN,
    MS,
    PASSIVE,
    PROPOSED,
    SIMULATED_SCHEMES,
    UPSTREAM,
    Phases,
    System,
    Tcp,
    drawn_phases,
    failure_times,
)


def test_tuples_are_written_when_due():
    written = written_ns(System(rate=2500, write_ms=1), 4_000_000)
    np.testing.assert_array_equal(written / 1e6, [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4])


def test_turns_are_even():
    times = np.arange(0, 400) * MS
    assert primary_turn(System(), times).mean() == 0.5
    assert primary_turn(System(), np.array([99_999_999, 100_000_000])).tolist() == [True, False]


def test_a_window_of_one_doubles_each_round():
    """Segments of one time unit, acknowledged 99 later: 1, 2, 4, … a round."""
    departure = slow_start(np.zeros(7, dtype=int), np.ones(7, dtype=int), 1, 99)
    assert departure.tolist() == [1, 101, 102, 201, 202, 203, 204]


def test_lindley_is_a_loop():
    rng = np.random.default_rng(1)
    arrival, service = np.sort(rng.integers(0, 500, 80)), rng.integers(1, 12, 80)
    done, last = [], 0
    for at, cost in zip(arrival, service, strict=True):
        last = max(at, last) + cost
        done.append(last)
    assert lindley(arrival, service).tolist() == done


def loop_over_tuples(p, ids, queued, crash=NEVER):
    """A node's route one tuple at a time; a segment holds tuples of one write."""
    segments, now = [], None
    for number, at in zip(ids, queued, strict=True):
        if at != now or len(segments[-1]) == p.tuples_per_segment:
            segments.append([])
        now = at
        segments[-1].append((number, at))
    free = busy = link = 0
    times = {}
    for segment in segments:
        wire = p.link.wire_ns(len(segment) * p.tuple_bytes)
        free = max(free, segment[0][1]) + wire
        for number, _ in segment:
            busy = max(busy, free + p.link.delay_ns) + p.cost_ns
            times[number] = [busy if busy < crash else NEVER]
        link = max(link, busy) + wire
        for number, _ in segment:
            times[number].append(link + p.link.delay_ns if busy < crash else NEVER)
    return np.array([times[number] for number in ids]).T


@pytest.mark.parametrize("rate", [200, 3000, 15_000])
def test_a_route_is_a_loop_over_tuples(rate):
    p, crash = System(rate=rate), 60 * MS
    queued = written_ns(p, 100 * MS)
    ids = np.arange(len(queued))
    route = travel(p, "primary", ids, queued, crash=crash)
    done, delivered = loop_over_tuples(p, ids.tolist(), queued.tolist(), crash)
    np.testing.assert_array_equal(route.done, done)
    np.testing.assert_array_equal(route.delivered, delivered)


@pytest.mark.parametrize("scheme", SIMULATED_SCHEMES, ids=lambda s: s.name)
@pytest.mark.parametrize("node", ["primary", "secondary"])
def test_every_result_arrives_and_the_survivor_gets_exactly_the_queue(scheme, node):
    for system, time in zip(drawn_phases(20, 2), failure_times(20, 2), strict=True):
        p = System(rate=1000, phases=system)
        run = simulate(p, scheme, time, node)
        assert (run.survivor.delivered < NEVER).all()
        lost = run.failed.ids[run.failed.delivered == NEVER]
        assert set(lost) <= set(run.resent) <= set(run.survivor.ids)
        sent = np.union1d(run.failed.ids, run.survivor.ids)
        np.testing.assert_array_equal(sent, np.arange(len(sent)))


def test_an_idle_nodes_failure_costs_nothing():
    recovery = simulate(System(), UPSTREAM, 2000.5, "secondary")
    assert (len(recovery.resent), recovery.recovery_ms) == (0, 0)


@pytest.mark.parametrize(
    "ask", [expected_queue, expected_resent, partial(simulate, failure_ms=2000.5)]
)
def test_a_scheme_that_only_ns3_ran_is_refused(ask):
    with pytest.raises(ValueError, match="upstream backup or proposed, got passive standby: see"):
        ask(System(), PASSIVE)


def test_recovery_of_a_small_queue_can_be_added_up():
    """All segments on the wire, one way, and the work on the last ones."""
    parameters = System(rate=200, tcp=Tcp(handshake=False, initial_window=None))
    recovery = simulate(parameters, UPSTREAM, 2000.5)
    full, rest = divmod(len(recovery.resent), 9)
    sent = full * parameters.link.wire_ns(9 * 58)
    wire = parameters.link.wire_ns(rest * 58)
    expected = sent + max(wire, 90_000) + 5_000_000 + rest * 10_000
    assert (full, rest) == (3, 2)
    assert recovery.recovery_ms == expected / 1e6


def test_nothing_is_acknowledged_before_the_first_interval_has_passed():
    """A result of about 10 ms; ACKs are due at 36, 61, … ms, and travel two hops."""
    system = System(phases=Phases(ack=0.44))
    route = travel(system, "primary", np.array([0]), np.array([0]))
    counts = [acknowledged(system, route, ms * MS) for ms in (22, 35, 37, 45, 50)]
    assert counts == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("scheme", SIMULATED_SCHEMES, ids=lambda s: s.name)
@pytest.mark.parametrize("rate", [200, 1000])
def test_the_closed_form_agrees(scheme, rate):
    p = System(rate=rate)
    rows = [measure_recovery(p, scheme, time) for time in failure_times(600, 1)]
    resent, queue = (np.mean([row[name] for row in rows]) for name in ("resent", "queue_at_crash"))
    assert resent == pytest.approx(expected_resent(p, scheme), rel=0.02, abs=1)
    assert queue == pytest.approx(expected_queue(p, scheme), rel=0.05, abs=1)


def test_queues_and_traffic_by_hand():
    p = System(rate=1000)
    assert (expected_queue(p, UPSTREAM), expected_resent(p, UPSTREAM)) == (32.5, 177.5)
    assert expected_resent(p, PROPOSED) == 177.5 / 2
    upstream = traffic(p, UPSTREAM)
    assert upstream.stream / 2 == 1000 * (58 + 54)
    assert upstream.acks == 2 * 62 * 40
    assert upstream.heartbeats == 2 * 62 * 10
    assert traffic(p, PROPOSED).heartbeats == 2 * upstream.heartbeats
    assert upstream.copies == upstream.checkpoints == 0
    lan, wan, passive = (traffic(p, scheme) for scheme in (ACTIVE, ACTIVE_WAN, PASSIVE))
    assert 1 > lan.relative > lan.share_of_all
    assert wan.share_of_all == pytest.approx(0.5, abs=0.01)
    assert passive.checkpoints == 40 * (8 + 25 * 58 + 3 * 54 + 62)
