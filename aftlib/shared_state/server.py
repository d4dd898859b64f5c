"""A server: tasks merge into its own store, whose epochs it commits to the global store.

`CheckpointCycle` switches tables at barriers. `Server` merges, flushes and commits epochs.
`SocketServer` accepts the tasks' connections.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing import AuthenticationError, current_process
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.job import TICK_S, Job, Journal
from aftlib.shared_state.liveness import held_lock, patiently, start_thread
from aftlib.shared_state.stores.tables import END, Progress, StaleBatch, StateTable, furthest
from aftlib.shared_state.task import (
    ERRORS,
    address_of,
    pack_message,
    progress_from_json,
    progress_to_json,
    receive,
)


class CheckpointCycle:
    """State of a local checkpoint: the barrier, and the tables into which tasks write.

    A task meets the barrier just before its next batch, which goes into the next table. A crashed
    task counts as having met it. Its replacement starts in the newest table. So no task writes into
    a complete table, and it can be flushed. `epoch` is the number of the table before the barrier.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.tables: dict[str, int] = {}  # table of each task's last batch
        self._raised = False

    @property
    def complete(self) -> bool:
        """Whether all tasks have met the barrier of the table `epoch`."""
        return self._raised and self.epoch not in self.tables.values()

    def join(self, task: str) -> None:
        """Start a task, or its replacement, in the newest table."""
        self.tables[task] = self.epoch + self._raised

    def leave(self, task: str) -> None:
        """Remove a task that has ended or crashed."""
        self.tables.pop(task, None)

    def raise_barrier(self) -> None:
        """Request a checkpoint, unless one is in progress."""
        self._raised = True

    def meet(self, task: str) -> int:
        """Return the table of the task's next batch: the next table once a barrier is raised."""
        if task not in self.tables:
            raise KeyError(f"task {task!r} is not one of {sorted(self.tables)}: join first")
        if self._raised:
            self.tables[task] = self.epoch + 1
        return self.tables[task]

    def finish(self) -> int:
        """Open the next table; return the number of the table that is complete."""
        if not self.complete:
            raise RuntimeError(
                f"table {self.epoch} is not complete, because tasks still write into it: wait for "
                f"{sorted(self.tables)}"
            )
        self._raised = False
        self.epoch += 1
        return self.epoch - 1


BASE = 0
"""Table without rows in a server's own store: the committed progress of its partitions."""
LOOK_S = 0.2
RETRY_S = 0.1


