"""A standby system (D4 table 1): stream, links, TCP, intervals, schemes, and one failure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np

from aftlib.core.checks import require_choice, require_number
from aftlib.notebook.texts import percent

MS = 1_000_000
"""Nanoseconds in a millisecond: time is counted in whole nanoseconds."""
US = 1_000
NODES = ("primary", "secondary")
FULLEST = 0.95
"""Largest share of a link to use; beyond it TCP's ACKs, which are not simulated, matter."""
STEADY_MS = 2000.0
"""Failures come after this time; the document has 30 s."""
SPREAD_MS = 2000.0
_TIMES = 4  # part of the seed of failure times
_PHASES = 6  # part of the seed of phases, which so are independent of the times


@dataclass(frozen=True)
class Link:
    """One direction of a link between two nodes; all links are equal."""

    bandwidth_mbps: float = 16.0
    delay_ms: float = 5.0  # one way
    header_bytes: int = 54  # of a segment: PPP 2, IP 20, TCP 20 and its timestamps 12

    @property
    def delay_ns(self) -> int:
        """One-way delay in nanoseconds."""
        return round(self.delay_ms * MS)

    def wire_ns(self, payload_bytes: int) -> int:
        """Time on the wire of a segment with a payload, in nanoseconds."""
        bits = 8 * (payload_bytes + self.header_bytes)
        return max(1, round(bits * US / self.bandwidth_mbps))


@dataclass(frozen=True)
class Tcp:
    """Behaviour of TCP on a connection that has not carried data before.

    `handshake`: a connection that only recovery needs is opened at recovery, a round trip before
    any data. `initial_window`: segments that may be sent before the first acknowledgement; each
    acknowledged segment enlarges the window by one (slow start); None: no limit. `segment_bytes`:
    the largest payload of a segment; whole tuples only.
    """

    handshake: bool = True
    initial_window: int | None = 10
    segment_bytes: int = 536


@dataclass(frozen=True)
class Phases:
    """Phases of the intervals in [0, 1), which differ because clocks are not synchronised."""

    ack: float = 0.0
    heartbeat: float = 0.0
    switching: float = 0.0  # of the cycle of two turns
    checkpoint: float = 0.0  # of ns-3's runs of passive standby


@dataclass(frozen=True)
class System:
    """A system of upstream, primary, secondary and downstream node (D4 table 1 by default).

    Raises
    ------
    ValueError
        When a size or time is not positive, a turn has no tuple, a heartbeat is due before the
        answer to the last one, the rate needs more than 95 % of a link, or it saturates a node.
    """

    rate: float = 1000.0  # tuples per second
    ack_ms: float = 25.0  # interval of level-0 ACKs
    heartbeat_ms: float = 100.0
    switching_ms: float = 100.0  # interval between switches of the node (the proposal)
    # interval of checkpoint messages (passive standby); the document gives none: that of ACKs
    checkpoint_ms: float = 25.0
    tuple_bytes: int = 58  # identifier (8) and data (50)
    processing_us: float = 10.0  # time that a node takes for a tuple
    # Interval at which the upstream node writes the due tuples. The document gives none. With one
    # segment per tuple, the link would be too slow from 17,858 tuples/s on.
    write_ms: float = 1.0
    state_bytes: int = 58  # of a checkpoint per tuple: the change of the state, its result
    message_bytes: int = 8  # payload of an ACK, a heartbeat, a request
    link: Link = field(default_factory=Link)
    tcp: Tcp = field(default_factory=Tcp)
    phases: Phases = field(default_factory=Phases)

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name not in ("link", "tcp", "phases"):
                require_number(each.name, getattr(self, each.name), above=0)
        self._require_turns_and_heartbeats()
        self._require_capacity()

    def _require_turns_and_heartbeats(self) -> None:
        """Refuse turns without a tuple, and heartbeats that are due before an answer."""
        if self.switching_ms * self.rate < 1000:
            raise ValueError(
                f"switching_ms must leave each node at least one tuple per turn, got a turn of "
                f"{self.switching_ms:g} ms for a tuple every {1000 / self.rate:g} ms; switch less "
                "often"
            )
        answer = 2 * self.hop_ns / MS
        if self.heartbeat_ms <= answer:
            raise ValueError(
                f"heartbeat_ms must be longer than the {answer:.4g} ms that an answer takes, got "
                f"{self.heartbeat_ms:g}; otherwise every node would look failed"
            )

    def _require_capacity(self) -> None:
        """Refuse a rate that is too high for a link or a node."""
        per_write = max(1.0, self.rate * self.write_ms / 1000)
        frames = math.ceil(per_write / self.tuples_per_segment) / per_write
        mbps = 8e-6 * self.rate * (self.tuple_bytes + frames * self.link.header_bytes)
        if mbps > FULLEST * self.link.bandwidth_mbps:
            raise ValueError(
                f"rate of {self.rate:g} tuples/s needs {mbps:.1f} Mbps, more than "
                f"{percent(FULLEST)} of the link's {self.link.bandwidth_mbps:g}, and saturates it: "
                f"lower the rate, or write less often (write_ms = {self.write_ms:g})"
            )
        if self.rate * self.processing_us >= 1e6:
            raise ValueError(
                f"rate of {self.rate:g} tuples/s saturates a node that takes "
                f"{self.processing_us:g} µs per tuple; give less than "
                f"{1e6 / self.processing_us:g} tuples/s"
            )

    @property
    def tuples_per_segment(self) -> int:
        """Tuples that a full segment holds."""
        return self.tcp.segment_bytes // self.tuple_bytes

    @property
    def wire_table(self) -> np.ndarray:
        """Time on the wire of a segment of 0, 1, … tuples, nanoseconds."""
        sizes = range(self.tuples_per_segment + 1)
        return np.array([self.link.wire_ns(k * self.tuple_bytes) for k in sizes])

    @property
    def echo_ns(self) -> int:
        """From the end of a segment on the wire until its TCP acknowledgement is back."""
        return 2 * self.link.delay_ns + self.link.wire_ns(0)

    @property
    def hop_ns(self) -> int:
        """From sending an ACK, a heartbeat or a request until the next node has it."""
        return self.link.wire_ns(self.message_bytes) + self.link.delay_ns

    @property
    def handshake_ns(self) -> int:
        """From the request for a connection until data may be sent (SYN and its answer)."""
        return 2 * (self.link.wire_ns(0) + self.link.delay_ns)

    @property
    def cost_ns(self) -> int:
        """Time that a node takes for a tuple, nanoseconds."""
        return round(self.processing_us * US)

    @property
    def settling_ms(self) -> float:
        """Time after which queues are in steady state."""
        waits = self.ack_ms * (1 + self.phases.ack) + self.switching_ms
        return 4 * self.link.delay_ms + waits

    def cycle(self, name: str) -> tuple[int, int]:
        """Interval and phase of "ack", "heartbeat", "checkpoint" or "switching", nanoseconds.

        The interval of switching is the cycle of two turns.
        """
        cycles = {
            "ack": (self.ack_ms, self.phases.ack),
            "heartbeat": (self.heartbeat_ms, self.phases.heartbeat),
            "checkpoint": (self.checkpoint_ms, self.phases.checkpoint),
            "switching": (2 * self.switching_ms, self.phases.switching),
        }
        every_ms, phase = cycles[name]
        every = round(every_ms * MS)
        return every, round(every * phase)


