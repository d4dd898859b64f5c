"""Recursion and event simulation agree, to the nanosecond and the tuple."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.figures import messages, queued_tuples
from aftlib.upstream_backup.parameters import NODES, Link, Parameters, Phases, Tcp
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.schemes import SCHEMES
from tests.upstream_backup.event_simulation import traced

ROW = ("upstream backup", "proposed")


def number(low, high):
    """Odd nanoseconds, so that no two events coincide by design."""
    return st.integers(round(low * 1e6), round(high * 1e6)).map(
        lambda ns: (2 * (ns // 2) + 1) / 1e6
    )


@st.composite
def systems(draw):
    link = Link(draw(number(0.6, 40)), draw(number(0.5, 20)), draw(st.integers(20, 60)))
    window = draw(st.sampled_from([None, 1, 2, 10]))
    tcp = Tcp(draw(st.booleans()), window, draw(st.integers(60, 1500)))
    try:
        return Parameters(
            rate=draw(number(60, 3000)), ack_ms=draw(number(3, 60)),
            heartbeat_ms=draw(number(4, 120)), switching_ms=draw(number(40, 150)),
            checkpoint_ms=draw(number(3, 60)), share=draw(st.floats(0.3, 0.7)),
            processing_us=draw(number(0.005, 0.3)) * 1e3,
            secondary_us=draw(number(0.005, 0.3)) * 1e3, write_ms=draw(number(0.2, 60)),
            state_bytes=draw(st.integers(1, 200)), repair_ms=draw(number(50, 300)),
            link=link, tcp=tcp, phases=Phases(*(draw(st.floats(0, 0.99)) for _ in range(4))),
        )  # fmt: skip
    except ValueError:
        assume(False)


@st.composite
def failures(draw, parameters, scheme):
    count = draw(st.integers(1, 3)) if scheme in ROW else 1
    apart = 3 * parameters.heartbeat_ms + parameters.repair_ms
    schedule, time = [], 0.0
    for _ in range(count):
        time += parameters.settling_ms + draw(number(1, 300))
        schedule.append(Failure(time, draw(st.sampled_from(("primary", *NODES)))))
        time += apart
    return schedule


@settings(max_examples=200)
@given(st.data(), systems(), st.sampled_from(sorted(SCHEMES)))
def test_twins_agree(data, parameters, scheme):
    schedule = data.draw(failures(parameters, scheme))
    fast = simulate(parameters, scheme, schedule)
    slow, sent, queues = traced(parameters, scheme, schedule)
    np.testing.assert_array_equal(fast.written, slow.written)
    np.testing.assert_array_equal(fast.delivered, slow.delivered)
    np.testing.assert_array_equal(fast.copies, slow.copies)
    assert (fast.copies > 0).all()
    for one, other in zip(fast.recoveries, slow.recoveries, strict=True):
        assert one.queue_at_crash == other.queue_at_crash
        np.testing.assert_array_equal(one.resent, other.resent)
        np.testing.assert_array_equal(one.done, other.done)
        np.testing.assert_array_equal(one.delivered, other.delivered)
        assert (one.duplicates, one.reprocessed) == (other.duplicates, other.reprocessed)
        if one.reprocessed or len(one.resent):
            assert one.downtime == other.downtime

    if len(schedule) == 1:
        (only,) = fast.recoveries
        assert only.duplicates == (fast.copies[only.resent] > 1).sum() or scheme.endswith("(WAN)")

    # the content of a sequence diagram: every message, and the queues after each change
    assert messages(fast) == sent
    for time, held in {time: held for time, *held in queues}.items():
        assert [queued_tuples(fast, node, time) for node in NODES] == held


@settings(max_examples=30)
@given(st.data(), systems(), st.sampled_from(ROW))
def test_what_came_before_does_not_matter(data, parameters, scheme):
    """A queue depends on the last moments only, so sweeps need not wait for half a minute."""
    cycle = 2 * parameters.switching_ms * parameters.heartbeat_ms * parameters.ack_ms
    assume(cycle > 0)
    wide = replace(parameters.link, bandwidth_mbps=parameters.link.bandwidth_mbps + 5)
    parameters = Parameters(rate=1000, link=wide, tcp=parameters.tcp)
    after = data.draw(number(0, 200))
    early, late = (
        simulate(parameters, scheme, [Failure(start + after)]).recoveries[0]
        for start in (400.0, 5400.0)
    )
    assert len(early.resent) == len(late.resent)
    np.testing.assert_array_equal(
        early.done - early.downtime.request, late.done - late.downtime.request
    )
