"""Times of the stream: the writes, and the route of tuples through a node and the ACKs back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aftlib.upstream_backup.parameters import MS, Parameters

NEVER = np.iinfo(np.int64).max
"""Time of an event that does not happen, in nanoseconds."""


def written_ns(parameters: Parameters, until_ns: int) -> np.ndarray:
    """Times at which the upstream node writes each tuple, up to a time, shape (n,), nanoseconds.

    The i-th tuple is due at i / rate and written at the next multiple of the write interval.
    """
    count = int(until_ns * parameters.rate / 1e9) + 1
    every = round(parameters.write_ms * MS)
    due = np.arange(count) * (1e9 / parameters.rate)
    ticks = np.ceil(due / every).astype(np.int64) * every
    return ticks[: np.searchsorted(ticks, until_ns, side="right")]


def primary_turn(parameters: Parameters, time_ns: np.ndarray | int) -> np.ndarray | bool:
    """Whether a moment belongs to the primary's turn (the proposal)."""
    cycle, phase = parameters.cycle("switching")
    return (time_ns - phase) % cycle < round(cycle * parameters.share)


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
        acknowledged = departure[(np.arange(begin, end) - window) // 2] + echo_ns
        ready = np.maximum(np.maximum(arrival[begin:end], acknowledged), departure[begin - 1])
        departure[begin:end] = lindley(ready, service[begin:end])
        begin = end
    return departure


@dataclass(frozen=True)
class Feed:
    """Tuples sent to a node from its start until its failure is known; times in nanoseconds."""

    node: str
    ids: np.ndarray  # tuples in order, shape (k,)
    queued: np.ndarray  # when each entered the queue kept for the node
    begin: int = 0  # when the node takes part
    end: int = NEVER  # when the request for its queue comes
    crash: int = NEVER  # when the node fails
    opened: int = 0  # when the connection can be written to; earlier tuples wait
    window: int | None = None  # its initial window; None when it has carried data before


@dataclass(frozen=True)
class Route:
    """Times of a feed's tuples in nanoseconds, `NEVER` if the crash prevented the event.

    Times of each tuple, shape (k,): sent to the node, processed there, result written to the
    connection downstream, and result delivered. All but `done` are times of the tuple's whole
    segment.
    """

    feed: Feed
    sent: np.ndarray
    done: np.ndarray
    written: np.ndarray
    delivered: np.ndarray

    def queued_before(self, time: int) -> int:
        """Tuples that have entered the queue before a time."""
        return int(np.searchsorted(self.feed.queued, time))


def departed(
    parameters: Parameters, queued: np.ndarray, opened: int, window: int | None
) -> tuple[Segments, np.ndarray, np.ndarray]:
    """Segments of a connection, their times on the wire, and their departure times."""
    entry = np.maximum(queued, opened)
    cut = Segments.cut(entry, parameters.tuples_per_segment)
    wire = parameters.wire_table[cut.sizes]
    return cut, wire, slow_start(entry[cut.first], wire, window, parameters.echo_ns)


def travel(parameters: Parameters, feed: Feed, results: bool = True) -> Route:
    """Send a feed through its node; with `results`, send the node's results downstream."""
    delay = parameters.link.delay_ns
    cut, wire, departure = departed(parameters, feed.queued, feed.opened, feed.window)
    sent = departure[cut.of]
    done = lindley(sent + delay, parameters.cost_ns(feed.node))

    finished = done[cut.last]
    arrival = lindley(finished, wire) + delay
    alive = finished < feed.crash
    written = np.where(alive, finished, NEVER)[cut.of]
    delivered = np.where(alive & results, arrival, NEVER)[cut.of]
    return Route(feed, sent, np.where(done < feed.crash, done, NEVER), written, delivered)


def acknowledged(parameters: Parameters, route: Route, time: int) -> int:
    """Number of a route's tuples that level-0 and level-1 ACKs have taken from the queue by a time.

    The last level-0 ACK that counts reached the node before its crash, and its level-1 ACK arrived
    by `time`. It names all results that had arrived when it was sent.
    """
    (every, phase), hop = parameters.cycle("ack"), parameters.hop_ns
    latest = min(route.feed.crash - 1 - hop, time - 2 * hop)
    tick = (latest - phase) // every * every + phase
    return int(np.searchsorted(route.delivered, tick, side="right")) if tick > phase else 0


def checkpointed(parameters: Parameters, route: Route, time: int) -> int:
    """Number of tuples that checkpoints have removed from the queue by a time (passive standby).

    The secondary reports each checkpoint to the upstream node. The changes of the state since the
    last checkpoint travel in as many full segments as they need.
    """
    every, phase = parameters.cycle("checkpoint")
    ticks = np.arange(every + phase, min(route.feed.crash, time), every)
    counts = np.searchsorted(route.written, ticks, side="right")
    sent = np.diff(counts, prepend=0)
    changed = sent > 0
    wire = [checkpoint_ns(parameters, int(changes)) for changes in sent[changed]]
    if not wire:
        return 0
    arrived = lindley(ticks[changed], np.array(wire)) + parameters.link.delay_ns
    heard = int(np.searchsorted(arrived + parameters.hop_ns, time, side="right"))
    return int(counts[changed][heard - 1]) if heard else 0


def checkpoint_ns(parameters: Parameters, changes: int) -> int:
    """Time on the wire of a checkpoint message with `changes` changes of the state."""
    payload = parameters.message_bytes + changes * parameters.state_bytes
    return parameters.link.wire_ns(payload, -(-payload // parameters.tcp.segment_bytes))


def stored_results(
    parameters: Parameters, primary: Route, secondary: Route, time: int
) -> tuple[int, int]:
    """Begin and end of the secondary's queue of results at a time (active standby), half-open."""
    ready = int(np.searchsorted(secondary.written, time))
    return min(acknowledged(parameters, primary, time), ready), ready
