"""Upstream backup and the proposal as real processes over loopback TCP, to be killed for real.

Primary and secondary are processes of their own; upstream and downstream node live in the one that
starts them, which counts what arrives. For counts and order only: times are the machine's.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
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
from aftlib.upstream_backup.parameters import NODES
from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM, Scheme

BATCH, PAUSE_S, PATIENCE_S = 20, 0.002, 30.0
PROGRAM = "aftlib.upstream_backup.node_process"
TURN = 10
"""Batches that a node is sent in its turn (the proposal)."""


@dataclass(frozen=True)
class Kill:
    """SIGKILL to a node once so many tuples have been sent.

    Attributes
    ----------
    after : int
    node : {"primary", "secondary"}
    stalled : bool
        It is stopped only (SIGSTOP): alive, but taken for dead.
    """

    after: int
    node: str = "primary"
    stalled: bool = False


@dataclass(frozen=True)
class Delivery:
    """What the downstream node saw.

    Attributes
    ----------
    arrived : tuple of int
        Every result in order of arrival, copies included.
    released : tuple of int
        What it hands on: without copies, and in order if the operator needs it.
    resent : tuple of int
        Tuples sent again by upstream.
    requests : int
        Failures that were noticed.
    kills : int
        Kills carried out, stalls included.
    """

    arrived: tuple[int, ...]
    released: tuple[int, ...]
    resent: tuple[int, ...]
    requests: int
    kills: int

    @property
    def duplicates(self) -> int:
        """Results that came more than once."""
        return sum(count - 1 for count in Counter(self.arrived).values())


def deliver(
    scheme: Scheme,
    tuples: int,
    kills: Sequence[Kill] = (),
    ordered: bool = False,
    deduplicate: bool = True,
    trim_when_sent: bool = False,
    ack_s: float = ACK_S,
    patience_s: float = PATIENCE_S,
    heartbeat_s: float = HEARTBEAT_S,
) -> Delivery:
    """Stream tuples through real processes, kill some, and return what arrived.

    Parameters
    ----------
    scheme : Scheme
        Upstream backup or the proposal.
    tuples : int
    kills : sequence of Kill
        A killed node is started anew once its death is noticed, and takes part again; so is one
        that lives but did not answer a heartbeat in time, after it was killed for certain.
    ordered : bool
        Whether the downstream operator needs its input in order.
    deduplicate, trim_when_sent : bool
        Deliberately broken variants for tests: copies are handed on; the queue forgets a tuple when
        it is sent instead of when it is acknowledged.
    ack_s, patience_s : float
        Interval of level-0 ACKs, and how long to wait for a node to get ready and for
        results after the stream's end, seconds.
    heartbeat_s : float
        Interval of heartbeats: a node that does not answer within one is taken for dead, seconds.

    Raises
    ------
    RuntimeError
        When a node does not get ready within `patience_s`, with what it said.
    TimeoutError
        When a killed node is not back within `patience_s`.
    ValueError
        For another scheme, or a kill of no node or after the stream's end.
    """
    if scheme not in (UPSTREAM, PROPOSED):
        raise ValueError(
            f"scheme {scheme.name!r} has no processes here: give upstream backup or the proposal"
        )
    for kill in kills:
        if kill.node not in NODES or not 0 < kill.after < tuples:
            raise ValueError(f"kills must strike a node inside 1 … {tuples - 1}, got {kill!r}")
    upstream = _Upstream(scheme, trim_when_sent)
    downstream = _Downstream(ordered, deduplicate, ack_s)
    return asyncio.run(_drive(upstream, downstream, tuples, kills, patience_s, heartbeat_s))


async def _drive(
    upstream: _Upstream,
    downstream: _Downstream,
    tuples: int,
    kills: Sequence[Kill],
    patience_s: float,
    heartbeat_s: float,
) -> Delivery:
    servers = [
        await asyncio.start_server(part.meet, HOST, 0, limit=LIMIT)
        for part in (upstream, downstream)
    ]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    nodes = _Nodes(ports, upstream, patience_s, heartbeat_s)
    acknowledging = asyncio.create_task(downstream.acknowledge())
    try:
        await nodes.start_all()
        await _emit(upstream, nodes, tuples, sorted(kills, key=lambda kill: kill.after))
        with suppress(TimeoutError):  # what is missing then is the caller's to judge
            async with asyncio.timeout(patience_s):
                await downstream.has_seen(tuples)
    finally:
        acknowledging.cancel()
        await nodes.end()
        for server in servers:
            server.close()
        await asyncio.gather(*upstream.meetings, *downstream.meetings)
    return Delivery(
        tuple(downstream.arrived), tuple(downstream.released), tuple(upstream.resent),
        upstream.requests, nodes.kills,
    )  # fmt: skip


async def _emit(upstream: _Upstream, nodes: _Nodes, tuples: int, kills: Sequence[Kill]) -> None:
    """Send the stream; before the next kill, the last one's victim must be back."""
    left = deque(kills)
    for begin in range(0, tuples, BATCH):
        upstream.send(list(range(begin, min(begin + BATCH, tuples))))
        await asyncio.sleep(PAUSE_S)
        while left and begin + BATCH >= left[0].after:
            await nodes.settled()
            nodes.kill(left.popleft())
    await nodes.settled()


