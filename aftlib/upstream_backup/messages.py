"""A simulated recovery for a sequence diagram: messages between nodes, and queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from aftlib.upstream_backup.parameters import NODES
from aftlib.upstream_backup.recursion import Simulated
from aftlib.upstream_backup.routes import NEVER, Route, acknowledged, checkpointed, results_kept


@dataclass(frozen=True, order=True)
class Message:
    """One message between nodes; times in nanoseconds.

    Kinds: "data", "result" (both with ", again" if sent again), "ACK 0", "ACK 1",
    "heartbeat", "answer", "request". Checkpoint messages are not drawn.
    """

    arrived: int
    sent: int
    kind: str
    source: str
    target: str
    tuples: tuple[int, ...] = ()  # that it carries or acknowledges


def messages(found: Simulated) -> list[Message]:
    """Every message of a simulated stream, in order of arrival."""
    hop, sent = found.parameters.hop_ns, list[Message]()
    for route in found.routes:
        sent += _carried(found, route)
        sent += _acknowledgements(found, route) if found.scheme.trimmed_by == "ack" else ()
    every, phase = found.parameters.rhythm("heartbeat")
    for beat in range(phase, found.until, every):
        for monitor, target in (NODES, NODES[::-1]):
            if _lives(found, monitor, beat):
                sent.append(Message(beat + hop, beat, "heartbeat", monitor, target))
            there = beat + hop
            if _lives(found, monitor, there) and _lives(found, target, there):
                sent.append(Message(there + hop, there, "answer", target, monitor))
    for at in (recovery.downtime for recovery in found.recoveries):
        sent.append(Message(at.request, at.detected, "request", at.failure.other, "upstream"))
    return sorted(sent)


def kept(found: Simulated, node: str, time: int) -> tuple[int, ...]:
    """Tuples in the queue kept for a node's failure, at a time in nanoseconds.

    In active standby the secondary keeps results for the primary's failure.
    """
    if found.scheme.both:
        taken_over = any(time >= r.downtime.detected for r in found.recoveries)
        keeps = found.scheme.trimmed_by == "ack" and _lives(found, NODES[1], time)
        if node != NODES[0] or taken_over or not keeps:
            return ()
        primary, secondary = found.routes
        return tuple(range(*results_kept(found.parameters, primary, secondary, time + 1)))
    for route in found.routes:
        if route.feed.node == node and route.feed.begin <= time < route.feed.end:
            if found.scheme.trimmed_by == "ack":
                first = acknowledged(found.parameters, route, time)
            else:  # a secondary sends no checkpoints
                first = checkpointed(found.parameters, route, time) if node == NODES[0] else 0
            return tuple(route.feed.ids[first : route.queued_before(time + 1)].tolist())
    return ()


def _lives(found: Simulated, node: str, time: int) -> bool:
    downs = (r.downtime for r in found.recoveries if r.downtime.failure.node == node)
    return not any(d.crash <= time < (NEVER if found.scheme.both else d.back) for d in downs)


def _carried(found: Simulated, route: Route) -> Iterator[Message]:
    """Messages of segments to a node and of its results; tuples sent again have messages apart."""
    node, ids, delay = route.feed.node, route.feed.ids.tolist(), found.parameters.link.delay_ns
    again = route.feed.queued > found.written[route.feed.ids]
    known = again
    if found.scheme.both and found.recoveries and node == NODES[1]:
        known = np.isin(route.feed.ids, found.recoveries[0].resent)  # its results only
    ways = (
        ("data", "upstream", node, route.sent, again),
        ("result", node, "downstream", route.delivered - delay, known),
    )
    for kind, source, target, times, repeated in ways:
        tuples = zip(times.tolist(), repeated.tolist(), ids, strict=True)
        for (sent, twice), group in groupby(tuples, key=lambda one: one[:2]):
            if sent < NEVER - delay:
                name = f"{kind}, again" if twice else kind
                carried = tuple(i for *_, i in group)
                yield Message(sent + delay, sent, name, source, target, carried)


def _acknowledgements(found: Simulated, route: Route) -> Iterator[Message]:
    """Level-0 ACKs for new results of a node, and the ACKs that a working node forwards."""
    feed, hop = route.feed, found.parameters.hop_ns
    every, phase = found.parameters.rhythm("ack")
    backs = (r.downtime.back for r in found.recoveries if r.downtime.request == feed.end)
    ticks = np.arange(every + phase, found.until + every, every)
    ticks = ticks[(ticks > feed.begin) & (ticks <= next(backs, NEVER))]

    arrived = route.delivered < NEVER
    counts = np.searchsorted(route.delivered[arrived], ticks, side="right")
    newest = np.maximum.accumulate(feed.ids[arrived])
    for tick, count, more in zip(ticks, counts, np.diff(counts, prepend=0) > 0, strict=True):
        if not more:
            continue
        heard, named = int(tick) + hop, (int(newest[count - 1]),)
        yield Message(heard, int(tick), "ACK 0", "downstream", feed.node, named)
        if heard < feed.crash and not (found.scheme.both and feed.node == NODES[1]):
            to = NODES[1] if found.scheme.both else "upstream"
            yield Message(heard + hop, heard, "ACK 1", feed.node, to)
