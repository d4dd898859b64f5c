"""Simulate upstream backup and the proposal: whole streams at once, by Lindley's recursion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aftlib.documents.upstream_backup.system import (
    MS,
    NODES,
    Outage,
    Scheme,
    System,
    detect,
    require_simulated,
)

NEVER = np.iinfo(np.int64).max
"""Time of an event that does not happen, in nanoseconds."""
AFTER_MS = 200.0
"""Time for which the stream continues after the request."""


@dataclass(frozen=True)
class Route:
    """Times of the tuples that go through one node, ns; `NEVER` where the crash came first.

    Arrays of shape (k,), in the order of the queue kept for the node. All times but `done` are
    those of the tuple's whole segment.
    """

    node: str
    ids: np.ndarray
    queued: np.ndarray  # entry into the queue
    sent: np.ndarray  # end of the segment on the wire to the node
    done: np.ndarray  # processed
    emitted: np.ndarray  # result written to the connection downstream
    delivered: np.ndarray  # result at the downstream node
    crash: int = NEVER

    def queued_before(self, time: int) -> int:
        """Tuples that have entered the queue before a time."""
        return int(np.searchsorted(self.queued, time))


@dataclass(frozen=True)
class Recovery:
    """One failure of a node, and the tuples sent again; times in nanoseconds.

    `resent` has the tuples in order, and `done` the times at which the survivor had processed them,
    shape (q,). `queue_at_crash` is the length of the failed node's queue.
    """

    outage: Outage
    failed: Route
    survivor: Route
    queue_at_crash: int
    resent: np.ndarray
    done: np.ndarray

    @property
    def recovery_ms(self) -> float:
        """D4's recovery time: from the request until the last tuple is processed again."""
        return float(self.done[-1] - self.outage.request) / MS if len(self.done) else 0.0


def simulate(system: System, scheme: Scheme, failure_ms: float, node: str = NODES[0]) -> Recovery:
    """Send a stream through upstream backup or the proposal while one node fails.

    ValueError for another scheme, or a failure before steady state.

    Examples
    --------
    >>> from aftlib.documents.upstream_backup.system import PROPOSED
    >>> run = simulate(System(rate=1000), PROPOSED, failure_ms=2789.65)
    >>> len(run.resent), run.recovery_ms
    (100, 8.293)
    """
    require_simulated(scheme)
    outage = detect(system, failure_ms, node)
    written = written_ns(system, outage.request + round(AFTER_MS * MS))
    to_secondary = np.zeros(len(written), dtype=bool)
    if scheme.switching:
        to_secondary = ~primary_turn(system, written)
    to_failed = to_secondary == (outage.node == NODES[1])  # none if upstream backup's idle one
    to_failed &= written < outage.request

    own = np.flatnonzero(to_failed)
    failed = travel(system, outage.node, own, written[own], crash=outage.crash)
    resent = failed.ids[acknowledged(system, failed, outage.request) :]
    queue = failed.queued_before(outage.crash) - acknowledged(system, failed, outage.crash)

    rest = np.flatnonzero(~to_failed)
    ids = np.concatenate([resent, rest])
    queued = np.concatenate([np.full(len(resent), outage.request), written[rest]])
    order = np.argsort(queued, kind="stable")  # at the request, what is sent again comes first
    opened = 0
    window = None
    # only upstream backup opens the connection to the survivor at recovery
    if not scheme.switching and outage.node == NODES[0]:
        opened = outage.request
        opened += system.handshake_ns if system.tcp.handshake else 0
        window = system.tcp.initial_window
    survivor = travel(
        system, outage.survivor, ids[order], queued[order], opened=opened, window=window
    )

    place = survivor.queued_before(outage.request)
    again = survivor.done[place : place + len(resent)]
    return Recovery(outage, failed, survivor, queue, resent, again)


def written_ns(system: System, until_ns: int) -> np.ndarray:
    """Times at which the upstream node writes each tuple, up to a time, shape (n,), nanoseconds.

    The i-th tuple is due at i / rate and written at the next multiple of the write interval.
    """
    count = int(until_ns * system.rate / 1e9) + 1
    every = round(system.write_ms * MS)
    due = np.arange(count) * (1e9 / system.rate)
    ticks = np.ceil(due / every).astype(np.int64) * every
    return ticks[: np.searchsorted(ticks, until_ns, side="right")]


def primary_turn(system: System, time_ns: np.ndarray) -> np.ndarray:
    """Whether each moment belongs to the primary's turn (the proposal)."""
    cycle, phase = system.cycle("switching")
    return (time_ns - phase) % cycle < cycle // 2


