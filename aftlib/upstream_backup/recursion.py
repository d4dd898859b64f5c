"""Simulate a standby system: whole streams at once, by Lindley's recursion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aftlib.upstream_backup.failures import Downtime, Failure, downtimes
from aftlib.upstream_backup.parameters import MS, NODES, Parameters
from aftlib.upstream_backup.routes import (
    NEVER,
    Feed,
    Route,
    acknowledged,
    checkpointed,
    departed,
    primary_turn,
    stored_results,
    travel,
    written_ns,
)
from aftlib.upstream_backup.schemes import Scheme, scheme_named

AFTER_MS = 200.0
"""Default time for which the stream continues after the last request."""


@dataclass(frozen=True)
class Recovery:
    """One failure and the tuples sent again.

    `resent` has the tuples in order, shape (q,). `done` and `delivered`, shape (q,), have the
    times, in nanoseconds, at which the survivor had processed each tuple and the downstream node
    had its result from the survivor. `queue_at_crash` is the length of the failed node's queue
    (active standby: results in the secondary's queue). `duplicates` counts the tuples sent again
    whose result also comes from the failed node, perhaps later over a slow link. `reprocessed`
    counts the tuples that the survivor processed again: none if only results are sent.
    """

    downtime: Downtime
    queue_at_crash: int
    resent: np.ndarray
    done: np.ndarray
    delivered: np.ndarray
    duplicates: int
    reprocessed: int

    @property
    def recovery_ms(self) -> float:
        """The experiment's recovery time: from the request until the last tuple is processed again.

        All recovery times are infinite if the survivor failed before.
        """
        return self._since(self.downtime.request, self.done) if self.reprocessed else 0.0

    @property
    def restored_ms(self) -> float:
        """Hwang et al.'s time: from detection until the survivor has the failed node's progress."""
        return self._since(self.downtime.detected, self.done) if self.reprocessed else 0.0

    @property
    def caught_up_ms(self) -> float:
        """From detection until the downstream node has everything that was sent again."""
        return self._since(self.downtime.detected, self.delivered)

    @property
    def interrupted(self) -> bool:
        """Whether the survivor failed before it had processed and sent everything again."""
        return NEVER in (*self.done[-1:], *self.delivered[-1:])

    def _since(self, begin: int, times: np.ndarray) -> float:
        if NEVER in times[-1:]:
            return math.inf
        return float(times[-1] - begin) / MS if len(times) else 0.0


@dataclass(frozen=True)
class Simulated:
    """A stream through a standby system; times in nanoseconds, arrays of shape (n,)."""

    parameters: Parameters
    scheme: Scheme
    until: int  # when the upstream node stopped writing
    written: np.ndarray  # when it first wrote each tuple
    delivered: np.ndarray  # when its result first arrived; `NEVER` if it did not
    copies: np.ndarray  # how often its result arrived
    recoveries: tuple[Recovery, ...]  # one per failure
    routes: tuple[Route, ...]  # one for each node from its start until its failure is known


def simulate(
    parameters: Parameters,
    scheme: Scheme | str,
    failures: Sequence[Failure],
    until_ms: float | None = None,
) -> Simulated:
    """Send a stream through a standby system whose nodes fail.

    Parameters
    ----------
    parameters : Parameters
    scheme : Scheme or its name
    failures : sequence of Failure
    until_ms : float, optional
        When the stream ends; by default 200 ms after the last request. All tuples written until
        then are followed until they are delivered.

    Raises
    ------
    ValueError
        As `downtimes`, or when the stream would never end, or end before the last request.

    Examples
    --------
    >>> run = simulate(Parameters(rate=1000), "proposed", [Failure(at_ms=2789.65)])
    >>> len(run.recoveries[0].resent), run.recoveries[0].recovery_ms
    (100, 8.293)
    """
    chosen = scheme_named(scheme) if isinstance(scheme, str) else scheme
    known = downtimes(parameters, chosen, failures)
    last = max([downtime.request for downtime in known], default=0)
    end = (last + round(AFTER_MS * MS)) / MS if until_ms is None else until_ms
    until = round(end * MS) if math.isfinite(end) else 0
    if until <= last:
        raise ValueError(
            f"until_ms must be finite and lie after the last request at {last / MS:g} ms, got "
            f"{until_ms!r}; give a later time, so that the recovery can end"
        )

    written = written_ns(parameters, until)
    sent = sent_to_both if chosen.both else sent_to_one
    routes, recoveries = sent(parameters, chosen, written, known)

    delivered = np.full(len(written), NEVER)
    copies = np.zeros(len(written), dtype=np.int64)
    for route in routes:
        ids = route.feed.ids
        delivered[ids] = np.minimum(delivered[ids], route.delivered)
        copies[ids] += route.delivered < NEVER
    return Simulated(parameters, chosen, until, written, delivered, copies, recoveries, routes)


Outcome = tuple[tuple[Route, ...], tuple[Recovery, ...]]
Burst = tuple[str, int, np.ndarray]
"""Node to which tuples are sent again, when, and which tuples."""


def sent_to_one(
    parameters: Parameters, scheme: Scheme, written: np.ndarray, known: Sequence[Downtime]
) -> Outcome:
    """Send each tuple to one node, and again to the other node if the first one fails."""
    owner, idle = _owners(parameters, scheme, written, known)
    upstream = _Upstream(parameters, scheme, written, owner)
    taken = acknowledged if scheme.trimmed_by == "ack" else checkpointed
    begins, routes, bursts = dict.fromkeys(NODES, 0), list[Route](), list[Burst]()
    queues = list[tuple[Downtime, np.ndarray, int, int]]()

    for downtime in known:
        node, request, crash = downtime.failure.node, downtime.request, downtime.crash
        route = travel(parameters, upstream.feed(node, begins[node], bursts, downtime))
        routes.append(route)
        begins[node] = downtime.back

        queue = slice(taken(parameters, route, request), route.queued_before(request))
        at_crash = route.queued_before(crash) - taken(parameters, route, crash)
        ids, came = route.feed.ids[queue], route.delivered[queue] < NEVER
        queues.append((downtime, ids, at_crash, int(came.sum())))
        bursts += [(downtime.failure.other, request, ids)] if downtime not in idle else []
    routes += [travel(parameters, upstream.feed(n, begins[n], bursts)) for n in NODES]

    recoveries = []
    for downtime, ids, at_crash, duplicates in queues:
        other, request = downtime.failure.other, downtime.request
        feeds = ((route.feed, route) for route in routes)
        to = next(r for f, r in feeds if f.node == other and f.begin <= request < f.end)
        first = to.queued_before(request)
        again = slice(first, first + len(ids))
        done, delivered = to.done[again], to.delivered[again]
        recoveries.append(Recovery(downtime, at_crash, ids, done, delivered, duplicates, len(ids)))
    return tuple(routes), tuple(recoveries)


@dataclass(frozen=True)
class _Upstream:
    """The upstream node: `owner` has the node to which each tuple is first sent."""

    parameters: Parameters
    scheme: Scheme
    written: np.ndarray
    owner: np.ndarray

    def feed(
        self, node: str, begin: int, bursts: Sequence[Burst], failing: Downtime | None = None
    ) -> Feed:
        """Tuples sent to a node from a time on: its own tuples, and those sent again to it."""
        end, crash = (failing.request, failing.crash) if failing else (NEVER, NEVER)
        first, last = np.searchsorted(self.written, (begin, end))
        own = first + np.flatnonzero(self.owner[first:last] == NODES.index(node))
        again = [(at, ids) for to, at, ids in bursts if to == node and begin <= at < end]
        ids = np.concatenate([*(ids for _, ids in again), own])
        times = [np.full(len(ids), at) for at, ids in again]
        queued = np.concatenate([*times, self.written[own]])
        order = np.argsort(queued, kind="stable") if again else slice(None)

        opened, window, tcp = 0, None, self.parameters.tcp
        if again and not self.scheme.warm:
            opened, window = again[0][0], tcp.initial_window
            if self.scheme.opens and tcp.handshake:
                opened += self.parameters.handshake_ns
        return Feed(node, ids[order], queued[order], begin, end, crash, opened, window)


def _owners(
    parameters: Parameters, scheme: Scheme, written: np.ndarray, known: Sequence[Downtime]
) -> tuple[np.ndarray, set[Downtime]]:
    """Node to which each tuple is first sent, and the failures that hit an idle node."""
    owner, active, idle = np.zeros(len(written), dtype=np.int8), 0, set[Downtime]()
    if scheme.switching:
        owner[~np.asarray(primary_turn(parameters, written))] = 1
    for downtime in known:
        node = NODES.index(downtime.failure.node)
        begin, back = np.searchsorted(written, (downtime.request, downtime.back))
        if scheme.switching:
            owner[begin:back] = 1 - node
        elif node == active:
            active = 1 - node
            owner[begin:] = active
        else:
            idle.add(downtime)
    return owner, idle


def sent_to_both(
    parameters: Parameters, scheme: Scheme, written: np.ndarray, known: Sequence[Downtime]
) -> Outcome:
    """Let both nodes process every tuple (active standby); at most one failure."""
    sends = scheme.trimmed_by == "copy"
    crashes = {downtime.failure.node: downtime.crash for downtime in known}
    ids, nothing = np.arange(len(written)), np.zeros(0, dtype=np.int64)
    feeds = (Feed(node, ids, written, crash=crashes.get(node, NEVER)) for node in NODES)
    primary, secondary = (
        travel(parameters, feed, results=sends or feed.node == NODES[0]) for feed in feeds
    )
    if sends or NODES[0] not in crashes:
        lost = tuple(Recovery(d, 0, nothing, nothing, nothing, 0, 0) for d in known)
        return (primary, secondary), lost

    # the secondary sends its queue of results, and all later ones, downstream
    downtime = known[0]
    first, ready = stored_results(parameters, primary, secondary, downtime.detected)
    begin, end = stored_results(parameters, primary, secondary, downtime.crash)
    tcp, results = parameters.tcp, secondary.written[first:]
    opened = downtime.detected + (parameters.handshake_ns if tcp.handshake else 0)
    cut, _, departure = departed(parameters, results, opened, tcp.initial_window)
    delivered = np.full(len(written), NEVER)
    delivered[first:] = (departure + parameters.link.delay_ns)[cut.of]

    resent = np.arange(first, ready)
    duplicates = int((primary.delivered[resent] < NEVER).sum())
    done, heard = secondary.done[resent], delivered[resent]
    recovery = Recovery(downtime, end - begin, resent, done, heard, duplicates, 0)
    return (primary, replace(secondary, delivered=delivered)), (recovery,)
