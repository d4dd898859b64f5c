"""The parameters of a standby system, and values that are refused."""

import math
from functools import partial

import pytest

from aftlib.upstream_backup.parameters import Link, Parameters, Phases, Tcp
from aftlib.upstream_backup.schemes import scheme_named
from tests.refusals import refused

NUMBERS = (
    *("rate", "ack_ms", "heartbeat_ms", "switching_ms", "checkpoint_ms", "tuple_bytes"),
    *("processing_us", "write_ms", "state_bytes", "message_bytes", "repair_ms"),
)


def test_defaults_are_table_1():
    parameters = Parameters()
    assert (parameters.ack_ms, parameters.heartbeat_ms, parameters.switching_ms) == (25, 100, 100)
    assert (parameters.tuple_bytes, parameters.processing_us) == (8 + 50, 10)
    assert (parameters.link.bandwidth_mbps, parameters.link.delay_ms) == (16, 5)


test_impossible_systems_are_refused = refused(
    lambda make: make(),
    *(
        (partial(Parameters, **{name: value}), f"{name} must be above 0, got")
        for name in NUMBERS
        for value in (0, -1.0, math.nan, math.inf)
    ),
    (partial(Link, bandwidth_mbps=0), "bandwidth_mbps must be above 0, got 0"),
    (partial(Link, delay_ms=0), "delay_ms must be above 0, got 0"),
    (partial(Link, header_bytes=0), "header_bytes must be above 0, got 0"),
    (partial(Parameters, secondary_us=-3), "secondary_us must be above 0, got -3"),
    (partial(Tcp, segment_bytes=0), "segment_bytes must be above 0, got 0"),
    (partial(Tcp, initial_window=0), "initial_window must be a whole number at least 1, got 0"),
    (partial(Parameters, tcp=Tcp(segment_bytes=57)), "must hold a tuple of 58 bytes, got 57"),
    (partial(Parameters, rate=200, switching_ms=4), "one tuple per turn, got a turn of 4 ms"),
    (partial(Parameters, rate=200, share=0.98), "got a turn of 4 ms for a tuple every 5 ms"),
    (partial(Parameters, share=1), "share must be below 1, got 1"),
    (partial(Parameters, heartbeat_ms=10), "longer than the 10.06 ms that an answer takes"),
    (partial(Parameters, rate=40_000), "more than 95% of the link's 16, and saturates it"),
    (partial(Parameters, rate=20_000, write_ms=0.01), r"needs 17.9 Mbps, .*write_ms = 0.01\)"),
    (partial(Parameters, rate=16_965, write_ms=0.01), "needs 15.2 Mbps"),  # 95.004 %
    (partial(Parameters, rate=10_000, secondary_us=100), "saturates a node that takes 100 µs per"),
    (partial(scheme_named, "hot"), "scheme must be one of passive standby, .* got 'hot'"),
    (partial(Phases, ack=1), "ack must be below 1 and at least 0, got 1"),
    (partial(Phases, checkpoint=-1), "checkpoint must be below 1 and at least 0, got -1"),
)


def test_the_highest_rates_are_accepted():
    assert Parameters(rate=16_964, write_ms=0.01).rate == 16_964
    assert Parameters(rate=20_000).rate == 20_000


@pytest.mark.parametrize("name", ["ack", "heartbeat", "switching", "checkpoint"])
def test_phases_are_fractions_of_their_interval(name):
    every, phase = Parameters(phases=Phases(**{name: 0.25})).cycle(name)
    own = round(getattr(Parameters(), f"{name}_ms") * 1_000_000)
    assert (every, phase) == ((2 if name == "switching" else 1) * own, every // 4)
