"""The obvious twin of the recursion: an event simulation with one process per actor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import simpy

from aftlib.upstream_backup.failures import Downtime, Failure, downtimes
from aftlib.upstream_backup.figures import Message
from aftlib.upstream_backup.parameters import MS, NODES, Parameters
from aftlib.upstream_backup.recursion import AFTER_MS, Recovery, Simulated
from aftlib.upstream_backup.routes import NEVER, checkpoint_ns, primary_turn, written_ns
from aftlib.upstream_backup.schemes import Scheme, scheme_named


def simulate(parameters, scheme, failures, until_ms=None):
    """The same contract as the library's `simulate`, event by event; `traced` returns more."""
    return traced(parameters, scheme, failures, until_ms)[0]


def traced(parameters, scheme, failures, until_ms=None):
    """Return the result, every message in order of arrival, and the queues after each change.

    Only the failures are given: heartbeats determine when they are detected.
    """
    chosen = scheme_named(scheme) if isinstance(scheme, str) else scheme
    known = downtimes(parameters, chosen, failures)
    last = max([downtime.request for downtime in known], default=0)
    until = last + round(AFTER_MS * MS) if until_ms is None else round(until_ms * MS)
    system = _System(parameters, chosen, [downtime.failure for downtime in known], until)
    system.env.run()
    return system.outcome(), sorted(system.messages), system.queues


Tuples = Sequence[int]
Events = Generator[simpy.Event, Any, None]


class Clock(simpy.Environment):
    """Simpy's clock, counted in whole nanoseconds."""

    @property
    def ns(self) -> int:
        """The present."""
        return int(self.now)


class Connection:
    """One direction of a TCP connection on a link of its own; delivers segments in order.

    `deliver` gets the tuples of each segment when it arrives, `seen` also when it left and arrived.
    `window` is the initial one in segments; None: never a limit. Tuples written before `opened` go
    out then, as one write.
    """

    def __init__(
        self,
        env: Clock,
        parameters: Parameters,
        deliver: Callable[[Tuples], None],
        window: int | None = None,
        opened: int = 0,
        seen: Callable[[Tuples, int, int], None] = lambda tuples, sent, arrived: None,
    ) -> None:
        self.env, self.parameters, self.deliver, self.window = env, parameters, deliver, window
        self.seen, self.opened, self.waiting = seen, opened, list[int]()
        self.segments, self.in_flight, self.acknowledged = simpy.Store(env), 0, env.event()
        env.process(self._transmit())
        if opened > env.ns:
            env.process(self._open())

    def write(self, tuples: Tuples) -> None:
        """Write tuples, cut in segments, or keep them until the connection is open."""
        if self.env.ns < self.opened:
            self.waiting.extend(tuples)
            return
        most = self.parameters.tuples_per_segment
        for begin in range(0, len(tuples), most):
            self.segments.put(tuples[begin : begin + most])

    def _open(self) -> Events:
        yield self.env.timeout(self.opened - self.env.ns)
        self.write(self.waiting)

    def _transmit(self) -> Events:
        size = self.parameters.tuple_bytes
        while True:
            tuples = yield self.segments.get()
            while self.window is not None and self.in_flight >= self.window:
                yield self.acknowledged
            self.in_flight += 1
            yield self.env.timeout(self.parameters.link.wire_ns(len(tuples) * size))
            self.env.process(self._carry(tuples))

    def _carry(self, tuples: Tuples) -> Events:
        delay = self.parameters.link.delay_ns
        yield self.env.timeout(delay)
        self.seen(tuples, self.env.ns - delay, self.env.ns)
        self.deliver(tuples)
        yield self.env.timeout(self.parameters.echo_ns - delay)
        self.in_flight -= 1
        if self.window is not None:
            self.window += 1
        self.acknowledged.succeed()
        self.acknowledged = self.env.event()


class Node:
    """A primary or secondary from its start until it fails: processes its tuples in order.

    `finish` gets the node and a segment's tuples once all are processed, unless it has failed.
    """

    def __init__(
        self, env: Clock, parameters: Parameters, name: str, finish: Callable[[Node, Tuples], None]
    ) -> None:
        self.env, self.name, self.finish = env, name, finish
        self.cost = parameters.cost_ns(name)
        self.failed, self.inbox = False, simpy.Store(env)
        self.done: dict[int, int] = {}
        self.delivered: dict[int, int] = {}
        self.arrived = self.finished = 0
        env.process(self._work())

    def _work(self) -> Events:
        while True:
            tuples = yield self.inbox.get()
            for i in tuples:
                yield self.env.timeout(self.cost)
                if self.failed:
                    return
                self.done[i] = self.env.ns
            self.finish(self, tuples)


