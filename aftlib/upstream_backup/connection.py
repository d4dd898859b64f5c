"""Processes of the event simulation: a connection with its window, and a node that works."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from aftlib.upstream_backup.parameters import Parameters
from aftlib.upstream_backup.run import NEVER

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

    Parameters
    ----------
    env : Clock
    parameters : Parameters
    deliver : callable
        Is given the tuples of each segment when it arrives.
    window : int or None
        Initial window in segments; None: never a limit.
    opened : int
        When it can be written to; what is written before goes out then, as one write.
    seen : callable
        Is told of each segment that arrives: its tuples, when it left, when it arrived.
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
        self.segments, self.under_way, self.acknowledged = simpy.Store(env), 0, env.event()
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
            while self.window is not None and self.under_way >= self.window:
                yield self.acknowledged
            self.under_way += 1
            yield self.env.timeout(self.parameters.link.wire_ns(len(tuples) * size))
            self.env.process(self._carry(tuples))

    def _carry(self, tuples: Tuples) -> Events:
        delay = self.parameters.link.delay_ns
        yield self.env.timeout(delay)
        self.seen(tuples, self.env.ns - delay, self.env.ns)
        self.deliver(tuples)
        yield self.env.timeout(self.parameters.echo_ns - delay)
        self.under_way -= 1
        if self.window is not None:
            self.window += 1
        self.acknowledged.succeed()
        self.acknowledged = self.env.event()


class Node:
    """A primary or secondary from its start until it dies: processes what it is sent, in order.

    Parameters
    ----------
    env : Clock
    parameters : Parameters
    name : {"primary", "secondary"}
    finish : callable
        Is given the node and the tuples of a segment once all are processed, unless it is dead.
    """

    def __init__(
        self,
        env: Clock,
        parameters: Parameters,
        name: str,
        finish: Callable[[Node, Tuples], None],
    ) -> None:
        self.env, self.name, self.finish = env, name, finish
        self.cost = parameters.cost_ns(name)
        self.dead, self.inbox = False, simpy.Store(env)
        self.done: dict[int, int] = {}
        self.delivered: dict[int, int] = {}
        self.arrived = self.finished = 0
        env.process(self._work())

    def receive(self, tuples: Tuples) -> None:
        """Take a segment from the upstream connection."""
        self.inbox.put(tuples)

    def when_done(self, tuples: Tuples) -> list[int]:
        """Times at which tuples were processed."""
        return [self.done.get(i, NEVER) for i in tuples]

    def when_delivered(self, tuples: Tuples) -> list[int]:
        """Times at which their results were at the downstream node."""
        return [self.delivered.get(i, NEVER) for i in tuples]

    def _work(self) -> Events:
        while True:
            tuples = yield self.inbox.get()
            for i in tuples:
                yield self.env.timeout(self.cost)
                if self.dead:
                    return
                self.done[i] = self.env.ns
            self.finish(self, tuples)
