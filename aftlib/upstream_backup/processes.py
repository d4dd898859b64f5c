"""Upstream backup and the proposal as real processes over loopback TCP, to be killed for real.

Primary and secondary are processes of their own (`node_process`); upstream and downstream node live
in the one that starts them, which counts what arrives. Times are the machine's.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from aftlib.upstream_backup.node_process import (
    ACK_S,
    HEARTBEAT_S,
    HOST,
    LIMIT,
    read_lines,
    write_line,
)
from aftlib.upstream_backup.ordering import Reorder
from aftlib.upstream_backup.parameters import NODES, OTHER
from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM, Scheme

BATCH, PAUSE_S, PATIENCE_S = 20, 0.002, 30.0
PROGRAM = "aftlib.upstream_backup.node_process"
TURN = 10
"""Batches that a node is sent in its turn (the proposal)."""


@dataclass(frozen=True)
class NodeKill:
    """SIGKILL to a node, from outside, once so many tuples have been sent."""

    after: int
    node: str = "primary"
    stalled: bool = False  # stopped only (SIGSTOP): alive, but taken for dead


Kills = Sequence[NodeKill]


@dataclass(frozen=True)
class Request:
    """A death that was noticed, and what it made upstream send again."""

    node: str  # taken for dead
    unnoticed_ms: float | None  # from the kill until the request; None if nobody killed it
    resent: tuple[int, ...]
    recovery_ms: float  # from the request until downstream has the last result of them, or 0


@dataclass(frozen=True)
class Delivery:
    """What the downstream node saw."""

    arrived: tuple[int, ...]  # every result in order of arrival, copies included
    released: tuple[int, ...]  # handed on: without copies, in order if the operator needs it
    requests: tuple[Request, ...]  # failures that were noticed
    kills: int  # carried out, stalls included
    rate: float  # tuples a second that upstream sent

    @property
    def duplicates(self) -> int:
        """Results that came more than once."""
        return sum(count - 1 for count in Counter(self.arrived).values())


def deliver(
    scheme: Scheme,
    tuples: int,
    kills: Kills = (),
    ordered: bool = False,
    ack_s: float = ACK_S,
    heartbeat_s: float = HEARTBEAT_S,
    patience_s: float = PATIENCE_S,
) -> Delivery:
    """Stream tuples through real processes, kill some, and return what arrived.

    A killed node is started anew once its death is noticed, and takes part again; so is one that
    lives but did not answer a heartbeat in time, after it was killed for certain.

    The scheme is upstream backup or the proposal; `ordered` says whether the downstream operator
    needs its input in order; `ack_s` and `heartbeat_s` are the intervals of level-0 ACKs and of
    heartbeats (a node that does not answer within one is taken for dead), `patience_s` how long to
    wait for a node to get ready and for results after the stream's end. A node that does not get
    ready in time is a RuntimeError with what it said, a killed one that is not back a TimeoutError;
    another scheme, a kill of no node or after the stream's end is a ValueError.
    """
    if scheme not in (UPSTREAM, PROPOSED):
        raise ValueError(
            f"scheme {scheme.name!r} has no processes here: give upstream backup or the proposal"
        )
    for kill in kills:
        if kill.node not in NODES or not 0 < kill.after < tuples:
            raise ValueError(f"kills must strike a node inside 1 … {tuples - 1}, got {kill!r}")
    upstream, downstream = _Upstream(scheme), _Downstream(ordered, ack_s)
    nodes = _Nodes(upstream, heartbeat_s, patience_s)
    streamed = _streamed(upstream, downstream, nodes, tuples, kills)
    with ThreadPoolExecutor(1) as apart:  # a notebook's own thread has an event loop already
        return apart.submit(asyncio.run, streamed).result()


async def _streamed(
    upstream: _Upstream, downstream: _Downstream, nodes: _Nodes, tuples: int, kills: Kills
) -> Delivery:
    servers = [
        await asyncio.start_server(part.meet, HOST, 0, limit=LIMIT)
        for part in (upstream, downstream)
    ]
    nodes.ports = [server.sockets[0].getsockname()[1] for server in servers]
    acknowledging = asyncio.create_task(downstream.acknowledge())
    to_come = deque(sorted(kills, key=lambda kill: kill.after))
    try:
        for end in await asyncio.gather(*map(nodes.start, NODES), return_exceptions=True):
            if end is not None:
                raise end
        began = time.perf_counter()
        for begin in range(0, tuples, BATCH):
            upstream.send(list(range(begin, min(begin + BATCH, tuples))))
            await asyncio.sleep(PAUSE_S)
            while to_come and begin + BATCH >= to_come[0].after:
                await nodes.settled()  # the last kill's victim must be back
                nodes.kill(to_come.popleft())
        rate = tuples / (time.perf_counter() - began)
        await nodes.settled()

        with suppress(TimeoutError):  # what is missing then is the caller's to judge
            async with asyncio.timeout(nodes.patience_s):
                await downstream.has_seen(tuples)
    finally:
        acknowledging.cancel()
        await nodes.end()
        for server in servers:
            server.close()
        await asyncio.gather(*filter(None, upstream.meetings + downstream.meetings))

    requests, left = [], deque(nodes.killed)
    for name, at, resent in upstream.requests:
        unnoticed = None
        if left and left[0][1] == name and left[0][0] < at:
            unnoticed = 1000 * (at - left.popleft()[0])
        heard = (when for i, when in downstream.heard if resent[-1:] == (i,) and when > at)
        recovery = 1000 * (next(heard, at) - at)
        requests.append(Request(name, unnoticed, resent, recovery))
    arrived, released = tuple(i for i, _ in downstream.heard), tuple(downstream.released)
    return Delivery(arrived, released, tuple(requests), len(nodes.killed), rate)


class _Nodes:
    """The two processes: started, killed, and started anew when the other one asks for help."""

    def __init__(self, upstream: _Upstream, heartbeat_s: float, patience_s: float) -> None:
        self.upstream, self.heartbeat_s, self.patience_s = upstream, heartbeat_s, patience_s
        upstream.on_death = self.restart
        self.ports: list[int] = []
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.words: dict[str, asyncio.Task[bytes]] = {}
        self.restarts, self.awaited = set[asyncio.Task[None]](), set[str]()
        self.killed: list[tuple[float, str]] = []

    async def start(self, name: str) -> None:
        """Start a node, and wait until it has said hello or its error output has ended."""
        ready = self.upstream.ready[name] = asyncio.Event()
        if name in self.processes:
            await _killed(self.processes[name])  # it may only have been slow to answer
        command = (sys.executable, "-m", PROGRAM, name, *self.ports, self.heartbeat_s)
        process = self.processes[name] = await asyncio.create_subprocess_exec(
            *map(str, command), stderr=asyncio.subprocess.PIPE
        )
        output = cast("asyncio.StreamReader", process.stderr)
        self.words[name] = words = asyncio.create_task(output.read())
        hello = asyncio.create_task(ready.wait())
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait([hello, words], timeout=self.patience_s, return_when=first)
        hello.cancel()
        if not ready.is_set():
            await _killed(process)
            said = (await words).decode(errors="replace").strip()[-2000:] or "it said nothing"
            raise RuntimeError(
                f"the {name} did not get ready within {self.patience_s:g} s: {said}; give a longer "
                "patience_s if it is only slow"
            )
        self.awaited.discard(name)

    def restart(self, name: str) -> None:
        self.awaited.add(name)
        self.restarts.add(asyncio.ensure_future(self.start(name)))

    async def settled(self) -> None:
        """Until every killed node is back."""
        async with asyncio.timeout(self.patience_s):
            while self.awaited:
                for task in filter(asyncio.Task.done, self.restarts):
                    task.result()
                await asyncio.sleep(PAUSE_S)

    def kill(self, kill: NodeKill) -> None:
        self.awaited.add(kill.node)
        self.killed.append((time.perf_counter(), kill.node))
        self.processes[kill.node].send_signal(signal.SIGSTOP if kill.stalled else signal.SIGKILL)

    async def end(self) -> None:
        """Kill both; their connections end with them."""
        for task in self.restarts:
            task.cancel()
        # one that is about to start a process must not do so behind our back
        await asyncio.gather(*self.restarts, return_exceptions=True)
        for process in self.processes.values():
            await _killed(process)
        await asyncio.gather(*self.words.values())


class _Upstream:
    """Sends tuples, keeps them until a level-1 ACK, and sends a dead node's again."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self.on_death: Callable[[str], None] = lambda name: None
        self.queue: dict[str, deque[int]] = {name: deque() for name in NODES}
        self.trimmed = dict.fromkeys(NODES, 0)
        self.writers: dict[str, asyncio.StreamWriter] = {}
        self.ports: dict[str, int] = {}
        self.ready: dict[str, asyncio.Event] = {}
        self.active, self.sent, self.dead = NODES[0], 0, set[str]()
        self.requests = list[tuple[str, float, tuple[int, ...]]]()
        self.meetings = list[asyncio.Task[None] | None]()

    def send(self, ids: list[int]) -> None:
        """Send a batch to the node whose turn it is."""
        name = NODES[self.sent // TURN % 2] if self.scheme.switching else self.active
        self._send(OTHER[name] if name in self.dead else name, ids)
        self.sent += 1

    def _send(self, name: str, ids: list[int]) -> None:
        self.queue[name].extend(ids)
        write_line(self.writers[name], {"ids": ids})

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one node: its hello, its ACKs, its request when the other one is dead."""
        self.meetings.append(asyncio.current_task())
        name = ""
        async for said in read_lines(reader):
            if "hello" in said:
                name = said["hello"]
                self.writers[name], self.ports[name] = writer, said["port"]
                self.queue[name].clear()
                self.trimmed[name] = 0
                self.dead.discard(name)
                for one in [n for n in NODES if OTHER[n] in self.ports and n in self.writers]:
                    write_line(self.writers[one], {"peer": self.ports[OTHER[one]]})
                self.ready[name].set()
            elif self.writers.get(name) is not writer:
                continue  # taken for dead; what it still says is not heard
            elif "ack" in said:
                while self.trimmed[name] < said["ack"] and self.queue[name]:
                    self.queue[name].popleft()
                    self.trimmed[name] += 1
            elif "request" in said and said["request"] not in self.dead:
                self._recover(said["request"])

    def _recover(self, dead: str) -> None:
        self.dead.add(dead)
        again, at = list(self.queue[dead]), time.perf_counter()
        self.queue[dead].clear()
        del self.writers[dead], self.ports[dead]
        self.trimmed[dead] = 0
        needed = self.scheme.switching or dead == self.active
        self.requests.append((dead, at, tuple(again) if needed else ()))
        if needed:
            self.active = OTHER[dead]
            self._send(self.active, again)
        self.on_death(dead)


class _Downstream:
    """Takes results, tells each node now and then how many have come, hands on what is new."""

    def __init__(self, ordered: bool, ack_s: float) -> None:
        self.ordered, self.ack_s = ordered, ack_s
        self.heard, self.released = list[tuple[int, float]](), list[int]()
        self.seen, self.reorder = set[int](), Reorder()
        self.counts: dict[asyncio.StreamWriter, int] = {}
        self.more = asyncio.Event()
        self.meetings = list[asyncio.Task[None] | None]()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the results of one node."""
        self.meetings.append(asyncio.current_task())
        self.counts[writer] = 0
        async for said in read_lines(reader):
            now = time.perf_counter()
            for i in said["ids"]:
                self.heard.append((i, now))
                if self.is_new(i):
                    self.released += self.reorder.add(i) if self.ordered else [i]
                self.seen.add(i)
            self.counts[writer] += len(said["ids"])
            self.more.set()

    def is_new(self, i: int) -> bool:
        return i not in self.seen

    async def acknowledge(self) -> None:
        """Level-0 ACKs at their interval."""
        told: dict[asyncio.StreamWriter, int] = {}
        while True:
            await asyncio.sleep(self.ack_s)
            for writer, count in self.counts.items():
                if count > told.get(writer, 0):
                    told[writer] = count
                    write_line(writer, {"ack": count})

    async def has_seen(self, tuples: int) -> None:
        """Wait until every tuple's result has come."""
        while len(self.seen) < tuples:
            self.more.clear()
            await self.more.wait()


async def _killed(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
