"""Upstream backup and the proposal as real processes, some of which are killed.

Primary and secondary are processes of their own (`node_process`). Upstream and downstream run in
the process that starts them. They communicate over Unix sockets in a folder that only this user can
open. Every wait has a limit, and no node process outlives a delivery. Times are measured.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from aftlib.core.checks import require_number
from aftlib.spark.faults import Fault, Injector
from aftlib.upstream_backup.node_process import (
    ACK_S,
    DOWN,
    HEARTBEAT_S,
    PROGRAM,
    UP,
    Message,
    end_process,
    introduced,
    read_messages,
    serve,
    wait_until,
    write_message,
)
from aftlib.upstream_backup.parameters import NODES, OTHER
from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM, Scheme

BATCH, PAUSE_S, PATIENCE_S = 20, 0.002, 30.0
TURN = 10
"""Batches that upstream sends to a node in its turn (the proposal)."""


@dataclass(frozen=True)
class Request:
    """A failure that was detected, and the tuples that upstream sent again."""

    node: str  # taken for failed
    unnoticed_ms: float | None  # from the fault until the request; None without one
    resent: tuple[int, ...]
    recovery_ms: float  # from the request until downstream has their last result; 0 without any


@dataclass(frozen=True)
class Delivery:
    """The results that the downstream node received."""

    arrived: tuple[int, ...]  # every result in order of arrival, copies included
    released: tuple[int, ...]  # results passed on, without copies
    requests: tuple[Request, ...]  # failures that were detected
    faults: int  # injected
    rate: float  # tuples per second that upstream sent

    @property
    def duplicates(self) -> int:
        """Results that came more than once."""
        return sum(count - 1 for count in Counter(self.arrived).values())


def deliver(
    scheme: Scheme,
    tuples: int,
    faults: Sequence[Fault] = (),
    ack_s: float = ACK_S,
    heartbeat_s: float = HEARTBEAT_S,
    patience_s: float = PATIENCE_S,
) -> Delivery:
    """Stream tuples through real processes, inject faults, and return the results that arrived.

    A failed node is started again once its failure is detected, and takes part again. A node that
    does not answer a heartbeat in time counts as failed and is killed.

    Parameters
    ----------
    scheme : Scheme
        Upstream backup or the proposal.
    tuples : int
    faults : sequence of Fault, optional
        Target: "primary" or "secondary"; step: results that arrive downstream before the fault.
    ack_s, heartbeat_s : float, optional
        Intervals of level-0 ACKs and of heartbeats, seconds.
    patience_s : float, optional
        Limit of each wait, seconds: for a node to start, for a node to come back after its failure,
        and for results after the stream's end. The delivery lacks results that come later.

    Raises
    ------
    ValueError
        For another scheme. For a fault that only a node could inject into itself (`NodeInjector`),
        that targets no node, or that comes after the stream's end.
    RuntimeError, TimeoutError
        When a node does not start in time, with its error output, or does not come back.
    """
    if scheme not in (UPSTREAM, PROPOSED):
        raise ValueError(
            f"scheme {scheme.name!r} has no processes here: give upstream backup or the proposal"
        )
    require_number("tuples", tuples, least=0, whole=True)
    for name, value in dict(ack_s=ack_s, heartbeat_s=heartbeat_s, patience_s=patience_s).items():
        require_number(name, value, above=0)
    NodeInjector(Path(), tuple(faults))  # refuses unknown kinds
    for fault in faults:
        if fault.target not in NODES or not 0 < fault.step < tuples:
            raise ValueError(
                f"faults must be injected from outside, at a node, after 1 … {tuples - 1} results, "
                f"got {fault!r}"
            )
    with (
        tempfile.TemporaryDirectory(prefix="aft-") as folder,  # of mode 0700
        ThreadPoolExecutor(1) as thread,  # a notebook's own thread has an event loop already
    ):
        system = _System(Path(folder), scheme, heartbeat_s, patience_s)
        return thread.submit(asyncio.run, system.stream(tuples, faults, ack_s)).result()


class _System:
    """The upstream and downstream node, and the two processes between them."""

    def __init__(self, folder: Path, scheme: Scheme, heartbeat_s: float, patience_s: float) -> None:
        self.folder, self.heartbeat_s, self.patience_s = folder, heartbeat_s, patience_s
        self.starts = dict.fromkeys(NODES, 0)  # number of each node's newest process
        self.upstream = Upstream(scheme, self.starts, self.restart)
        self.downstream = Downstream(self.starts)
        self.injector = NodeInjector(folder / "faults", upstream=self.upstream)
        self.processes = dict[str, subprocess.Popen[bytes]]()
        self.restarts = list[asyncio.Task[None]]()
        self.injected = list[tuple[float, str]]()
        self.undetected = set[str]()

    async def stream(self, tuples: int, faults: Sequence[Fault], ack_s: float) -> Delivery:
        """Send all tuples, inject the faults, and return the results that arrived."""
        due = deque(sorted(faults, key=lambda fault: fault.step))
        parts = ((self.upstream.meet, UP), (self.downstream.meet, DOWN))
        servers = [await serve(meet, self.folder / socket) for meet, socket in parts]
        acknowledging = asyncio.create_task(self.downstream.acknowledge(ack_s))
        try:
            ends = await asyncio.gather(*map(self.start, NODES), return_exceptions=True)
            for error in filter(None, ends):
                raise error
            began = time.perf_counter()
            for begin in range(0, tuples, BATCH):
                while due and self.downstream.has(due[0].step):
                    await self.settled()  # the last failed node must be back
                    self.inject(due.popleft())
                self.upstream.send(list(range(begin, min(begin + BATCH, tuples))))
                await asyncio.sleep(PAUSE_S)
            rate = tuples / (time.perf_counter() - began)
            for fault in due:
                await wait_until(partial(self.downstream.has, fault.step), self.patience_s)
                await self.settled()
                self.inject(fault)
            await self.settled()
            await wait_until(partial(self.downstream.has, tuples), self.patience_s)
        finally:
            self.upstream.close()
            for task in (acknowledging, *self.restarts):
                task.cancel()
            for process in self.processes.values():
                end_process(process, self.patience_s)
            for server in servers:
                server.close()
            # messages that ended processes have sent are still read, copies of results included
            left = self.upstream.connected, self.downstream.acknowledged
            await wait_until(lambda: not any(left), self.patience_s)
        arrived = tuple(i for i, _ in self.downstream.arrived)
        released, requests = tuple(self.downstream.released), tuple(self._requests())
        return Delivery(arrived, released, requests, len(self.injected), rate)

    async def start(self, name: str) -> None:
        """Start a node's process and wait for its hello; RuntimeError when it does not come."""
        if name in self.processes:
            end_process(self.processes[name], self.patience_s)  # it may only have been slow
        self.starts[name] = number = self.starts[name] + 1
        command = (sys.executable, "-m", PROGRAM, name, number, self.folder, self.heartbeat_s)
        output = self.folder / f"{name}-{number}.log"
        with output.open("wb") as log:
            process = subprocess.Popen([*map(str, command)], stderr=log)
        self.processes[name] = process

        def over() -> bool:
            return self.upstream.greeted[name] == number or process.poll() is not None

        await wait_until(over, self.patience_s)
        if self.upstream.greeted[name] < number:
            status = process.poll()
            end_process(process, self.patience_s)
            reason, fix = f"ended with status {status}", ""
            if status is None:
                reason = f"did not start within {self.patience_s:g} s"
                fix = "; give a longer patience_s if it is only slow"
            text = output.read_text(errors="replace").strip()[-2000:] or "no error output"
            raise RuntimeError(f"the {name} {reason}: {text}{fix}")

    def restart(self, name: str) -> None:
        """Start a failed node again."""
        self.undetected.discard(name)
        self.restarts.append(asyncio.create_task(self.start(name)))

    def inject(self, fault: Fault) -> None:
        """Inject a fault into a node's newest process."""
        self.undetected.add(fault.target)
        self.injected.append((time.perf_counter(), fault.target))
        with suppress(ProcessLookupError):  # it has ended by itself
            self.injector.inject(fault, self.processes[fault.target].pid)

    async def settled(self) -> None:
        """Wait until every failed node takes part again; TimeoutError when one does not."""

        def away() -> set[str]:
            for task in filter(asyncio.Task.done, self.restarts):
                task.result()
            return self.undetected | {*NODES} - {*self.upstream.nodes}

        if not await wait_until(lambda: not away(), self.patience_s):
            raise TimeoutError(
                f"the {' and the '.join(sorted(away()))} did not take part again within "
                f"{self.patience_s:g} s after a failure; give a longer patience_s if the machine "
                "is only slow"
            )

    def _requests(self) -> list[Request]:
        requests, left = [], deque(self.injected)
        for name, at, resent in self.upstream.requests:
            unnoticed = None
            if left and left[0][1] == name and left[0][0] < at:
                unnoticed = 1000 * (at - left.popleft()[0])
            last = (when for i, when in self.downstream.arrived if resent[-1:] == (i,))
            recovery = 1000 * (next((when for when in last if when > at), at) - at)
            requests.append(Request(name, unnoticed, resent, recovery))
        return requests


