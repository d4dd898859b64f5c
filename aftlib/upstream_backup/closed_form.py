"""Results without a simulation: the length of a queue, and the traffic of a scheme.

The length of a queue is the rate times the time that a tuple waits in it. The traffic is the bytes
per second on all links while nothing fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from aftlib.upstream_backup.parameters import MS, Parameters
from aftlib.upstream_backup.routes import Segments, checkpoint_ns, written_ns
from aftlib.upstream_backup.schemes import ACTIVE, ACTIVE_WAN, PASSIVE, PROPOSED, UPSTREAM, Scheme

_HELD = {UPSTREAM.name: 4, PROPOSED.name: 4, PASSIVE.name: 3, ACTIVE.name: 3, ACTIVE_WAN.name: 0}
"""Hops for which a tuple waits while nothing fails: to the node, downstream, and the ACKs back."""
_LOST = {UPSTREAM.name: 3, PROPOSED.name: 3, PASSIVE.name: 1, ACTIVE.name: 2, ACTIVE_WAN.name: 0}
"""Of these, the hops that count at a crash: an ACK that the node has sent still arrives."""
_SECONDS = 10


def held_ms(parameters: Parameters, scheme: Scheme) -> float:
    """Mean time of a tuple in the queue while nothing fails.

    It is the sum of hops, half an interval until the next ACK or checkpoint is due, and a
    checkpoint's time on the wire. There are four hops with level-0 and level-1 ACKs, and three with
    checkpoints or in active standby.
    """
    waited = _HELD[scheme.name] * parameters.link.delay_ms + _half_interval(parameters, scheme)
    if scheme.trimmed_by != "checkpoint":
        return waited
    changes = round(parameters.rate * parameters.checkpoint_ms / 1000)
    return waited + checkpoint_ns(parameters, changes) / MS


def unnoticed_ms(parameters: Parameters, scheme: Scheme) -> float:
    """Mean time from the crash until the queue is sent again.

    Half a heartbeat interval passes until the first heartbeat that is not answered, and one more
    until the next is due. The hops of heartbeat and request cancel each other. Active standby needs
    no request.
    """
    if scheme.trimmed_by == "copy":
        return 0.0
    return 1.5 * parameters.heartbeat_ms - (parameters.link.delay_ms if scheme.both else 0)


def expected_queue(parameters: Parameters, scheme: Scheme) -> float:
    """Mean number of tuples in the queue kept for the primary while nothing fails."""
    return _per_ms(parameters, scheme) * held_ms(parameters, scheme)


def expected_resent(parameters: Parameters, scheme: Scheme) -> float:
    """Mean number of tuples sent again after the primary fails at a random moment.

    An ACK that the node forwarded before its failure still arrives, so its last hop does not count.
    """
    cut_off = _LOST[scheme.name] * parameters.link.delay_ms + _half_interval(parameters, scheme)
    return _per_ms(parameters, scheme) * (cut_off + unnoticed_ms(parameters, scheme))


def four_hops(parameters: Parameters, scheme: Scheme) -> float:
    """Rule of thumb: rate × (time of all hops + half an interval + wait for the request)."""
    waited = held_ms(parameters, scheme) + unnoticed_ms(parameters, scheme)
    return _per_ms(parameters, scheme) * waited


def _half_interval(parameters: Parameters, scheme: Scheme) -> float:
    intervals = {"ack": parameters.ack_ms, "checkpoint": parameters.checkpoint_ms, "copy": 0.0}
    return intervals[scheme.trimmed_by] / 2


def _per_ms(parameters: Parameters, scheme: Scheme) -> float:
    """Tuples per millisecond that enter the queue kept for the primary."""
    return parameters.rate * (parameters.share if scheme.switching else 1) / 1000


@dataclass(frozen=True)
class Traffic:
    """Bytes per second on all links, with headers and without TCP's own acknowledgements."""

    stream: float  # without fault tolerance: tuples to one node, results downstream
    into_node: float  # tuples to the node alone: the denominator of Hwang et al.
    copies: float  # the same tuples or results a second time
    acks: float  # of level 0 and level 1, between all nodes
    checkpoints: float  # checkpoint messages, and the secondary's messages to upstream
    heartbeats: float  # with their answers

    @property
    def availability(self) -> float:
        """Traffic for availability only."""
        return self.copies + self.acks + self.checkpoints + self.heartbeats

    @property
    def share_of_all(self) -> float:
        """Share of all traffic that serves availability: the definition of D4 section 2.2."""
        return self.availability / (self.stream + self.availability)

    @property
    def relative(self) -> float:
        """Traffic for availability, divided by the traffic without fault tolerance."""
        return self.availability / self.stream

    @property
    def relative_to_input(self) -> float:
        """Traffic for availability, divided by the traffic of the stream into the node."""
        return self.availability / self.into_node


def traffic(parameters: Parameters, scheme: Scheme) -> Traffic:
    """Bytes per second of a scheme while nothing fails.

    An ACK or a checkpoint is sent in those intervals that have something to report.
    """
    header = parameters.link.header_bytes
    message = parameters.message_bytes + header

    written = written_ns(parameters, _SECONDS * 1000 * MS - 1)
    segments = len(Segments.cut(written, parameters.tuples_per_segment).sizes)
    hop = (len(written) * parameters.tuple_bytes + segments * header) / _SECONDS

    # a node gets an ACK in every interval that its turn touches; around a switch both get one
    often, turns = 1000 / parameters.ack_ms, 500 / parameters.switching_ms
    shares = (parameters.share, 1 - parameters.share) if scheme.switching else (1.0,)
    acks = min(sum(min(often, share * often + turns) for share in shares), parameters.rate)

    checkpoints_per_s = min(1000 / parameters.checkpoint_ms, parameters.rate)
    state = parameters.message_bytes + parameters.state_bytes * parameters.rate / checkpoints_per_s
    state += math.ceil(state / parameters.tcp.segment_bytes) * header
    return Traffic(
        stream=2 * hop,
        into_node=hop,
        copies=(0 if not scheme.both else 2 if scheme.trimmed_by == "copy" else 1) * hop,
        acks=2 * message * acks if scheme.trimmed_by == "ack" else 0,
        checkpoints=checkpoints_per_s * (state + message)
        if scheme.trimmed_by == "checkpoint"
        else 0,
        heartbeats=2 * message * (2 if scheme.switching else 1) * 1000 / parameters.heartbeat_ms,
    )
