"""D3's designs on emulated cores: processes that run at the speed of slower cores (D3 figs 5, 6).

More tasks run than this machine has cores. An emulated core is `slowdown` times as slow as a real
one. A task sums only a sample of its emulated tuples, and then sleeps until its emulated core would
have summed all of them. So the real cores are free for the other tasks. The cost of a tuple,
parsing included, is measured beforehand. Sockets, locks, the merged sums, and the choice of a
tuple's receiver are real. Merging into the shared state takes `slowdown` times its CPU time.

Processes are forked, so all of it runs in a process of its own (`run_paced`).
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from aftlib.core.windows import Windows
from aftlib.shared_state.job import Job
from aftlib.shared_state.liveness import patiently, start_thread
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.server import Server, SocketServer
from aftlib.shared_state.stores.tables import MemoryTable, Progress, StateTable
from aftlib.shared_state.sums import SliceSums
from aftlib.shared_state.task import Intake, Link, load_kernels
from aftlib.shared_state.tuplelog import TupleLog, TupleStream

DESIGNS = ("late", "shuffle")
SLICES = 48
"""Equal parts of a stream; the number of tasks must divide it."""
SHUFFLED = 8_192
"""Tuples of a part that are really shuffled."""
RECEIVERS = 24
"""Receivers of the shuffle with which the cost per tuple is measured."""
MESSAGE = 2**20
"""Most bytes of a message."""
PASSES, CALIBRATING = 6, 500_000
"""Passes, and tuples per pass, of the measurement of a tuple's cost; the fastest pass counts."""
AHEAD_S = 0.02
"""Seconds from the start signal until all processes of a run start at once."""
PATIENCE_S = 60.0
RULES = Rules(Windows(1, 1))
fork: Any = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class PacedRun:
    """A run in which `tasks` emulated cores sum a stream, merged late or shuffled first.

    `tuples` are emulated. Of each of the `SLICES` parts of the stream, `rows` tuples are really
    summed. In a late merge these have every key that the part's emulated tuples would have. `turn`
    seeds the hash function of a shuffle. A shuffle has `tasks` senders and `tasks` receivers, each
    on a core of its own.
    """

    design: str
    tasks: int
    skew: float
    keys: int
    tuples: int
    slowdown: float
    turn: int = 0
    seed: int = 1

    @property
    def stream(self) -> TupleStream:
        """The stream to draw; each part has at least one row per key."""
        rows = max(SHUFFLED, self.keys)
        return TupleStream(SLICES * rows, self.keys, self.skew, self.seed)

    @property
    def rows(self) -> int:
        """Tuples of each part that are really summed."""
        return SHUFFLED if self.design == "shuffle" else self.stream.tuples // SLICES

    def keys_of(self, part: int) -> np.ndarray:
        """Return the keys that occur among the emulated tuples of a part.

        A key of share p is among m tuples with probability 1 − (1 − p)^m.
        """
        stream = self.stream
        missing = (1 - stream.shares) ** (self.tuples / SLICES)
        present = np.random.default_rng([self.seed, part]).random(self.keys) >= missing
        return stream.ids[present]

    @property
    def time_scale(self) -> float:
        """Seconds on the emulated core per CPU second spent on the tuples that are summed."""
        return self.slowdown * self.tuples / (SLICES * self.rows)


def run_paced(runs: Sequence[PacedRun]) -> list[dict[str, float]]:
    """Make the runs one after another, in a new process without threads.

    Of each run: seconds: its time over `slowdown`; read_ns, receive_ns: cost of a tuple for its
    reader, and for the receiver of a shuffle; cpu_share: busy share of this machine's cores;
    behind: delay of the slowest task at its end, as a share of the run's time. RuntimeError if a
    run fails or loses a tuple.
    """
    request = json.dumps([asdict(run) for run in runs])
    command = [sys.executable, "-m", __name__]
    process = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"paced runs ended with an error: {process.stderr[-2000:]}")
    return json.loads(process.stdout)


def hash_keys(keys: int, turn: int) -> np.ndarray:
    """Return a hash function drawn at random: a number for each key by its rank, shape (keys,)."""
    return np.random.default_rng([turn, keys]).integers(0, 2**32, keys)


class Clock:
    """Delays a process until its emulated core would have done the same work."""

    def __init__(self, begin: float) -> None:
        self._due = begin
        self.behind_s = 0.0

    def resume(self) -> None:
        """Continue from now, because the process had to wait for others."""
        self._due = max(self._due, time.monotonic())

    def spend(self, seconds: float) -> None:
        """Sleep until the emulated core would have done the work; later calls make up a delay."""
        self._due += seconds
        left = self._due - time.monotonic()
        self.behind_s = max(-left, 0.0)
        time.sleep(max(left, 0.0))