class Server:
    """Merges the tasks' batches into the server's own store, flushes it and commits epochs.

    It is thread-safe. The crash of a server counts as a barrier that all its tasks have met. So all
    tables in its own store are complete when it starts. Partitions continue at the offsets of its
    own store or, if that has been lost, of the global one.

    Invariant: the offset of each partition in the global store is that of this server's last epoch
    commit (`compare_stores`). ValueError if it is not, because one of the two stores was replaced.
    """

    def __init__(self, job: Job, number: int, own: StateTable, shared: StateTable) -> None:
        self.job, self.number, self.name = job, number, f"server-{number}"
        self.own, self.shared, self.at = own, shared, job.points(f"server-{number}")
        self._nothing = Partials.empty(len(job.function.components))
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.complete = self.tables
        if not own.progress():
            # Continue at the offsets of the global store. A crashed process of this server may
            # still have a commit under way there. The empty commit waits for it, because commits
            # run one after another, and takes the next number. So a late commit with that number
            # is refused.
            last = shared.committed().get(self.name, 0)
            while not shared.merge(self._nothing, {}, token=(self.name, last + 1)):
                last = shared.committed()[self.name]
            mine, stands = job.partitions_of(number), shared.progress()
            own.merge(self._nothing, {p: stands[p] for p in mine if p in stands}, BASE)
        committed, _ = self.compare_stores()
        self.cycle = CheckpointCycle(max([committed, *self.complete]) + 1)

    @property
    def tables(self) -> list[int]:
        """Tables of the server's own store that are not yet committed."""
        return [epoch for epoch in self.own.epochs() if epoch != BASE]

    def compare_stores(self) -> tuple[int, dict[int, Progress]]:
        """Return this server's last committed table, and its partitions' progress after that table.

        It compares the own store with the global one twice, because a crashed process's epoch
        commit may come between the two reads.
        """
        mine = self.job.partitions_of(self.number)
        for pause_s in (LOOK_S, 0.0):
            committed, shared = self.shared.committed().get(self.name, 0), self.shared.progress()
            with self.lock:
                own = self.progress_after([BASE, *(e for e in self.complete if e <= committed)])
            stands, due = ({p: at.get(p, Progress()).offset for p in mine} for at in (shared, own))
            if stands == due:
                return committed, own
            time.sleep(pause_s)
        wrong = [f"{p} at {stands[p]} instead of {due[p]}" for p in mine if stands[p] != due[p]]
        raise ValueError(
            f"the global store must have the offsets that {self.name} committed, got partition "
            f"{', '.join(wrong)}: this store or the server's own was replaced or is an older copy; "
            "restore the newest of both, or start again in another directory and schema"
        )

    def progress_after(self, epochs: Iterable[int]) -> dict[int, Progress]:
        """Progress of the partitions after the tables `epochs` of the server's own store."""
        return furthest(*map(self.own.progress, epochs))

    def join(self, task: str, partitions: list[int]) -> dict[int, Progress]:
        """Register a task; return the progress of each partition of the task that has begun."""
        with self.lock:
            self.cycle.join(task)
            stands = self.own.progress()
            self._look()
            return {p: stands[p] for p in partitions if p in stands}

    def leave(self, task: str) -> None:
        """Remove a task that has ended or crashed."""
        with self.changed:
            self.cycle.leave(task)
            self._look()
            self.changed.notify_all()

    def merge(self, task: str, partials: Partials, progress: Mapping[int, Progress]) -> None:
        """Merge a task's batch, as `StateTable.merge` does, into the task's current table."""
        with self.lock:
            before, epoch = self.cycle.tables.get(task), self.cycle.meet(task)
            if epoch != before:
                self.at("met")
            self.own.merge(partials, progress, epoch)
            self.at("merged")
            self._look()

    def checkpoint(self) -> None:
        """Raise a barrier, if there is anything to flush."""
        with self.lock:
            if self.cycle.epoch in self.tables:
                self.cycle.raise_barrier()
                self._look()

    def _look(self) -> None:
        """Flush a table that has become complete, and open the next one."""
        if not self.cycle.complete:
            return
        self.at("complete")
        self.own.barrier()
        self.at("flushed")
        self.complete.append(self.cycle.finish())
        self.changed.notify_all()

    @property
    def read_all(self) -> bool:
        """Whether every partition has been read to its end."""
        mine = self.job.partitions_of(self.number)
        with self.lock:
            stands = self.own.progress()
        return all(p in stands and stands[p].watermark == END for p in mine)

    @property
    def finished(self) -> bool:
        """Whether every partition has been read to its end and committed."""
        with self.lock:
            return self.read_all and not self.tables

    def keep_committing(self) -> None:
        """Commit complete tables while tasks go on merging, until the process ends."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.read_all, self.job.commit_s)
            self.commit_epochs()

    def commit_epochs(self) -> None:
        """Wait for a complete table; merge all complete tables into the global store, each once.

        The transaction carries the offset at which each partition's delta begins. It is refused
        unless the global store has that offset. Tables that a crashed process of this server had
        already committed are left out (`compare_stores`). While the global store cannot be reached,
        tables wait in the server's own store, for `patience_s` seconds (D3 section 5.2).
        """
        with self.changed:
            self.changed.wait_for(lambda: self.complete)
            epochs = list(self.complete)

        def merge() -> None:
            committed, stands = self.compare_stores()
            new = [epoch for epoch in epochs if epoch > committed]
            with self.lock:
                rows = Partials.concat(self._nothing, *(self.own.read(epoch=e) for e in new))
                progress = self.progress_after(new)
            delta = {
                p: replace(now, since=stands.get(p, Progress()).offset)
                for p, now in progress.items()
            }
            self.shared.merge(rows, delta, token=(self.name, epochs[-1]))

        # repeated if a crashed process's commit comes between, or the store does not answer
        patiently(merge, self.job.patience_s, (StaleBatch, OSError), RETRY_S)
        self.at("committed")

        with self.changed:
            self.own.merge(self._nothing, self.progress_after(epochs), BASE)
            for epoch in epochs:
                self.own.drop(epoch)
                self.complete.remove(epoch)
            self.at("dropped")
            self.changed.notify_all()


class SocketServer:
    """Accepts tasks; a connection that ends for any reason means that its task has left.

    Only processes of the same user can reach the socket. Only those with the key that the
    supervisor gives to its processes are served. All of them work in the job's folder.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connections = count()
        address = address_of(server.number)
        if os.path.exists(address):  # left by a server that crashed
            os.unlink(address)
        mask = os.umask(0o177)
        try:
            self._listener = Listener(address, "AF_UNIX", backlog=server.job.tasks)
        finally:
            os.umask(mask)

    def run(self) -> None:
        """Accept tasks until the process ends."""
        while True:
            start_thread(self.accept_task, self._listener.accept())

    def accept_task(self, link: Connection) -> None:
        """Serve a task of the same supervisor; any other peer's message is never read."""
        key = current_process().authkey
        try:
            deliver_challenge(link, key)
            answer_challenge(link, key)
        except (AuthenticationError, AssertionError, ValueError, EOFError, OSError):
            link.close()
        else:
            self.serve(link)

    def serve(self, link: Connection) -> None:
        """Serve the requests of a task, until it leaves."""
        task = f"connection {next(self._connections)}"
        try:
            while True:
                word, content, rows = receive(link)
                try:
                    reply = self.answer(task, word, content, rows)
                except tuple(ERRORS.values()) as error:
                    reply = pack_message(type(error).__name__, str(error))
                link.send_bytes(reply)
        except (EOFError, ConnectionError):
            self._server.leave(task)

    def answer(self, task: str, word: str, content: Any, rows: Partials) -> bytes:
        """Serve one request; ValueError for an unknown word."""
        if word == "join":
            return pack_message("joined", progress_to_json(self._server.join(task, content)))
        if word == "merge":
            self._server.merge(task, rows, progress_from_json(content))
        elif word == "leave":
            self._server.leave(task)
        else:
            raise ValueError(f"word must be join, merge or leave, got {word!r}")
        return pack_message("done")


def serve(job: Job, number: int, journal: Journal) -> None:
    """Run a server process until all is read and committed."""
    with held_lock(f"server-{number}.lock", job.patience_s), job.open_own(number) as own:
        server = job.open_claimed(partial(Server, job, number, own))
        journal.record("started", epoch=server.cycle.epoch, pending=len(server.complete))
        start_thread(server.keep_committing)
        start_thread(SocketServer(server).run)
        while not server.finished:
            with server.changed:
                read_all = server.changed.wait_for(lambda: server.read_all, job.checkpoint_s)
                server.checkpoint()
                if read_all:
                    server.changed.wait(TICK_S)
        with server.lock:  # held to the end: other threads must not use closed stores
            own.close()
            server.shared.close()
            Path(f"server-{number}.done").touch()
            os._exit(0)
