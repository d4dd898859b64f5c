"""What a standby system is made of, and what is refused."""

import math

import pytest

from aftlib.upstream_backup.parameters import Link, Parameters, Phases, Tcp
from aftlib.upstream_backup.schemes import scheme_named

NUMBERS = (
    *("rate", "ack_ms", "heartbeat_ms", "switching_ms", "checkpoint_ms", "tuple_bytes"),
    *("processing_us", "write_ms", "state_bytes", "message_bytes", "repair_ms"),
)


def test_defaults_are_table_1():
    parameters = Parameters()
    assert (parameters.ack_ms, parameters.heartbeat_ms, parameters.switching_ms) == (25, 100, 100)
    assert (parameters.tuple_bytes, parameters.processing_us) == (8 + 50, 10)
    assert (parameters.link.bandwidth_mbps, parameters.link.delay_ms) == (16, 5)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", NUMBERS)
def test_zero_negative_and_endless_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be above 0, got"):
        Parameters(**{name: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Link(bandwidth_mbps=0), "bandwidth_mbps must be above 0, got 0"),
        (lambda: Link(delay_ms=0), "delay_ms must be above 0, got 0"),
        (lambda: Link(header_bytes=0), "header_bytes must be above 0, got 0"),
        (lambda: Parameters(secondary_us=-3), "secondary_us must be above 0, got -3"),
        (lambda: Tcp(segment_bytes=0), "segment_bytes must be above 0, got 0"),
        (lambda: Tcp(initial_window=0), "initial_window must be a whole number at least 1, got 0"),
        (
            lambda: Parameters(tcp=Tcp(segment_bytes=57)),
            "segment_bytes must hold a tuple of 58 bytes, got 57",
        ),
        (lambda: Parameters(rate=200, switching_ms=4), "one tuple per turn, got a turn of 4 ms"),
        (lambda: Parameters(rate=200, share=0.98), "got a turn of 4 ms for a tuple every 5 ms"),
        (lambda: Parameters(share=1), "share must be below 1, got 1"),
        (lambda: Parameters(heartbeat_ms=10), "longer than the 10.06 ms that an answer takes"),
        (lambda: Parameters(rate=40_000), "more than 95% of the link's 16, and saturates it"),
        (lambda: Parameters(rate=20_000, write_ms=0.01), r"needs 17.9 Mbps, .*write_ms = 0.01\)"),
        (lambda: Parameters(rate=16_965, write_ms=0.01), "needs 15.2 Mbps"),  # 95.004 %
        (
            lambda: Parameters(rate=10_000, secondary_us=100),
            "saturates a node that takes 100 µs per tuple",
        ),
    ],
)
def test_impossible_systems_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_highest_rates_are_accepted():
    assert Parameters(rate=16_964, write_ms=0.01).rate == 16_964
    assert Parameters(rate=20_000).rate == 20_000


def test_schemes_by_name():
    assert scheme_named("proposed").switching
    with pytest.raises(ValueError, match="scheme must be one of passive standby, .* got 'hot'"):
        scheme_named("hot")


@pytest.mark.parametrize("name", ["ack", "heartbeat", "switching", "checkpoint"])
def test_phases_are_fractions(name):
    with pytest.raises(ValueError, match=f"{name} must be below 1 and at least 0, got 1"):
        Phases(**{name: 1})
    with pytest.raises(ValueError, match=f"{name} must be below 1 and at least 0, got -1"):
        Phases(**{name: -1})
    cycle = 200_000_000 if name == "switching" else Parameters().rhythm(name)[0]
    assert Parameters(phases=Phases(**{name: 0.25})).rhythm(name) == (cycle, cycle // 4)