class _Nodes:
    """The two processes: started, killed, and started anew when the other one asks for help."""

    def __init__(
        self, ports: Sequence[int], upstream: _Upstream, patience_s: float, heartbeat_s: float
    ) -> None:
        self.upstream, self.patience_s = upstream, patience_s
        self.arguments = [*map(str, ports), str(heartbeat_s)]
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        upstream.on_death = self.restart
        self.restarts: set[asyncio.Task[None]] = set()
        self.awaited: set[str] = set()
        self.kills = 0
        self.words: dict[str, asyncio.Task[bytes]] = {}

    async def start_all(self) -> None:
        started = [self.start(name) for name in NODES]
        for end in await asyncio.gather(*started, return_exceptions=True):
            if end is not None:
                raise end

    async def start(self, name: str) -> None:
        ready = self.upstream.expect(name)
        if name in self.processes:
            _kill(self.processes[name])  # it may only have been slow to answer
            await self.processes[name].wait()
        program = [sys.executable, "-m", PROGRAM, name]
        self.processes[name] = await asyncio.create_subprocess_exec(
            *program, *self.arguments, stderr=asyncio.subprocess.PIPE
        )
        await self._hello(name, ready)
        self.awaited.discard(name)

    async def _hello(self, name: str, ready: asyncio.Event) -> None:
        """Until a node has said hello; its error output ends with it, whenever that is."""
        process = self.processes[name]
        output = cast("asyncio.StreamReader", process.stderr)
        self.words[name] = words = asyncio.create_task(output.read())
        hello = asyncio.create_task(ready.wait())
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait([hello, words], timeout=self.patience_s, return_when=first)
        hello.cancel()
        if ready.is_set():
            return
        _kill(process)
        said = (await words).decode(errors="replace").strip()[-2000:] or "it said nothing"
        raise RuntimeError(
            f"the {name} did not get ready within {self.patience_s:g} s: {said}; give a longer "
            "patience_s if it is only slow"
        )

    def restart(self, name: str) -> None:
        self.awaited.add(name)
        task = asyncio.ensure_future(self.start(name))
        self.restarts.add(task)

    async def settled(self) -> None:
        """Until every killed node is back."""
        async with asyncio.timeout(self.patience_s):
            while self.awaited:
                for task in [task for task in self.restarts if task.done()]:
                    task.result()
                await asyncio.sleep(PAUSE_S)

    def kill(self, kill: Kill) -> None:
        self.awaited.add(kill.node)
        self.kills += 1
        how = signal.SIGSTOP if kill.stalled else signal.SIGKILL
        self.processes[kill.node].send_signal(how)

    async def end(self) -> None:
        """Kill both; their connections end with them."""
        for task in self.restarts:
            task.cancel()
        # one that is about to start a process must not do so behind our back
        await asyncio.gather(*self.restarts, return_exceptions=True)
        for process in self.processes.values():
            _kill(process)
            await process.wait()
        await asyncio.gather(*self.words.values())


