"""The engine for sweeps: whole streams at once by Lindley's recursion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aftlib.upstream_backup.failures import Outage
from aftlib.upstream_backup.parameters import NODES, Parameters
from aftlib.upstream_backup.path import Feed, Path, acknowledged, checkpointed, travel
from aftlib.upstream_backup.queueing import slow_start
from aftlib.upstream_backup.run import NEVER, Recovery, Run
from aftlib.upstream_backup.schemes import Scheme
from aftlib.upstream_backup.stream import Segments, primary_turn, written_ns

_NONE = np.zeros(0, dtype=np.int64)


def run(parameters: Parameters, scheme: Scheme, outages: Sequence[Outage], until_ns: int) -> Run:
    """Simulate a stream; the same contract as `events.run`.

    Parameters
    ----------
    parameters : Parameters
    scheme : Scheme
    outages : sequence of Outage
        In order of time.
    until_ns : int
        When the upstream node stops writing; what was written is followed to its end.
    """
    written = written_ns(parameters, until_ns)
    if scheme.both:
        return _Both(parameters, scheme, written).run(outages)
    return _Forwarding(parameters, scheme, written, tuple(outages)).run()


@dataclass(frozen=True)
class _Burst:
    """What one failure makes the upstream node send again."""

    outage: Outage
    source: Path | None
    ids: np.ndarray
    at_crash: int

    @property
    def duplicates(self) -> int:
        """Tuples whose result the dead node had delivered."""
        if self.source is None:
            return 0
        begin = int(np.searchsorted(self.source.feed.queued, self.outage.request))
        there = self.source.delivered[begin - len(self.ids) : begin] < NEVER
        return int(there.sum())


@dataclass(frozen=True)
class _Forwarding:
    """Each tuple goes to one node, and again to the other if that one dies."""

    parameters: Parameters
    scheme: Scheme
    written: np.ndarray
    outages: tuple[Outage, ...]

    def run(self) -> Run:
        owner, active = self._owners()
        bursts: list[_Burst] = []
        paths: list[Path] = []
        begins = dict.fromkeys(NODES, 0)
        for outage, idle in zip(self.outages, active, strict=True):
            node = outage.failure.node
            feed = self._feed(owner, node, begins[node], outage, bursts)
            begins[node] = outage.back
            if idle:
                bursts.append(_Burst(outage, None, _NONE, 0))
                continue
            paths.append(travel(self.parameters, feed))
            bursts.append(self._burst(outage, paths[-1]))
        for node in NODES:
            feed = self._feed(owner, node, begins[node], None, bursts)
            paths.append(travel(self.parameters, feed))
        return _collected(self.scheme, self.written, paths, bursts)

    def _owners(self) -> tuple[np.ndarray, list[bool]]:
        """Node of each tuple when it is written first, and which failures met an idle node."""
        owner, active, idle = np.zeros(len(self.written), dtype=np.int8), 0, []
        if self.scheme.switching:
            owner[~np.asarray(primary_turn(self.parameters, self.written))] = 1
        for outage in self.outages:
            node, begin = NODES.index(outage.failure.node), self._at(outage.request)
            idle.append(not self.scheme.switching and node != active)
            if self.scheme.switching:
                owner[begin : self._at(outage.back)] = 1 - node
            elif not idle[-1]:
                active = 1 - node
                owner[begin:] = active
        return owner, idle

    def _at(self, time: int) -> int:
        return int(np.searchsorted(self.written, time))

    def _feed(
        self, owner: np.ndarray, node: str, begin: int, outage: Outage | None, sent: list[_Burst]
    ) -> Feed:
        """What a node is sent from `begin` until its failure is known."""
        end, crash = (outage.request, outage.crash) if outage else (NEVER, NEVER)
        first, last = self._at(begin), self._at(end)
        own = first + np.flatnonzero(owner[first:last] == NODES.index(node))
        bursts = [
            b for b in sent
            if b.source is not None and b.outage.failure.other == node
            and begin <= b.outage.request < end
        ]  # fmt: skip
        ids = np.concatenate([*(b.ids for b in bursts), own])
        times = [np.full(len(b.ids), b.outage.request) for b in bursts]
        queued = np.concatenate([*times, self.written[own]])
        if bursts:
            order = np.argsort(queued, kind="stable")
            ids, queued = ids[order], queued[order]
        return Feed(node, ids, queued, *self._connection(bursts), crash)

    def _connection(self, bursts: Sequence[_Burst]) -> tuple[int, int | None]:
        """When the connection may be written to, and its initial window."""
        if self.scheme.warm or not bursts:
            return 0, None
        tcp, opened = self.parameters.tcp, bursts[0].outage.request
        if self.scheme.opens and tcp.handshake:
            opened += self.parameters.handshake_ns
        return opened, tcp.initial_window

    def _burst(self, outage: Outage, path: Path) -> _Burst:
        taken = acknowledged if self.scheme.trimmed_by == "ack" else checkpointed
        trimmed = taken(self.parameters, path, outage.request)
        at_crash = path.queued_by(outage.crash) - taken(self.parameters, path, outage.crash)
        ids = path.feed.ids[trimmed : path.queued_by(outage.request)]
        return _Burst(outage, path, ids, at_crash)


@dataclass(frozen=True)
class _Both:
    """Both nodes process every tuple (active standby); at most one failure."""

    parameters: Parameters
    scheme: Scheme
    written: np.ndarray

    def run(self, outages: Sequence[Outage]) -> Run:
        sends = self.scheme.trimmed_by == "copy"
        crashes = {o.failure.node: o.crash for o in outages}
        primary, secondary = (
            travel(self.parameters, self._feed(node, crashes), sends or node == NODES[0])
            for node in NODES
        )
        if sends or "primary" not in crashes:
            nothing = [_Burst(o, None, _NONE, 0) for o in outages]
            return _collected(self.scheme, self.written, [primary, secondary], nothing)
        return self._taken_over(outages[0], primary, secondary)

    def _feed(self, node: str, crashes: dict[str, int]) -> Feed:
        ids = np.arange(len(self.written))
        return Feed(node, ids, self.written, 0, None, crashes.get(node, NEVER))

    def _taken_over(self, outage: Outage, primary: Path, secondary: Path) -> Run:
        """The secondary sends its queue of results, and all later ones, downstream."""
        first, ready = self._queue(outage.detected, primary, secondary)
        begin, end = self._queue(outage.crash, primary, secondary)
        delivered = np.full(len(self.written), NEVER)
        delivered[first:] = self._sent(outage.detected, secondary.written[first:])
        sent = Path(secondary.feed, secondary.done, secondary.written, delivered)
        resent = np.arange(first, ready)
        found = Recovery(
            outage, end - begin, resent, secondary.done[resent], delivered[resent],
            int((primary.delivered[resent] < NEVER).sum()), 0,
        )  # fmt: skip
        return _collected(self.scheme, self.written, [primary, sent], [], (found,))

    def _queue(self, time: int, primary: Path, secondary: Path) -> tuple[int, int]:
        """First result in the secondary's queue at a time, and the first not yet in it."""
        ready = int(np.searchsorted(secondary.written, time))
        return min(acknowledged(self.parameters, primary, time), ready), ready

    def _sent(self, detected: int, ready: np.ndarray) -> np.ndarray:
        parameters, link = self.parameters, self.parameters.link
        opened = detected + (parameters.handshake_ns if parameters.tcp.handshake else 0)
        entry = np.maximum(ready, opened)
        cut = Segments.cut(entry, parameters.tuples_per_segment)
        wire = parameters.wire_table[cut.sizes]
        departure = slow_start(
            entry[cut.first], wire, parameters.tcp.initial_window, parameters.echo_ns
        )
        return np.asarray((departure + link.delay_ns)[cut.of])


