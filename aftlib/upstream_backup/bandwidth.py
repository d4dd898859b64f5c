"""What standing by costs on the links while nothing fails."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aftlib.upstream_backup.parameters import MS, Parameters
from aftlib.upstream_backup.schemes import Scheme
from aftlib.upstream_backup.stream import Segments, written_ns

_SECONDS = 10


@dataclass(frozen=True)
class Traffic:
    """Bytes a second on all links, headers included, TCP's own acknowledgements not.

    Attributes
    ----------
    stream : float
        The plain stream: tuples to the node that works for the result, results downstream.
    into_node : float
        Its first hop alone, which Hwang et al. take as the measure.
    copies : float
        The same tuples or results a second time.
    acks, checkpoints, heartbeats : float
        Level-0 and level-1 ACKs and what passes them on; checkpoint messages and what they make
        the secondary tell; heartbeats and their answers.
    """

    stream: float
    into_node: float
    copies: float
    acks: float
    checkpoints: float
    heartbeats: float

    @property
    def availability(self) -> float:
        """Everything that is there for availability only."""
        return self.copies + self.acks + self.checkpoints + self.heartbeats

    @property
    def share_of_all(self) -> float:
        """D4 section 2.2's definition: the part of all traffic that is there for availability."""
        return self.availability / (self.stream + self.availability)

    @property
    def relative(self) -> float:
        """Availability's traffic by the plain stream's."""
        return self.availability / self.stream

    @property
    def relative_to_input(self) -> float:
        """Availability's traffic by that of the stream into the node."""
        return self.availability / self.into_node


def traffic(parameters: Parameters, scheme: Scheme) -> Traffic:
    """Bytes a second of a scheme while nothing fails."""
    hop, message = (
        _stream_bytes(parameters),
        parameters.message_bytes + parameters.link.header_bytes,
    )
    hops = 0 if not scheme.both else 2 if scheme.trimmed_by == "copy" else 1
    acks = 2 * message * _filled(parameters, parameters.ack_ms)
    beats = 2 * message * (2 if scheme.switching else 1) * 1000 / parameters.heartbeat_ms
    return Traffic(
        stream=2 * hop,
        into_node=hop,
        copies=hops * hop,
        acks=acks if scheme.trimmed_by == "ack" else 0,
        checkpoints=_checkpoint_bytes(parameters) if scheme.trimmed_by == "checkpoint" else 0,
        heartbeats=beats,
    )


def _stream_bytes(parameters: Parameters) -> float:
    """Bytes a second of one hop of the stream."""
    written = written_ns(parameters, _SECONDS * 1000 * MS - 1)
    segments = len(Segments.cut(written, parameters.tuples_per_segment).sizes)
    payload = len(written) * parameters.tuple_bytes
    return (payload + segments * parameters.link.header_bytes) / _SECONDS


def _filled(parameters: Parameters, interval_ms: float) -> float:
    """Intervals a second in which there is something to tell."""
    return min(1000 / interval_ms, parameters.rate)


def _checkpoint_bytes(parameters: Parameters) -> float:
    messages = _filled(parameters, parameters.checkpoint_ms)
    payload = parameters.message_bytes + parameters.state_bytes * parameters.rate / messages
    segments = math.ceil(payload / parameters.tcp.segment_bytes)
    told = parameters.message_bytes + parameters.link.header_bytes
    return messages * (payload + segments * parameters.link.header_bytes + told)