@dataclass
class _Noticed:
    """A failure under way: the failed node, its queue, and the tuples that its survivor gets."""

    failure: Failure
    crash: int
    source: Node
    at_crash: int
    detected: int = 0
    request: int = 0
    back: int = 0
    resent: Tuples = ()
    survivor: Node | None = None

    def recovery(self, reprocessed: bool) -> Recovery:
        downtime = Downtime(self.failure, self.crash, self.detected, self.request, self.back)
        times = (self.survivor.done, self.survivor.delivered) if self.survivor else ({}, {})
        done, delivered = (np.array([t.get(i, NEVER) for i in self.resent], int) for t in times)
        resent = np.array(self.resent, int)
        twice = sum(i in self.source.delivered for i in self.resent)
        again = len(done) if reprocessed else 0
        return Recovery(downtime, self.at_crash, resent, done, delivered, twice, again)


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
        self.messages: list[Message] = []
        self.queues: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
        self.queue: dict[str, deque[int]] = {name: deque() for name in NODES}
        self.results, self.confirmed, self.taken_over = deque[int](), 0, False
        self.checkpoint_free = 0
        self.trimmed, self.acknowledged = dict.fromkeys(NODES, 0), dict.fromkeys(NODES, 0)
        self.nodes = {name: self._start(name) for name in NODES}
        self.data = {name: self._connect(name) for name in NODES}
        self.down = {name: self._downstream(name) for name in NODES}
        self._begin(failures)

    def _begin(self, failures: Sequence[Failure]) -> None:
        for failure in failures:  # first, so that a node has failed for all else at that moment
            self.env.process(self._crash(failure))
        self.env.process(self._emit())
        if self.scheme.trimmed_by == "checkpoint":
            self.env.process(self._every("checkpoint", self._checkpoint))
        elif self.scheme.trimmed_by == "ack":
            self.env.process(self._every("ack", self._acknowledge))
        for name in NODES:
            self.env.process(self._watch(name, NODES[1 - NODES.index(name)]))

    # parts of the system

    def _start(self, name: str) -> Node:
        return Node(self.env, self.parameters, name, self._finished)

    def _connect(self, name: str, window: int | None = None, opened: int = 0) -> Connection:
        receive, seen = self.nodes[name].inbox.put, partial(self._saw, "upstream", name)
        return Connection(self.env, self.parameters, receive, window, opened, seen)

    def _downstream(self, name: str, window: int | None = None, opened: int = 0) -> Connection:
        arrive = partial(self._arrive, self.nodes[name])
        seen = partial(self._saw, name, "downstream")
        return Connection(self.env, self.parameters, arrive, window, opened, seen)

    def _saw(self, source: str, target: str, tuples: Tuples, sent: int, arrived: int) -> None:
        fresh, node = ("data", target) if source == "upstream" else ("result", source)
        again = set()
        for noticed in self.noticed:
            results_only = self.scheme.both and fresh == "data"
            if noticed.survivor is self.nodes[node] and not results_only:
                again |= set(noticed.resent)
        for repeated, group in groupby(tuples, key=again.__contains__):
            kind = f"{fresh}, again" if repeated else fresh
            self.messages.append(Message(arrived, sent, kind, source, target, tuple(group)))

    def _log_message(self, kind: str, source: str, target: str, tuples: Tuples = ()) -> None:
        sent, arrived = self.env.ns, self.env.ns + self.parameters.hop_ns
        self.messages.append(Message(arrived, sent, kind, source, target, tuple(tuples)))

    def _record_queues(self) -> None:
        queues = [tuple(self.queue[name]) for name in NODES]
        if self.scheme.both:
            over = self.taken_over or self.nodes["secondary"].failed
            queues = [() if over else tuple(self.results), ()]
        self.queues.append((self.env.ns, queues[0], queues[1]))

    def _later(self, wait: int, action: Callable[[], None]) -> None:
        def process() -> Events:
            yield self.env.timeout(wait)
            action()

        self.env.process(process())

    def _every(self, name: str, action: Callable[[], None]) -> Events:
        every, phase = self.parameters.cycle(name)
        yield self.env.timeout(phase)
        while self.env.ns < self.until:
            yield self.env.timeout(every)
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
        self._record_queues()

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
        self._record_queues()

    def _request(self, noticed: _Noticed) -> None:
        name = noticed.failure.node
        noticed.request = self.env.ns
        noticed.back = self.env.ns + round(self.parameters.repair_ms * MS)
        if self.scheme.switching or (name == self.active and not self.scheme.both):
            noticed.resent = tuple(self.queue[name])
            self._send_again(noticed, noticed.failure.other)
        self.queue[name].clear()
        self._record_queues()
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
        while self.results and self.results[0] < self.confirmed:
            self.results.popleft()
        self._record_queues()

    def _checkpoint(self) -> None:
        """Send the state's changes to the secondary, which reports to the upstream node."""
        primary, link = self.nodes["primary"], self.parameters.link
        changes = primary.finished - self.acknowledged["primary"]
        if primary.failed or not changes:
            return
        count = self.acknowledged["primary"] = primary.finished
        begin = max(self.env.ns, self.checkpoint_free)
        self.checkpoint_free = begin + checkpoint_ns(self.parameters, changes)
        arrival = self.checkpoint_free + link.delay_ns
        self._later(
            arrival + self.parameters.hop_ns - self.env.ns, lambda: self._trim(primary, count)
        )

    def _accept(self, count: int) -> None:
        """Record at the secondary that the first `count` results have arrived (active standby)."""
        self.confirmed = max(self.confirmed, count)
        self._forget()

    def _crash(self, failure: Failure) -> Events:
        yield self.env.timeout(round(failure.at_ms * MS))
        node = self.nodes[failure.node]
        node.failed = True
        count = len(self.results) if self.scheme.both else len(self.queue[failure.node])
        if not self.scheme.switching and failure.node != self.active:
            count = 0
        self.noticed.append(_Noticed(failure, self.env.ns, node, count))

    def _watch(self, monitor: str, target: str) -> Events:
        """Heartbeats from one node to the other, which has failed if the last is unanswered."""
        (every, phase), hop = self.parameters.cycle("heartbeat"), self.parameters.hop_ns
        answered = True
        yield self.env.timeout(phase)
        while self.env.ns < self.until:
            last = next((n for n in reversed(self.noticed) if n.failure.node == target), None)
            known = self.nodes[target].failed and last is not None and last.detected > 0
            if last is not None and not (known or answered or self.nodes[monitor].failed):
                self._detect(last)
                known = True
            if not self.nodes[monitor].failed:
                self._log_message("heartbeat", monitor, target)
            yield self.env.timeout(hop)
            if not (self.nodes[target].failed or self.nodes[monitor].failed):
                self._log_message("answer", target, monitor)
            answered = known or not self.nodes[target].failed
            yield self.env.timeout(every - hop)

    def _detect(self, noticed: _Noticed) -> None:
        noticed.detected = self.env.ns
        keeps_results = self.scheme.both and self.scheme.trimmed_by == "ack"
        if keeps_results and noticed.failure.node == "primary":
            self._take_over(noticed)
        self._log_message("request", noticed.failure.other, "upstream")
        self._later(self.parameters.hop_ns, partial(self._request, noticed))

    def _take_over(self, noticed: _Noticed) -> None:
        """The secondary sends its queue of results, and from now on every result (active)."""
        tcp, opened = self.parameters.tcp, self.env.ns
        opened += self.parameters.handshake_ns if tcp.handshake else 0
        self.taken_over, noticed.resent = True, tuple(self.results)
        self._record_queues()
        noticed.survivor = self.nodes["secondary"]
        self.down["secondary"] = self._downstream("secondary", tcp.initial_window, opened)
        self.down["secondary"].write(noticed.resent)

    def outcome(self) -> Simulated:
        """The result of the run, after its last event."""
        recoveries = tuple(noticed.recovery(not self.scheme.both) for noticed in self.noticed)
        return Simulated(
            self.parameters, self.scheme, self.until, self.written, self.first, self.copies,
            recoveries, routes=(),
        )  # fmt: skip

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
                self._log_message("ACK 0", "downstream", name, sorted(node.delivered)[-1:])
                self._later(self.parameters.hop_ns, partial(self._pass_on, node, node.arrived))

    def _pass_on(self, node: Node, count: int) -> None:
        if node.failed:
            return
        if not (self.scheme.both and node.name == "secondary"):
            self._log_message("ACK 1", node.name, "secondary" if self.scheme.both else "upstream")
        ack = partial(self._accept, count) if self.scheme.both else partial(self._trim, node, count)
        self._later(self.parameters.hop_ns, ack)
