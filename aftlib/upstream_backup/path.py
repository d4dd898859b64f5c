"""The way of tuples through one node: link, processing, link, and the ACKs back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aftlib.upstream_backup.parameters import MS, Parameters
from aftlib.upstream_backup.queueing import lindley, slow_start
from aftlib.upstream_backup.run import NEVER
from aftlib.upstream_backup.stream import Segments


@dataclass(frozen=True)
class Feed:
    """What a node is sent while it is up.

    Attributes
    ----------
    node : {"primary", "secondary"}
    ids : ndarray, shape (k,)
        Tuples in order.
    queued : ndarray, shape (k,)
        When each entered the queue kept for the node, nanoseconds.
    opened : int
        When the connection can be written to; earlier tuples wait.
    window : int or None
        Its initial window; None when it has carried data before.
    crash : int
        When the node dies, or `NEVER`.
    """

    node: str
    ids: np.ndarray
    queued: np.ndarray
    opened: int
    window: int | None
    crash: int


@dataclass(frozen=True)
class Path:
    """What became of a feed; times in nanoseconds, `NEVER` for what the crash prevented.

    Attributes
    ----------
    feed : Feed
    done : ndarray, shape (k,)
        Processed by the node.
    written : ndarray, shape (k,)
        Result written to the connection downstream, together with the others of its segment.
    delivered : ndarray, shape (k,)
        Result at the downstream node.
    """

    feed: Feed
    done: np.ndarray
    written: np.ndarray
    delivered: np.ndarray

    def queued_by(self, time: int) -> int:
        """Tuples that have entered the queue before a time."""
        return int(np.searchsorted(self.feed.queued, time, side="left"))


def travel(parameters: Parameters, feed: Feed, results: bool = True) -> Path:
    """Send a feed through its node.

    Parameters
    ----------
    parameters : Parameters
    feed : Feed
    results : bool
        Whether the node sends its results downstream.
    """
    delay = parameters.link.delay_ns
    entry = np.maximum(feed.queued, feed.opened)
    cut = Segments.cut(entry, parameters.tuples_per_segment)
    wire = parameters.wire_table[cut.sizes]
    departure = slow_start(entry[cut.first], wire, feed.window, parameters.echo_ns)
    done = lindley((departure + delay)[cut.of], parameters.cost_ns(feed.node))
    finished = done[cut.last]
    arrival = lindley(finished, wire) + delay
    alive = finished < feed.crash
    written = np.where(alive, finished, NEVER)[cut.of]
    delivered = np.where(alive & results, arrival, NEVER)[cut.of]
    return Path(feed, np.where(done < feed.crash, done, NEVER), written, delivered)


def acknowledged(parameters: Parameters, path: Path, time: int) -> int:
    """Tuples of a path that level-0 and level-1 ACKs have taken from the queue by a time.

    The last level-0 ACK that counts left the downstream node early enough to meet the node alive
    and to be passed on by `time`; it names everything that had arrived by then.
    """
    every, hop = round(parameters.ack_ms * MS), parameters.hop_ns
    latest = min(path.feed.crash - 1 - hop, time - 2 * hop)
    tick = latest // every * every
    return int(np.searchsorted(path.delivered, tick, side="right")) if tick > 0 else 0


def checkpointed(parameters: Parameters, path: Path, time: int) -> int:
    """Tuples that checkpoint messages have taken from the queue by a time (passive standby).

    The secondary, when it has a checkpoint, tells the upstream node; the state's changes since the
    last one travel in as many full segments as they need.
    """
    every, link = round(parameters.checkpoint_ms * MS), parameters.link
    ticks = np.arange(every, min(path.feed.crash, time), every)
    counts = np.searchsorted(path.written, ticks, side="right")
    sent, ticks = np.diff(counts, prepend=0), ticks[np.diff(counts, prepend=0) > 0]
    wire = [checkpoint_ns(parameters, int(changes)) for changes in sent[sent > 0]]
    if not wire:
        return 0
    heard = lindley(ticks, np.array(wire)) + link.delay_ns + parameters.hop_ns
    last = int(np.searchsorted(heard, time, side="right"))
    return int(counts[sent > 0][last - 1]) if last else 0


def checkpoint_ns(parameters: Parameters, changes: int) -> int:
    """Time on the wire of a checkpoint message."""
    payload = parameters.message_bytes + changes * parameters.state_bytes
    return parameters.link.wire_ns(payload, -(-payload // parameters.tcp.segment_bytes))