def _collected(
    scheme: Scheme,
    written: np.ndarray,
    paths: Sequence[Path],
    bursts: Sequence[_Burst],
    recoveries: tuple[Recovery, ...] = (),
) -> Run:
    delivered = np.full(len(written), NEVER)
    copies = np.zeros(len(written), dtype=np.int64)
    for path in paths:
        ids = path.feed.ids
        delivered[ids] = np.minimum(delivered[ids], path.delivered)
        copies[ids] += path.delivered < NEVER
    recoveries += tuple(_recovery(burst, paths) for burst in bursts)
    return Run(scheme, written, delivered, copies, recoveries)


def _recovery(burst: _Burst, paths: Sequence[Path]) -> Recovery:
    count, at = len(burst.ids), burst.outage.request
    for path in paths:
        begin = int(np.searchsorted(path.feed.queued, at))
        there = path.feed.ids[begin : begin + count]
        if (
            count
            and path.feed.node == burst.outage.failure.other
            and np.array_equal(there, burst.ids)
        ):
            done, delivered = (
                path.done[begin : begin + count],
                path.delivered[begin : begin + count],
            )
            return Recovery(
                burst.outage, burst.at_crash, burst.ids, done, delivered, burst.duplicates, count
            )
    return Recovery(burst.outage, burst.at_crash, _NONE, _NONE, _NONE, 0, 0)
