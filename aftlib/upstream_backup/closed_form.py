"""How long a queue is, without a simulation: hops, half an interval, and what goes unnoticed."""

from __future__ import annotations

from aftlib.upstream_backup.parameters import MS, Parameters
from aftlib.upstream_backup.path import checkpoint_ns
from aftlib.upstream_backup.schemes import ACTIVE, ACTIVE_WAN, PASSIVE, PROPOSED, UPSTREAM, Scheme

_HELD = {UPSTREAM.name: 4, PROPOSED.name: 4, PASSIVE.name: 3, ACTIVE.name: 3, ACTIVE_WAN.name: 0}
"""Hops that a tuple waits for while nothing fails: to the node, downstream, and the ACKs back."""
_LOST = {UPSTREAM.name: 3, PROPOSED.name: 3, PASSIVE.name: 1, ACTIVE.name: 2, ACTIVE_WAN.name: 0}
"""Those of them that the crash cuts off: what the node had passed on arrives before the request."""


def held_ms(parameters: Parameters, scheme: Scheme) -> float:
    """How long a tuple stays in the queue while nothing fails, on average.

    Four hops for level-0 and level-1 ACKs, three for a checkpoint or for the secondary's results,
    half an interval until the next ACK or checkpoint is due, and a checkpoint's time on the wire.
    """
    hops = _HELD[scheme.name] * parameters.link.delay_ms
    wire_ns = 0
    if scheme.trimmed_by == "checkpoint":
        changes = round(parameters.rate * parameters.checkpoint_ms / 1000)
        wire_ns = checkpoint_ns(parameters, changes)
    return hops + _half_interval(parameters, scheme) + wire_ns / MS


def unnoticed_ms(parameters: Parameters, scheme: Scheme) -> float:
    """From the crash until the queue is sent again, on average.

    A heartbeat interval passes until the next one is due, and half of one until the first that is
    not answered; the heartbeat's hop and the request's cancel. Active standby needs no request.
    """
    if scheme.trimmed_by == "copy":
        return 0.0
    return 1.5 * parameters.heartbeat_ms - (parameters.link.delay_ms if scheme.both else 0)


def expected_queue(parameters: Parameters, scheme: Scheme) -> float:
    """Tuples in the queue kept for the primary at any moment while nothing fails, on average."""
    return _per_ms(parameters, scheme) * held_ms(parameters, scheme)


def expected_resent(parameters: Parameters, scheme: Scheme) -> float:
    """Tuples sent again after the primary's failure at a random moment, on average.

    The ACK that the node passed on last before it died still arrives: its last hop does not count.
    """
    cut_off = _LOST[scheme.name] * parameters.link.delay_ms + _half_interval(parameters, scheme)
    return _per_ms(parameters, scheme) * (cut_off + unnoticed_ms(parameters, scheme))


def four_hops(parameters: Parameters, scheme: Scheme) -> float:
    """The rule of thumb: all hops, half an interval and the time until the request, by the rate."""
    waited = held_ms(parameters, scheme) + unnoticed_ms(parameters, scheme)
    return _per_ms(parameters, scheme) * waited


def _half_interval(parameters: Parameters, scheme: Scheme) -> float:
    intervals = {"ack": parameters.ack_ms, "checkpoint": parameters.checkpoint_ms, "copy": 0.0}
    return intervals[scheme.trimmed_by] / 2


def _per_ms(parameters: Parameters, scheme: Scheme) -> float:
    """Tuples a millisecond that enter the queue kept for the primary."""
    return parameters.rate * (parameters.share if scheme.switching else 1) / 1000
