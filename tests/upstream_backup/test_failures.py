"""When failures are noticed, and which are refused."""

import numpy as np
import pytest

from aftlib.upstream_backup.failures import Failure, downtimes, drawn_phases, failure_times
from aftlib.upstream_backup.parameters import Parameters, Phases
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.schemes import ACTIVE, PASSIVE, PROPOSED, UPSTREAM

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


@pytest.mark.parametrize("when", [0, -5.0, float("nan"), float("inf")])
def test_a_failure_needs_a_time(when):
    with pytest.raises(ValueError, match="at_ms must be above 0, got"):
        Failure(when)


def test_a_failure_needs_a_node():
    with pytest.raises(ValueError, match="node must be one of primary, secondary, got 'upstream'"):
        Failure(2000, "upstream")
    assert Failure(2000, "secondary").other == "primary"


@pytest.mark.parametrize(
    ("scheme", "failures", "message"),
    [
        (UPSTREAM, [(20,)], "at 20 ms comes before steady state; let it happen at 145"),
        (PROPOSED, [(2000,), (2500,)], "of the primary at 2500 ms comes too soon after its last"),
        (PROPOSED, [(2000,), (2100, "secondary")], "secondary at 2100 ms leaves no node"),
        (PASSIVE, [(2000,), (5000,)], "failures must hold one for passive standby, got 2"),
        (ACTIVE, [(2000,), (5000,)], "failures must hold one for active standby, got 2"),
    ],
)
def test_failures_that_a_scheme_cannot_survive_are_refused(scheme, failures, message):
    with pytest.raises(ValueError, match=message):
        downtimes(P, scheme, [Failure(*each) for each in failures])


def test_failure_times_are_a_stream_of_their_own():
    times = failure_times(50, 3, 30_000, 30_000)
    np.testing.assert_array_equal(times[:10], failure_times(10, 3, 30_000, 30_000))
    assert ((times >= 30_000) & (times <= 60_000)).all()
    assert not np.array_equal(times, failure_times(50, 4, 30_000, 30_000))


def test_simulate_refuses_what_it_cannot_do():
    for until in (2050, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite and lie after the last request at 2105"):
            simulate(P, UPSTREAM, [Failure(2000)], until_ms=until)
    with pytest.raises(ValueError, match="scheme must be one of .* got 'warm'"):
        simulate(P, "warm", [Failure(2000)])


def test_phases_are_a_stream_of_their_own():
    assert drawn_phases(50, 3)[:10] == drawn_phases(10, 3)
    assert drawn_phases(5, 3) != drawn_phases(5, 4)
    assert np.mean([vars(one)["ack"] for one in drawn_phases(2000, 1)]) == pytest.approx(
        0.5, abs=0.02
    )