class _Upstream:
    """Sends tuples, keeps them until a level-1 ACK, and sends a dead node's again."""

    def __init__(self, scheme: Scheme, trim_when_sent: bool) -> None:
        self.scheme, self.trim_when_sent = scheme, trim_when_sent
        self.on_death: Callable[[str], None] = lambda name: None
        self.queue: dict[str, deque[int]] = {name: deque() for name in NODES}
        self.trimmed = dict.fromkeys(NODES, 0)
        self.writers: dict[str, asyncio.StreamWriter] = {}
        self.ports: dict[str, int] = {}
        self.ready: dict[str, asyncio.Event] = {}
        self.active, self.sent, self.requests = NODES[0], 0, 0
        self.dead, self.resent = set[str](), list[int]()
        self.meetings = list[asyncio.Task[None]]()

    def expect(self, name: str) -> asyncio.Event:
        """An event for the moment when a node has said hello."""
        self.ready[name] = asyncio.Event()
        return self.ready[name]

    def send(self, ids: list[int]) -> None:
        """Send a batch to the node whose turn it is."""
        self._send(self._target(), ids)
        self.sent += 1

    def _target(self) -> str:
        name = NODES[self.sent // TURN % 2] if self.scheme.switching else self.active
        return _other(name) if name in self.dead else name

    def _send(self, name: str, ids: list[int]) -> None:
        if not self.trim_when_sent:
            self.queue[name].extend(ids)
        write_line(self.writers[name], {"ids": ids})

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one node: its hello, its ACKs, its request when the other one is dead."""
        self.meetings.append(_this_task())
        name = ""
        async for said in read_lines(reader):
            if "hello" in said:
                name = said["hello"]
                self._welcome(name, writer, said["port"])
            elif "ack" in said and self.writers.get(name) is writer:
                self._trim(name, said["ack"])
            elif "request" in said and self.writers.get(name) is writer:
                self._recover(said["request"])

    def _welcome(self, name: str, writer: asyncio.StreamWriter, port: int) -> None:
        self.writers[name], self.ports[name] = writer, port
        self.queue[name].clear()
        self.trimmed[name] = 0
        self.dead.discard(name)
        for one in [n for n in NODES if _other(n) in self.ports and n in self.writers]:
            write_line(self.writers[one], {"peer": self.ports[_other(one)]})
        self.ready[name].set()

    def _trim(self, name: str, count: int) -> None:
        while self.trimmed[name] < count and self.queue[name]:
            self.queue[name].popleft()
            self.trimmed[name] += 1

    def _recover(self, dead: str) -> None:
        if dead in self.dead:
            return
        self.requests += 1
        self.dead.add(dead)
        again = list(self.queue[dead])
        self.queue[dead].clear()
        # what it still says if it lives is not heard: neither its ACKs nor its own request
        del self.writers[dead], self.ports[dead]
        self.trimmed[dead] = 0
        if self.scheme.switching or dead == self.active:
            self.active = _other(dead)
            self.resent += again
            self._send(self.active, again)
        self.on_death(dead)


class _Downstream:
    """Takes results, tells each node now and then how many have come, hands on what is new."""

    def __init__(self, ordered: bool, deduplicate: bool, ack_s: float) -> None:
        self.deduplicate, self.ordered, self.ack_s = deduplicate, ordered, ack_s
        self.arrived, self.released = list[int](), list[int]()
        self.seen, self.reorder = set[int](), Reorder()
        self.counts: dict[asyncio.StreamWriter, int] = {}
        self.more = asyncio.Event()
        self.meetings = list[asyncio.Task[None]]()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the results of one node."""
        self.meetings.append(_this_task())
        self.counts[writer] = 0
        async for said in read_lines(reader):
            for i in said["ids"]:
                self._accept(i)
            self.counts[writer] += len(said["ids"])
            self.more.set()

    def _accept(self, i: int) -> None:
        self.arrived.append(i)
        fresh = i not in self.seen or not self.deduplicate
        self.seen.add(i)
        if fresh:
            self.released += self.reorder.add(i) if self.ordered else [i]

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


def _this_task() -> asyncio.Task[None]:
    """The task that runs this: a server starts one for each connection."""
    return cast("asyncio.Task[None]", asyncio.current_task())


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()


def _other(name: str) -> str:
    return NODES[1 - NODES.index(name)]
