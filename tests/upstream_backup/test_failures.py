"""When failures are detected, and which are refused."""

import math

import numpy as np
import pytest

from aftlib.upstream_backup.failures import Failure, downtimes, drawn_phases, failure_times
from aftlib.upstream_backup.parameters import Parameters, Phases
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.schemes import ACTIVE, PASSIVE, PROPOSED, UPSTREAM
from tests.refusals import refused

P = Parameters()


@pytest.mark.parametrize("phase", [0.0, 0.3])
@pytest.mark.parametrize(
    ("crash", "detected"),
    [(2001.0, 2100), (2005.0, 2100), (2005.04, 2200), (2104.9, 2200), (2105.1, 2300)],
)
def test_the_next_heartbeat_after_an_unanswered_one(crash, detected, phase):
    crash, detected = crash + 100 * phase, detected + 100 * phase
    system = Parameters(phases=Phases(heartbeat=phase))
    (downtime,) = downtimes(system, UPSTREAM, [Failure(crash)])
    assert downtime.detected == detected * 1_000_000
    assert downtime.request == downtime.detected + P.hop_ns


def test_a_failure_before_the_first_heartbeat_leaves_that_one_unanswered():
    system = Parameters(heartbeat_ms=1000, phases=Phases(heartbeat=0.5))
    (downtime,) = downtimes(system, UPSTREAM, [Failure(200.0)])
    assert downtime.detected == 1500 * 1_000_000


test_a_failure_needs_a_time_and_a_node = refused(
    lambda at_ms, node: Failure(at_ms, node),
    *((at, "primary", "at_ms must be above 0, got") for at in (0, -5.0, math.nan, math.inf)),
    (2000, "upstream", "node must be one of primary, secondary, got 'upstream'"),
)

test_failures_that_a_scheme_cannot_survive_are_refused = refused(
    lambda scheme, *failures: downtimes(P, scheme, [Failure(*each) for each in failures]),
    (UPSTREAM, (20,), "at 20 ms comes before steady state; let it happen at 145"),
    (PROPOSED, (2000,), (2500,), "of the primary at 2500 ms comes too soon after its last"),
    (PROPOSED, (2000,), (2100, "secondary"), "secondary at 2100 ms leaves no node"),
    (PASSIVE, (2000,), (5000,), "failures must hold one for passive standby, got 2"),
    (ACTIVE, (2000,), (5000,), "failures must hold one for active standby, got 2"),
)

test_a_stream_must_end_after_the_recovery_began = refused(
    lambda until: simulate(P, UPSTREAM, [Failure(2000)], until_ms=until),
    *((until, "finite and lie after the last request at 2105") for until in (2050, math.nan)),
)


def test_times_and_phases_are_streams_of_their_own():
    times = failure_times(50, 3, 30_000, 30_000)
    np.testing.assert_array_equal(times[:10], failure_times(10, 3, 30_000, 30_000))
    assert ((times >= 30_000) & (times <= 60_000)).all()
    assert not np.array_equal(times, failure_times(50, 4, 30_000, 30_000))

    assert drawn_phases(50, 3)[:10] == drawn_phases(10, 3)
    assert drawn_phases(5, 3) != drawn_phases(5, 4)
    assert np.mean([one.ack for one in drawn_phases(2000, 1)]) == pytest.approx(0.5, abs=0.02)