@dataclass(frozen=True)
class Scheme:
    """One standby scheme: the three of Hwang et al. with a WAN variant, and D4's proposal.

    `trimmed_by` names what removes tuples from the queue. "ack": level-0 and level-1 ACKs.
    "checkpoint": the secondary's message once it has a checkpoint. "copy": nothing, because each
    result is sent twice anyway (WAN).
    """

    name: str
    both: bool = False  # both nodes process every tuple (active standby); else one of them
    switching: bool = False  # upstream alternates between the nodes; else the primary gets all
    trimmed_by: Literal["ack", "checkpoint", "copy"] = "ack"


PASSIVE = Scheme("passive standby", trimmed_by="checkpoint")
UPSTREAM = Scheme("upstream backup")
ACTIVE = Scheme("active standby", both=True)
ACTIVE_WAN = Scheme("active standby (WAN)", both=True, trimmed_by="copy")
PROPOSED = Scheme("proposed", switching=True)
SCHEMES = {scheme.name: scheme for scheme in (PASSIVE, UPSTREAM, ACTIVE, ACTIVE_WAN, PROPOSED)}
SIMULATED_SCHEMES = (UPSTREAM, PROPOSED)
"""The schemes that D4 compares (figs 5 and 6), and that are simulated here; ns-3 ran all five."""


def require_simulated(scheme: Scheme) -> None:
    """Raise ValueError for a scheme that only ns-3 ran."""
    if scheme not in SIMULATED_SCHEMES:
        names = " or ".join(one.name for one in SIMULATED_SCHEMES)
        raise ValueError(f"scheme must be {names}, got {scheme.name}: see ns-3's stored table")


@dataclass(frozen=True)
class Outage:
    """The silent crash of a node, and the moments that follow from it, in nanoseconds."""

    node: str
    survivor: str
    crash: int
    detected: int  # the survivor's next heartbeat is due and the last one is still unanswered
    request: int  # the upstream node has the survivor's request


def detect(system: System, failure_ms: float, node: str = NODES[0]) -> Outage:
    """Return when a node's failure is detected; ValueError if it comes before steady state.

    `failure_ms` counts from the beginning of the stream.
    """
    require_choice("node", node, NODES)
    if failure_ms < system.settling_ms:
        raise ValueError(
            f"failure at {failure_ms:g} ms comes before steady state; let it happen at "
            f"{system.settling_ms:g} ms or later"
        )
    every, phase = system.cycle("heartbeat")
    crash = round(failure_ms * MS)
    # the first heartbeat that the failed node does not answer
    unanswered = -(-(crash - system.hop_ns - phase) // every)
    detected = (max(unanswered, 0) + 1) * every + phase
    survivor = NODES[1 - NODES.index(node)]
    return Outage(node, survivor, crash, detected, detected + system.hop_ns)


def drawn_phases(count: int, seed: int) -> list[Phases]:
    """Draw phases, the same for every scheme, rate and interval, by a generator of their own.

    If all intervals were in step, a failure's moment would determine the number of tuples sent
    again: 200 failures of the default system would give only four different numbers.
    """
    rows = np.random.default_rng([seed, _PHASES]).random((count, 4))
    return [Phases(*row) for row in rows]


def failure_times(count: int, seed: int, steady_ms: float = STEADY_MS) -> np.ndarray:
    """Draw failure times in ms. All schemes and rates have the same, so that trials are paired.

    They are whole µs, uniform in the `SPREAD_MS` from `steady_ms` on; the document has 30 s for
    both. They have a random generator of their own. A longer list begins with the same times as a
    shorter one.
    """
    drawn = np.random.default_rng([seed, _TIMES]).random(count)
    return np.round(steady_ms + SPREAD_MS * drawn, 3)
