"""A standby system, and when a failure is detected."""

import math
from functools import partial

import numpy as np
import pytest

from aftlib.documents.upstream_backup.system import (
    Phases,
    System,
    detect,
    drawn_phases,
    failure_times,
)
from tests.refusals import refused

NUMBERS = (
    *("rate", "ack_ms", "heartbeat_ms", "switching_ms", "checkpoint_ms", "tuple_bytes"),
    *("processing_us", "write_ms", "state_bytes", "message_bytes"),
)


def test_defaults_are_table_1():
    system = System()
    assert (system.ack_ms, system.heartbeat_ms, system.switching_ms) == (25, 100, 100)
    assert (system.tuple_bytes, system.processing_us) == (8 + 50, 10)
    assert (system.link.bandwidth_mbps, system.link.delay_ms) == (16, 5)


test_impossible_systems_are_refused = refused(
    lambda make: make(),
    *(
        (partial(System, **{name: value}), f"{name} must be above 0, got")
        for name in NUMBERS
        for value in (0, math.nan)
    ),
    (partial(System, rate=200, switching_ms=4), "one tuple per turn, got a turn of 4 ms"),
    (partial(System, heartbeat_ms=10), "longer than the 10.06 ms that an answer takes"),
    (partial(System, rate=40_000), "more than 95 % of the link's 16, and saturates it"),
    (partial(System, rate=20_000, write_ms=0.01), r"needs 17.9 Mbps, .*write_ms = 0.01\)"),
    (partial(System, rate=10_000, processing_us=100), "saturates a node that takes 100 µs"),
    (partial(detect, System(), 2000, "upstream"), "node must be one of primary, secondary, got"),
    (partial(detect, System(), 20), "comes before steady state; let it happen at 145"),
)


def test_the_highest_rates_are_accepted():
    assert System(rate=16_964, write_ms=0.01).rate == 16_964
    assert System(rate=20_000).rate == 20_000


@pytest.mark.parametrize("phase", [0.0, 0.3])
@pytest.mark.parametrize(
    ("crash", "detected"),
    [(2001.0, 2100), (2005.0, 2100), (2005.04, 2200), (2104.9, 2200), (2105.1, 2300)],
)
def test_the_next_heartbeat_after_an_unanswered_one(crash, detected, phase):
    crash, detected = crash + 100 * phase, detected + 100 * phase
    system = System(phases=Phases(heartbeat=phase))
    outage = detect(system, crash)
    assert outage.detected == detected * 1_000_000
    assert outage.request == outage.detected + system.hop_ns


def test_times_and_phases_are_streams_of_their_own():
    times = failure_times(50, 3, 30_000)
    np.testing.assert_array_equal(times[:10], failure_times(10, 3, 30_000))
    assert ((times >= 30_000) & (times <= 32_000)).all()
    assert drawn_phases(50, 3)[:10] == drawn_phases(10, 3) != drawn_phases(10, 4)
