"""How long a queue is, without a simulation."""

from __future__ import annotations

from aftlib.standby.parameters import Parameters
from aftlib.standby.schemes import ACTIVE, ACTIVE_WAN, PASSIVE, PROPOSED, UPSTREAM, Scheme

_HOPS = {UPSTREAM.name: 4, PROPOSED.name: 4, PASSIVE.name: 3, ACTIVE.name: 3, ACTIVE_WAN.name: 0}


def held_ms(parameters: Parameters, scheme: Scheme) -> float:
    """How long a tuple stays in the queue while nothing fails, on average.

    Four hops for the ACKs (to the node, downstream, back, back), three for a checkpoint and for
    the secondary's results, and half an interval until the next ACK or checkpoint is due.
    """
    if scheme.trimmed_by == "copy":
        return 0.0
    checkpoint = scheme.trimmed_by == "checkpoint"
    interval = parameters.checkpoint_ms if checkpoint else parameters.ack_ms
    return _HOPS[scheme.name] * parameters.link.delay_ms + interval / 2


def unnoticed_ms(parameters: Parameters, scheme: Scheme) -> float:
    """From the crash until the queue is sent again, on average.

    A heartbeat interval passes until the next one is due, and half of one until the first that is
    not answered; the heartbeat's hop and the request's cancel. Active standby needs no request.
    """
    if scheme.trimmed_by == "copy":
        return 0.0
    return 1.5 * parameters.heartbeat_ms - (parameters.link.delay_ms if scheme.both else 0)


def expected_resent(parameters: Parameters, scheme: Scheme) -> float:
    """Tuples sent again after the primary's failure at a random moment, on average.

    The rate times the time that they stay unacknowledged, of which the proposal's primary was sent
    its share.
    """
    per_second = parameters.rate * (parameters.share if scheme.switching else 1)
    return per_second * (held_ms(parameters, scheme) + unnoticed_ms(parameters, scheme)) / 1000