@dataclass
class _Node:
    """A node's process as the upstream node knows it, from its hello until its failure."""

    name: str
    writer: asyncio.StreamWriter
    queue: deque[int] = field(default_factory=deque)  # sent, and not acknowledged at level 1
    acknowledged: int = 0


class Upstream:
    """Sends tuples, keeps them until a level-1 ACK, and sends those of a failed node again.

    `starts` has the number of each node's newest process; only that one is served. `restart` is
    called with the name of a node that has failed.
    """

    def __init__(
        self, scheme: Scheme, starts: Mapping[str, int], restart: Callable[[str], None]
    ) -> None:
        self.scheme, self.starts, self.restart = scheme, starts, restart
        self.nodes, self.connected = dict[str, _Node](), set[asyncio.StreamWriter]()
        self.greeted = dict.fromkeys(NODES, 0)
        self.active, self.sent = NODES[0], 0
        self.requests = list[tuple[str, float, tuple[int, ...]]]()

    def send(self, ids: list[int]) -> None:
        """Send a batch to the node whose turn it is."""
        name = NODES[self.sent // TURN % 2] if self.scheme.switching else self.active
        self._send(self.nodes[name if name in self.nodes else OTHER[name]], ids)
        self.sent += 1

    def _send(self, node: _Node, ids: list[int]) -> None:
        node.queue.extend(ids)
        write_message(node.writer, {"ids": ids})

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one node: its hello, its ACKs, and its request when the other node has failed."""
        messages = read_messages(reader)
        if name := introduced(await anext(messages, {}), self.starts, self.greeted):
            node = self.nodes[name] = _Node(name, writer)
            if len(self.nodes) == len(NODES):
                for each in self.nodes.values():
                    write_message(each.writer, {"peer": self.starts[OTHER[each.name]]})
            self.connected.add(writer)
            async for message in messages:
                # messages of a node that was taken for failed are ignored
                if self.nodes.get(name) is not node or not self._take(node, message):
                    break
            self.connected.discard(writer)
        writer.close()

    def close(self) -> None:
        """Stop listening to nodes."""
        self.nodes.clear()

    def _take(self, node: _Node, message: Message) -> bool:
        """Act on a node's message; False if nodes send no such message."""
        match message:
            case {"ack": int(count)}:
                while node.acknowledged < count and node.queue:
                    node.queue.popleft()
                    node.acknowledged += 1
            case {"request": failed, "start": int(start)} if failed == OTHER[node.name]:
                if failed in self.nodes and start == self.starts[failed]:  # else it is known
                    self._recover(failed)
            case _:
                return False
        return True

    def _recover(self, failed: str) -> None:
        again, at = [*self.nodes.pop(failed).queue], time.perf_counter()
        needed = self.scheme.switching or failed == self.active
        self.requests.append((failed, at, tuple(again) if needed else ()))
        if needed:
            self.active = OTHER[failed]
            self._send(self.nodes[self.active], again)
        self.restart(failed)


@dataclass(frozen=True)
class NodeInjector(Injector):
    """Injects faults into the nodes' processes from outside; a paused node counts as failed."""

    upstream: Upstream | None = None

    def disconnect(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Close the upstream node's connection to a node, whose process then ends."""
        if self.upstream is not None:
            self.upstream.nodes[fault.target].writer.close()


class Downstream:
    """Receives results, acknowledges them at an interval, and passes on new ones."""

    def __init__(self, starts: Mapping[str, int]) -> None:
        self.starts, self.seen = starts, set[int]()
        self.arrived, self.released = list[tuple[int, float]](), list[int]()
        self.greeted = dict.fromkeys(NODES, 0)
        self.acknowledged = dict[
            asyncio.StreamWriter, tuple[int, int]
        ]()  # results, and how many of them are acknowledged

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Receive the results of one node."""
        messages = read_messages(reader)
        if introduced(await anext(messages, {}), self.starts, self.greeted):
            self.acknowledged[writer] = 0, 0
            async for message in messages:
                ids = message.get("ids")
                if not isinstance(ids, list):
                    break
                self.take(ids)
                count, reported = self.acknowledged[writer]
                self.acknowledged[writer] = count + len(ids), reported
            del self.acknowledged[writer]
        writer.close()

    def take(self, ids: Sequence[int]) -> None:
        """Record results, and pass on those that are new."""
        now = time.perf_counter()
        for i in ids:
            self.arrived.append((i, now))
            if self.is_new(i):
                self.released.append(i)
            self.seen.add(i)

    def has(self, number: int) -> bool:
        """Whether `number` different results have arrived."""
        return len(self.seen) >= number

    def is_new(self, i: int) -> bool:
        """Whether a result has not arrived before."""
        return i not in self.seen

    async def acknowledge(self, every_s: float) -> None:
        """Every `every_s` seconds, send level-0 ACKs to the nodes that have sent new results."""
        while True:
            await asyncio.sleep(every_s)
            for writer, (count, reported) in self.acknowledged.items():
                if count > reported:
                    self.acknowledged[writer] = count, count
                    write_message(writer, {"ack": count})
