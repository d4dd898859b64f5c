"""Results without a simulation: the length of a queue, and the traffic of a scheme.

The length of a queue is the rate times the time that a tuple waits in it. The traffic is the bytes
per second on all links while nothing fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from aftlib.documents.upstream_backup.simulation import Segments, written_ns
from aftlib.documents.upstream_backup.system import MS, Scheme, System, require_simulated

_SECONDS = 10  # of the stream whose segments `traffic` counts


def expected_queue(system: System, scheme: Scheme) -> float:
    """Mean number of tuples in the queue kept for the primary while nothing fails.

    A tuple waits for four hops (to the node, downstream, and two ACKs back) and half an interval
    until the next ACK is due. `scheme` is upstream backup or the proposal.
    """
    waited = 4 * system.link.delay_ms + system.ack_ms / 2
    return _per_ms(system, scheme) * waited


def expected_resent(system: System, scheme: Scheme) -> float:
    """Mean number of tuples sent again after the primary fails at a random moment.

    An ACK that the node forwarded before its failure still arrives, so three hops count, and half
    an ACK interval. Half a heartbeat interval passes until the first heartbeat that is not
    answered, and one more until the next is due; the hops of heartbeat and request cancel.
    """
    waited = 3 * system.link.delay_ms + system.ack_ms / 2
    return _per_ms(system, scheme) * (waited + 1.5 * system.heartbeat_ms)


def _per_ms(system: System, scheme: Scheme) -> float:
    """Tuples per millisecond that enter the queue kept for the primary.

    ValueError for another scheme than upstream backup and the proposal.
    """
    require_simulated(scheme)
    return system.rate * (0.5 if scheme.switching else 1) / 1000


@dataclass(frozen=True)
class Traffic:
    """Bytes per second on all links, with headers and without TCP's own acknowledgements."""

    stream: float  # without fault tolerance: tuples to one node, results downstream
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


def traffic(system: System, scheme: Scheme) -> Traffic:
    """Bytes per second of a scheme while nothing fails.

    An ACK or a checkpoint is sent in those intervals that have something to report.
    """
    header = system.link.header_bytes
    message = system.message_bytes + header
    written = written_ns(system, _SECONDS * 1000 * MS - 1)
    segments = len(Segments.cut(written, system.tuples_per_segment).sizes)
    hop = (len(written) * system.tuple_bytes + segments * header) / _SECONDS
    copies = 0  # of each tuple or result
    if scheme.both:
        copies = 2 if scheme.trimmed_by == "copy" else 1
    return Traffic(
        stream=2 * hop,
        copies=copies * hop,
        acks=2 * message * _acks_per_s(system, scheme) if scheme.trimmed_by == "ack" else 0,
        checkpoints=_checkpoint_bytes(system) if scheme.trimmed_by == "checkpoint" else 0,
        heartbeats=2 * message * (2 if scheme.switching else 1) * 1000 / system.heartbeat_ms,
    )


def _acks_per_s(system: System, scheme: Scheme) -> float:
    """ACKs per second; a node gets one in every interval that its turn touches.

    There are `turns` of each node per second.
    """
    often = 1000 / system.ack_ms
    turns = 500 / system.switching_ms
    shares = (0.5, 0.5) if scheme.switching else (1.0,)
    return min(sum(min(often, share * often + turns) for share in shares), system.rate)


def _checkpoint_bytes(system: System) -> float:
    """Bytes per second of checkpoint messages and of the secondary's messages to upstream."""
    per_s = min(1000 / system.checkpoint_ms, system.rate)
    state = system.message_bytes + system.state_bytes * system.rate / per_s
    state += math.ceil(state / system.tcp.segment_bytes) * system.link.header_bytes
    return per_s * (state + system.message_bytes + system.link.header_bytes)