class SlowTable:
    """A state table on an emulated core: a merge takes `slowdown` times its CPU time."""

    def __init__(self, table: StateTable, slowdown: float) -> None:
        self._table, self._slowdown = table, slowdown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def merge(self, *batch: Any, **options: Any) -> bool:
        """Merge, and sleep for the rest of the emulated time. Meanwhile the caller holds a lock."""
        before = time.thread_time()
        merged = self._table.merge(*batch, **options)
        time.sleep((self._slowdown - 1) * (time.thread_time() - before))
        return merged


def split(block: np.ndarray, receivers: np.ndarray, tasks: int) -> list[bytes]:
    """Return each receiver's tuples as bytes of their columns."""
    bounds = np.append(0, np.bincount(receivers, minlength=tasks).cumsum())
    order = np.argsort(receivers.astype(np.uint8), kind="stable")  # a radix sort
    columns = block[:, order]
    return [columns[:, a:b].tobytes() for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def unsplit(message: bytes) -> np.ndarray:
    """Tuples of a message, shape (3, n)."""
    return np.frombuffer(message, np.int64).reshape(3, -1)


@lru_cache(maxsize=1)
def tuple_costs(design: str, keys: int, turn: int) -> tuple[float, float]:
    """CPU seconds per tuple of a reader and of a shuffle's receiver, each from the fastest pass.

    Keys are uniform, so that the runs of a turn have equal costs. A sender splits a block among
    `RECEIVERS` receivers, so that a message has 32 KiB, as a network buffer of Flink.
    """
    stream = TupleStream(CALIBRATING, keys, seed=turn, rate=CALIBRATING)  # one window
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        log, costs = TupleLog.draw(Path(folder) / "log", stream, 1), list[list[float]]()
        for _ in range(PASSES):
            sums, intake, messages = SliceSums(1), Intake(RULES), list[bytes]()
            times = [time.thread_time()]
            for block in intake.blocks(0, log.part(0)):
                if design == "shuffle":
                    messages += split(block, block[1] % RECEIVERS, RECEIVERS)
                else:
                    sums.add(block)
            times.append(time.thread_time())
            for message in messages:
                sums.add(unsplit(message))
            times.append(time.thread_time())
            costs.append([float(each) / intake.tuples for each in np.diff(times)])
    read_s, receive_s = (min(column) for column in zip(*costs, strict=True))
    return read_s, receive_s


Work = Callable[[Clock], int]
"""Work of a process once all are ready; returns the number of tuples summed."""


class Worker:
    """A process that is forked once and takes part in one run after another.

    All processes share the run's tuples in `parts`, and the sockets of the receivers.
    """

    def __init__(self, parts: np.ndarray, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
        self._parts, self._pairs = parts, pairs

    def serve(self, link: Connection) -> None:
        """Serve requests from the other end of the link; each names a run, a role and a task."""
        while True:
            run, role, task, costs = link.recv()
            self._costs_s = [run.time_scale * cost for cost in costs]
            work: Work = getattr(self, f"_{role}")(run, task)
            link.send("ready")
            begin = link.recv()
            time.sleep(max(begin - time.monotonic(), 0.0))
            clock, cpu_s = Clock(begin), -time.process_time()
            counted = work(clock)
            cpu_s += time.process_time()
            link.send((time.monotonic(), clock.behind_s, counted, cpu_s))

    def _blocks(self, run: PacedRun, task: int) -> Iterator[np.ndarray]:
        """Tuples that a task reads, one block per part."""
        size = run.stream.tuples // SLICES
        firsts = range(task * size, run.stream.tuples, run.tasks * size)
        return (self._parts[:, first : first + run.rows] for first in firsts)

    def _late(self, run: PacedRun, task: int) -> Work:
        """Sum the task's tuples, and merge the sums into the server's table, once."""
        link = patiently(partial(Link, 0), PATIENCE_S, ConnectionError, 0.01)
        link.join([task])

        def work(clock: Clock) -> int:
            sums = SliceSums(1)
            with link:
                for block in self._blocks(run, task):
                    sums.add(block)
                    clock.spend(self._costs_s[0] * block.shape[1])
                link.merge(sums.take(), {task: Progress(1)})
            return 0

        return work

    def _send(self, run: PacedRun, task: int) -> Work:
        """Send each tuple to the receiver of its key."""
        first, of_key = int(run.stream.ids.min()), np.empty(run.keys, np.int64)
        of_key[run.stream.ids - first] = hash_keys(run.keys, run.turn) % run.tasks
        receivers = [outgoing for outgoing, _ in self._pairs[: run.tasks]]

        def work(clock: Clock) -> int:
            for block in self._blocks(run, task):
                messages = split(block, of_key[block[1] - first], run.tasks)
                for receiver, message in zip(receivers, messages, strict=True):
                    if message:
                        send_all(receiver, message, clock)
                clock.spend(self._costs_s[0] * block.shape[1])
            for receiver in receivers:
                send_all(receiver, b"", clock)
            return 0

        return work

    def _receive(self, run: PacedRun, task: int) -> Work:
        """Sum received tuples until every sender has ended."""
        incoming = self._pairs[task][1]

        def work(clock: Clock) -> int:
            senders, sums = run.tasks, SliceSums(1)
            while senders:
                try:
                    message = incoming.recv(MESSAGE, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    message = incoming.recv(MESSAGE)
                    clock.resume()
                senders -= not message
                block = unsplit(message)
                sums.add(block)
                clock.spend(self._costs_s[1] * block.shape[1])
            return int(sums.take().values[:, 1].sum())

        return work


def send_all(receiver: socket.socket, message: bytes, clock: Clock) -> None:
    """Send a message; a receiver that is behind delays the sender."""
    try:
        receiver.send(message, socket.MSG_DONTWAIT)
    except BlockingIOError:
        receiver.send(message)
        clock.resume()


def serve_tasks(run: PacedRun, link: Connection) -> None:
    """Serve a run's tasks; then report the tuples in the server's table, and CPU seconds.

    The server's own table is in memory, as is the buffer into which a server merges between
    barriers.
    """
    log = TupleLog(Path(), run.tasks, 0, {})
    job = Job(log, RULES, Path(), aggregate="mean", servers=1, tasks=run.tasks)
    own = MemoryTable(job.function)
    slow: Any = SlowTable(own, run.slowdown)
    server = Server(job, 0, slow, MemoryTable(job.function))
    start_thread(SocketServer(server).run)
    link.recv()
    rows = own.read(epoch=server.cycle.epoch)
    link.send((int(rows.values[:, 1].sum()), time.process_time()))


class Emulation:
    """Processes for runs on emulated cores, which work in the current folder."""

    def __init__(self, runs: Sequence[PacedRun]) -> None:
        tuples = max(run.stream.tuples for run in runs)
        self._parts = np.frombuffer(mmap.mmap(-1, 24 * tuples), np.int64)
        self._holds: tuple[TupleStream, str, int] | None = None
        most = max(run.tasks for run in runs)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(most)]
        count = max(run.tasks * (2 if run.design == "shuffle" else 1) for run in runs)
        worker = Worker(self._parts.reshape(3, -1), pairs)
        self._links = [start_process(worker.serve) for _ in range(count)]

    def _draw(self, run: PacedRun) -> None:
        """Draw the tuples of a run into the memory that all processes share."""
        stream, holds = run.stream, (run.stream, run.design, run.tuples)
        if self._holds == holds:
            return
        parts, first = self._parts.reshape(3, -1), 0
        for index in range(stream.ranges):
            _, keys, values = stream.draw(index)
            parts[0, first : first + len(keys)] = 0
            parts[1:, first : first + len(keys)] = keys, values
            first += len(keys)
        if run.design == "late":  # with every key of the emulated tuples: as many sums are merged
            for part in range(SLICES):
                span = slice(part * run.rows, (part + 1) * run.rows)
                parts[1, span] = np.resize(run.keys_of(part), run.rows)
        self._holds = holds

    def measure(self, run: PacedRun) -> dict[str, float]:
        """Make one run; return its results as in `run_paced`."""
        self._draw(run)
        costs = tuple_costs(run.design, run.keys, run.turn)
        roles = {"late": ["late"], "shuffle": ["send", "receive"]}[run.design]
        works = [(run, role, task, costs) for role in roles for task in range(run.tasks)]
        links, server = self._links[: len(works)], None
        if run.design == "late":
            server = start_process(partial(serve_tasks, run))
        for link, work in zip(links, works, strict=True):
            link.send(work)
        for link in links:
            link.recv()
        begin = time.monotonic() + AHEAD_S
        for link in links:
            link.send(begin)
        ends, behind, counted, cpu_s = zip(*(link.recv() for link in links), strict=True)
        seconds, summed, used_s = max(ends) - begin, sum(counted), sum(cpu_s)
        if server is not None:
            server.send("end")
            in_table, server_s = server.recv()
            server.poll(PATIENCE_S)  # wait for its end
            summed, used_s = summed + in_table, used_s + server_s
        if summed != SLICES * run.rows:
            raise RuntimeError(f"{SLICES * run.rows} tuples must be summed, got {summed}")
        return {
            "seconds": seconds / run.slowdown,
            "read_ns": 1e9 * costs[0],
            "receive_ns": 1e9 * costs[1],
            "cpu_share": used_s / seconds / (os.cpu_count() or 1),
            "behind": max(behind) / seconds,
        }


def start_process(work: Callable[[Connection], None]) -> Connection:
    """Fork a process that gets one end of a pipe; returns the other."""
    here, there = fork.Pipe()
    fork.Process(target=work, args=(there,), daemon=True).start()
    there.close()
    return here


if __name__ == "__main__":
    runs = [PacedRun(**run) for run in json.loads(sys.stdin.read())]
    load_kernels()
    with tempfile.TemporaryDirectory(prefix="aft-") as scratch:
        os.chdir(scratch)
        emulation = Emulation(runs)
        sys.stdout.write(json.dumps([emulation.measure(run) for run in runs]))
        os.chdir("/")