@dataclass(frozen=True)
class Segments:
    """Tuples of a connection, cut in segments of whole tuples; a segment never spans two writes."""

    first: np.ndarray  # position of each segment's first tuple, shape (s,)
    last: np.ndarray  # position of each segment's last tuple, shape (s,)
    of: np.ndarray  # segment of each tuple, shape (n,)
    sizes: np.ndarray  # tuples in each, shape (s,)

    @classmethod
    def cut(cls, entry: np.ndarray, most: int) -> Segments:
        """Cut tuples by their entry times, shape (n,), where equal times are one write."""
        position = np.arange(len(entry))
        begins = np.diff(entry, prepend=-1) != 0
        write = np.maximum.accumulate(np.where(begins, position, 0))
        starts = (position - write) % most == 0
        first = np.flatnonzero(starts)
        sizes = np.diff(first, append=len(entry))
        return cls(first, first + sizes - 1, np.cumsum(starts) - 1, sizes)


def lindley(arrival: np.ndarray, service: np.ndarray | int) -> np.ndarray:
    r"""Completion times of the jobs of one server, first come, first served.

    Unrolled, :math:`d_i = \max(a_i, d_{i-1}) + s_i` is :math:`d_i = S_i + \max_{j \le i}
    (a_j - S_{j-1})` with the running sum :math:`S`. So a running maximum gives all of them in one
    pass, O(n), exact for whole numbers. `arrival` and the result have shape (n,); `service` has
    shape (n,) or is one number.

    Examples
    --------
    >>> lindley(np.array([0, 1, 9]), 3).tolist()
    [3, 6, 12]
    """
    total = np.cumsum(np.broadcast_to(service, len(arrival)))
    return total + np.maximum.accumulate(arrival - total + service)


def slow_start(
    arrival: np.ndarray, service: np.ndarray, window: int | None, echo_ns: int
) -> np.ndarray:
    """Departure times of a connection's segments while TCP's window grows from `window`.

    Every acknowledged segment admits two more, so segment j waits for the acknowledgement of
    segment ⌊(j − window) / 2⌋. Blocks that double in size are computed one after the other.

    A segment departs at the end of its time on the wire. `arrival`, `service` (time on the wire)
    and the result have shape (s,), in nanoseconds. `window` None: no limit. `echo_ns`: from a
    segment's departure until its acknowledgement is back.
    """
    if window is None or window >= len(arrival):
        return lindley(arrival, service)
    departure = np.empty(len(arrival), dtype=np.int64)
    departure[:window] = lindley(arrival[:window], service[:window])
    begin = window
    while begin < len(arrival):
        end = min(len(arrival), 2 * begin + window)
        echoed = departure[(np.arange(begin, end) - window) // 2] + echo_ns
        ready = np.maximum(np.maximum(arrival[begin:end], echoed), departure[begin - 1])
        departure[begin:end] = lindley(ready, service[begin:end])
        begin = end
    return departure


def travel(
    system: System,
    node: str,
    ids: np.ndarray,
    queued: np.ndarray,
    *,
    opened: int = 0,
    window: int | None = None,
    crash: int = NEVER,
) -> Route:
    """Send tuples through a node and their results downstream.

    The connection to the node can be written to from `opened` on, with TCP's initial `window`.
    """
    delay = system.link.delay_ns
    entry = np.maximum(queued, opened)
    cut = Segments.cut(entry, system.tuples_per_segment)
    wire = system.wire_table[cut.sizes]
    departure = slow_start(entry[cut.first], wire, window, system.echo_ns)
    sent = departure[cut.of]
    done = lindley(sent + delay, system.cost_ns)

    finished = done[cut.last]
    arrival = lindley(finished, wire) + delay
    alive = finished < crash
    emitted = np.where(alive, finished, NEVER)[cut.of]
    delivered = np.where(alive, arrival, NEVER)[cut.of]
    processed = np.where(done < crash, done, NEVER)
    return Route(node, ids, queued, sent, processed, emitted, delivered, crash)


def acknowledged(system: System, route: Route, time: int) -> int:
    """Number of a route's tuples that level-0 and level-1 ACKs have taken from the queue by a time.

    The downstream node sends a level-0 ACK of all results that have arrived, and the node passes it
    on at once, as a level-1 ACK. The last that counts reached the node before its crash, and the
    upstream node by `time`.
    """
    every, phase = system.cycle("ack")
    hop = system.hop_ns
    latest = min(route.crash - 1 - hop, time - 2 * hop)
    tick = (latest - phase) // every * every + phase
    if tick <= phase:
        return 0
    return int(np.searchsorted(route.delivered, tick, side="right"))
