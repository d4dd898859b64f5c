"""The engine to read: an event simulation with a process for everything that acts by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

import numpy as np

from aftlib.upstream_backup.connection import Clock, Connection, Events, Node, Tuples
from aftlib.upstream_backup.failures import Failure, Outage
from aftlib.upstream_backup.parameters import MS, NODES, Parameters
from aftlib.upstream_backup.path import checkpoint_ns
from aftlib.upstream_backup.run import NEVER, Message, Recovery, Run, Trace
from aftlib.upstream_backup.schemes import Scheme
from aftlib.upstream_backup.stream import primary_turn, written_ns


def run(parameters: Parameters, scheme: Scheme, outages: Sequence[Outage], until_ns: int) -> Run:
    """Simulate a stream event by event; the same contract as `vectorised.run`.

    Only the failures are taken from `outages`: when they are noticed comes out of heartbeats.
    """
    system = _System(parameters, scheme, [outage.failure for outage in outages], until_ns)
    system.env.run()
    return system.outcome()


def trace(
    parameters: Parameters, scheme: Scheme, outages: Sequence[Outage], until_ns: int
) -> Trace:
    """Simulate as `run` does, and keep every message and every state of the queues."""
    system = _System(parameters, scheme, [outage.failure for outage in outages], until_ns)
    system.messages, system.queues = [], []
    system.env.run()
    ordered = sorted(system.messages, key=lambda message: message.arrived)
    return Trace(system.outcome(), tuple(ordered), tuple(system.queues))


class _Noticed:
    """A failure as it is met: who died, what was queued, what was sent again to whom."""

    def __init__(self, failure: Failure, crash: int, source: Node, at_crash: int) -> None:
        self.failure, self.crash, self.source, self.at_crash = failure, crash, source, at_crash
        self.detected = self.request = self.back = 0
        self.resent: Tuples = ()
        self.survivor: Node | None = None
        self.duplicates = 0

    def recovery(self, reprocessed: bool) -> Recovery:
        outage = Outage(self.failure, self.crash, self.detected, self.request, self.back)
        done = self.survivor.when_done(self.resent) if self.survivor else []
        delivered = self.survivor.when_delivered(self.resent) if self.survivor else []
        return Recovery(
            outage,
            self.at_crash,
            np.array(self.resent, dtype=np.int64),
            np.array(done, dtype=np.int64),
            np.array(delivered, dtype=np.int64),
            self.duplicates,
            len(done) if reprocessed else 0,
        )


class _System:
    """Upstream, primary, secondary and downstream node, and the processes that drive them."""

    def __init__(
        self, parameters: Parameters, scheme: Scheme, failures: Sequence[Failure], until: int
    ) -> None:
        self.env, self.parameters, self.scheme = Clock(), parameters, scheme
        self.until, self.written = until, written_ns(parameters, until)
        self.first = np.full(len(self.written), NEVER)
        self.copies = np.zeros(len(self.written), dtype=np.int64)
        self.active, self.noticed = "primary", list[_Noticed]()
        self.messages: list[Message] | None = None
        self.queues: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
        self.queue: dict[str, deque[int]] = {name: deque() for name in NODES}
        self.results, self.told, self.taken_over = deque[int](), 0, False
        self.checkpoint_free = 0
        self.trimmed, self.acknowledged = dict.fromkeys(NODES, 0), dict.fromkeys(NODES, 0)
        self.nodes = {name: self._start(name) for name in NODES}
        self.data = {name: self._connect(name) for name in NODES}
        self.down = {name: self._downstream(name) for name in NODES}
        self._begin(failures)

    def _begin(self, failures: Sequence[Failure]) -> None:
        for failure in failures:  # first, so that a node is dead for all else at that moment
            self.env.process(self._crash(failure))
        self.env.process(self._emit())
        if self.scheme.trimmed_by == "checkpoint":
            self.env.process(self._every(self.parameters.checkpoint_ms, self._checkpoint))
        elif self.scheme.trimmed_by == "ack":
            self.env.process(self._every(self.parameters.ack_ms, self._acknowledge))
        for name in NODES:
            self.env.process(self._watch(name, NODES[1 - NODES.index(name)]))

    # parts of the system

    def _start(self, name: str) -> Node:
        return Node(self.env, self.parameters, name, self._finished)

    def _connect(self, name: str, window: int | None = None, opened: int = 0) -> Connection:
        receive, seen = self.nodes[name].receive, partial(self._saw, "upstream", name)
        return Connection(self.env, self.parameters, receive, window, opened, seen)

    def _downstream(self, name: str, window: int | None = None, opened: int = 0) -> Connection:
        arrive = partial(self._arrive, self.nodes[name])
        seen = partial(self._saw, name, "downstream")
        return Connection(self.env, self.parameters, arrive, window, opened, seen)

    def _saw(self, source: str, target: str, tuples: Tuples, sent: int, arrived: int) -> None:
        if self.messages is None:
            return
        resent = {i for noticed in self.noticed if noticed.request for i in noticed.resent}
        fresh = "data" if source == "upstream" else "result"
        for again, group in groupby(tuples, key=resent.__contains__):
            kind = f"{fresh}, again" if again else fresh
            self.messages.append(Message(kind, source, target, sent, arrived, tuple(group)))

    def _say(self, kind: str, source: str, target: str, tuples: Tuples = ()) -> None:
        if self.messages is not None:
            sent, arrived = self.env.ns, self.env.ns + self.parameters.hop_ns
            self.messages.append(Message(kind, source, target, sent, arrived, tuple(tuples)))

    def _note_queues(self) -> None:
        if self.messages is not None:
            kept = [tuple(self.queue[name]) for name in NODES]
            self.queues.append((self.env.ns, kept[0], kept[1]))

    def _later(self, wait: int, action: Callable[[], None]) -> None:
        def process() -> Events:
            yield self.env.timeout(wait)
            action()

        self.env.process(process())

    def _every(self, interval_ms: float, action: Callable[[], None]) -> Events:
        while self.env.ns < self.until:
            yield self.env.timeout(round(interval_ms * MS))
            yield self.env.timeout(0)  # whatever arrives at this very moment counts
            action()

    # upstream

    def _emit(self) -> Events:
        for time, group in groupby(enumerate(self.written.tolist()), key=lambda pair: pair[1]):
            yield self.env.timeout(time - self.env.ns)
            self._write([i for i, _ in group])

    def _write(self, tuples: Tuples) -> None:
        for name in NODES if self.scheme.both else [self._target()]:
            self.queue[name].extend(tuples)
            self.data[name].write(tuples)
        self._note_queues()

    def _target(self) -> str:
        if not self.scheme.switching:
            return self.active
        turn = NODES[0 if primary_turn(self.parameters, self.env.ns) else 1]
        out = {n.failure.node for n in self.noticed if 0 < n.request <= self.env.ns < n.back}
        return NODES[1 - NODES.index(turn)] if turn in out else turn

    def _trim(self, node: Node, count: int) -> None:
        """A level-1 ACK: the first `count` tuples that this node was sent are safe."""
        name = node.name
        while node is self.nodes[name] and self.trimmed[name] < count and self.queue[name]:
            self.queue[name].popleft()
            self.trimmed[name] += 1
        self._note_queues()

    def _request(self, noticed: _Noticed) -> None:
        name = noticed.failure.node
        noticed.request = self.env.ns
        noticed.back = self.env.ns + round(self.parameters.repair_ms * MS)
        if self.scheme.switching or (name == self.active and not self.scheme.both):
            noticed.resent = tuple(self.queue[name])
            noticed.duplicates = sum(i in noticed.source.delivered for i in noticed.resent)
            self._send_again(noticed, noticed.failure.other)
        self.queue[name].clear()
        self._note_queues()
        if not self.scheme.both:  # there it would first need the other's state
            self._later(noticed.back - self.env.ns, lambda: self._rejoin(name))

    def _send_again(self, noticed: _Noticed, survivor: str) -> None:
        self.active, tcp, opened = survivor, self.parameters.tcp, self.env.ns
        if not self.scheme.warm:
            wait = self.scheme.opens and tcp.handshake
            opened += self.parameters.handshake_ns if wait else 0
            self.data[survivor] = self._connect(survivor, tcp.initial_window, opened)
        noticed.survivor = self.nodes[survivor]
        self.queue[survivor].extend(noticed.resent)
        self.data[survivor].write(noticed.resent)

    def _rejoin(self, name: str) -> None:
        self.nodes[name] = self._start(name)
        self.data[name], self.down[name] = self._connect(name), self._downstream(name)
        self.trimmed[name] = self.acknowledged[name] = 0

    # primary and secondary

    def _finished(self, node: Node, tuples: Tuples) -> None:
        keeps = self.scheme.both and self.scheme.trimmed_by == "ack" and not self.taken_over
        if keeps and node.name == "secondary":
            self.results.extend(tuples)
            self._forget()
        else:
            self.down[node.name].write(tuples)
        node.finished += len(tuples)

    def _forget(self) -> None:
        while self.results and self.results[0] < self.told:
            self.results.popleft()

    def _checkpoint(self) -> None:
        """Send the state's changes to the secondary, which tells the upstream node."""
        primary, link = self.nodes["primary"], self.parameters.link
        changes = primary.finished - self.acknowledged["primary"]
        if primary.dead or not changes:
            return
        count = self.acknowledged["primary"] = primary.finished
        begin = max(self.env.ns, self.checkpoint_free)
        self.checkpoint_free = begin + checkpoint_ns(self.parameters, changes)
        arrival = self.checkpoint_free + link.delay_ns
        self._later(
            arrival + self.parameters.hop_ns - self.env.ns, lambda: self._trim(primary, count)
        )

    def _tell(self, count: int) -> None:
        """The secondary learns that the first `count` results have arrived (active standby)."""
        self.told = max(self.told, count)
        self._forget()

    def _crash(self, failure: Failure) -> Events:
        yield self.env.timeout(round(failure.at_ms * MS))
        node = self.nodes[failure.node]
        node.dead = True
        count = len(self.results) if self.scheme.both else len(self.queue[failure.node])
        if not self.scheme.switching and failure.node != self.active:
            count = 0
        self.noticed.append(_Noticed(failure, self.env.ns, node, count))

    def _watch(self, monitor: str, target: str) -> Events:
        """Heartbeats from one node to the other, which is dead if the last is still unanswered."""
        every, hop = round(self.parameters.heartbeat_ms * MS), self.parameters.hop_ns
        answered = True
        while self.env.ns < self.until:
            last = next((n for n in reversed(self.noticed) if n.failure.node == target), None)
            known = self.nodes[target].dead and last is not None and last.detected > 0
            if last is not None and not (known or answered or self.nodes[monitor].dead):
                self._detect(last)
                known = True
            if not self.nodes[monitor].dead:
                self._say("heartbeat", monitor, target)
            yield self.env.timeout(hop)
            if not (self.nodes[target].dead or self.nodes[monitor].dead):
                self._say("answer", target, monitor)
            answered = known or not self.nodes[target].dead
            yield self.env.timeout(every - hop)

    def _detect(self, noticed: _Noticed) -> None:
        noticed.detected = self.env.ns
        if (
            self.scheme.trimmed_by == "ack"
            and self.scheme.both
            and noticed.failure.node == "primary"
        ):
            self._take_over(noticed)
        self._say("request", noticed.failure.other, "upstream")
        self._later(self.parameters.hop_ns, partial(self._request, noticed))

    def _take_over(self, noticed: _Noticed) -> None:
        """The secondary sends its queue of results, and from now on every result (active)."""
        tcp, opened = self.parameters.tcp, self.env.ns
        opened += self.parameters.handshake_ns if tcp.handshake else 0
        self.taken_over, noticed.resent = True, tuple(self.results)
        noticed.survivor = self.nodes["secondary"]
        noticed.duplicates = sum(i in noticed.source.delivered for i in noticed.resent)
        self.down["secondary"] = self._downstream("secondary", tcp.initial_window, opened)
        self.down["secondary"].write(noticed.resent)

    def outcome(self) -> Run:
        """What the run left behind, once nothing happens any more."""
        found = tuple(noticed.recovery(not self.scheme.both) for noticed in self.noticed)
        return Run(self.scheme, self.written, self.first, self.copies, found)

    # downstream

    def _arrive(self, node: Node, tuples: Tuples) -> None:
        for i in tuples:
            node.delivered[i] = self.env.ns
            self.first[i] = min(self.first[i], self.env.ns)
            self.copies[i] += 1
        node.arrived += len(tuples)

    def _acknowledge(self) -> None:
        """Level-0 ACKs to the nodes that results came from; each passes them on as level 1."""
        for name, node in self.nodes.items():
            if node.arrived > self.acknowledged[name]:
                self.acknowledged[name] = node.arrived
                self._say("ACK 0", "downstream", name, sorted(node.delivered)[-1:])
                self._later(self.parameters.hop_ns, partial(self._pass_on, node, node.arrived))

    def _pass_on(self, node: Node, count: int) -> None:
        if node.dead:
            return
        self._say("ACK 1", node.name, "secondary" if self.scheme.both else "upstream")
        heard = partial(self._tell, count) if self.scheme.both else partial(self._trim, node, count)
        self._later(self.parameters.hop_ns, heard)
