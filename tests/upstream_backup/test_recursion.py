"""Counts and times worked out by hand, and cases that random systems seldom show."""

import math

import pytest

from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.parameters import Link, Parameters, Tcp
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.schemes import ACTIVE, PASSIVE, PROPOSED, UPSTREAM
from tests.upstream_backup import event_simulation

TWINS = pytest.mark.parametrize("twin", [simulate, event_simulation.simulate])


@pytest.mark.parametrize("scheme", [UPSTREAM, PASSIVE, ACTIVE], ids=lambda s: s.name)
def test_an_idle_nodes_failure_costs_nothing(scheme):
    recovery = simulate(Parameters(), scheme, [Failure(2000.5, "secondary")]).recoveries[0]
    assert (len(recovery.resent), recovery.recovery_ms, recovery.caught_up_ms) == (0, 0, 0)


def test_recovery_of_a_small_queue_can_be_added_up():
    """All segments on the wire, one way, and the work on the last ones."""
    parameters = Parameters(rate=200, tcp=Tcp(handshake=False, initial_window=None))
    recovery = simulate(parameters, UPSTREAM, [Failure(2000.5)]).recoveries[0]
    full, rest = divmod(len(recovery.resent), 9)
    sent = full * parameters.link.wire_ns(9 * 58)
    wire = parameters.link.wire_ns(rest * 58)
    expected = sent + max(wire, 90_000) + 5_000_000 + rest * 10_000
    assert (full, rest) == (3, 2)
    assert recovery.recovery_ms == expected / 1e6


@TWINS
def test_a_result_on_a_slow_link_is_a_duplicate_too(twin):
    """It left the node before the crash and comes after the request: downstream gets it twice."""
    slow = Parameters(
        rate=332.104229, ack_ms=3.000001, heartbeat_ms=4.000001, switching_ms=40.000001,
        write_ms=19.572349, processing_us=5.001, secondary_us=6.211, message_bytes=8,
        link=Link(bandwidth_mbps=0.600001, delay_ms=0.725555, header_bytes=60),
        tcp=Tcp(handshake=False, segment_bytes=1500),
    )  # fmt: skip
    run = twin(slow, ACTIVE, [Failure(46.903431)])
    (recovery,) = run.recoveries
    assert recovery.duplicates == (run.copies[recovery.resent] > 1).sum() == 7


@TWINS
def test_a_recovery_that_its_survivor_interrupts_has_no_end(twin):
    """Both nodes work at 95 % of what they can, so a queue takes long to be processed again."""
    busy = Parameters(rate=1900, processing_us=500, heartbeat_ms=1000, repair_ms=20)
    run = twin(busy, PROPOSED, [Failure(1000.5), Failure(2200.5, "secondary")])
    first, second = run.recoveries
    assert (first.interrupted, second.interrupted) == (True, False)
    assert first.recovery_ms == first.restored_ms == first.caught_up_ms == math.inf
    assert 0 < second.recovery_ms < math.inf
    assert (run.copies > 0).all()
