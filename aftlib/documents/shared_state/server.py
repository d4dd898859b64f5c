"""A server: its tasks are threads that share tables in memory, by epoch (D3 section 5.1).

A task merges a batch and its partition's offset into the table of the current epoch: the in-memory
transaction. At a checkpoint barrier the server opens the next epoch. Each task writes its next
batch into the new table, and once all tasks do, the old table is complete. The server flushes it to
its own SQLite file, and commits it to the global table.

A failed task's replacement continues at the offset in memory, and the other tasks go on. The
replacement of a failed server commits those flushed epochs that the global table lacks, and
continues there. Without the file it continues at the offsets of the global table.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aftlib.documents.shared_state.parsing import BLOCK, PartitionReader, Progress, TupleSource
from aftlib.documents.shared_state.sums import Partials, SliceSums
from aftlib.documents.shared_state.table import GlobalTable, OwnFile, Segments
from aftlib.spark.faults import Fault, Injector

#: Times that a task starts before its server gives up, as with Spark's tasks.
ATTEMPTS = 4


@dataclass(frozen=True)
class Job:
    """A log that servers sum, the number of servers and tasks, and the place of their state.

    `table` opens the global table. `directory` has each server's own file and the marker files of
    injected faults. With `journal`, tasks record there each batch that they read.
    """

    source: TupleSource
    directory: Path
    table: Callable[[], GlobalTable]
    servers: int = 1
    tasks: int = 2  # of each server
    batch: int = 100_000  # tuples after which a task merges
    checkpoint_s: float = 1.0
    faults: tuple[Fault, ...] = ()
    journal: bool = False

    @property
    def injector(self) -> Injector:
        """Injector of the faults."""
        return Injector(self.directory / "faults", self.faults)


class Server:
    """Runs the tasks of one server, and its checkpoints.

    `open` until a barrier is raised, then `checkpointing` until each task has written into the new
    table or has ended.
    """

    def __init__(self, job: Job, number: int, own: OwnFile, shared: GlobalTable) -> None:
        self.job = job
        self.number = number
        self.name = f"server-{number}"
        self.own = own
        self.shared = shared
        self.injector = job.injector
        self.changed = threading.Condition()
        for epoch in self.own.epochs():  # flushed by a process that failed
            self.commit(epoch, *own.read(epoch))
        self.epoch = shared.last_epoch(self.name) + 1
        self.tables: dict[int, tuple[SliceSums, Segments]] = {}
        self.writes: dict[int, int] = {}  # epoch of each running task's last batch
        self.stands = shared.progress()
        self.merges = 0
        self.stopped = False

    def run(self) -> None:
        """Run the tasks to the end of their partitions; replace those that fail.

        Errors of the input (ValueError, OverflowError) end the run. So does a task's fourth
        failure.
        """
        starts = dict.fromkeys(range(self.job.tasks), 0)
        running: dict[Future[None], int] = {}
        due = time.monotonic() + self.job.checkpoint_s
        with ThreadPoolExecutor(self.job.tasks) as pool:

            def start(task: int) -> None:
                starts[task] += 1
                future = pool.submit(self.work, task, starts[task])
                running[future] = task
                future.add_done_callback(self._notify)

            try:
                for task in starts:
                    start(task)
                while running:
                    self._wait(running, due)
                    for future in [future for future in running if future.done()]:
                        task = running.pop(future)
                        if self._must_restart(future, starts[task]):
                            start(task)
                    if running and self._is_due(due):
                        self.checkpoint()
                        due = time.monotonic() + self.job.checkpoint_s
            finally:
                self.stopped = True  # after an error, the other tasks stop here

    def _wait(self, running: Iterable[Future[None]], due: float) -> None:
        """Wait until a task has ended, or a barrier is due and there is something to flush."""
        with self.changed:
            while not self._is_due(due) and not any(future.done() for future in running):
                left_s = due - time.monotonic()
                self.changed.wait(left_s if left_s > 0 else None)

    def _is_due(self, due: float) -> bool:
        """Return whether the time of a barrier has come, and its table has sums."""
        return time.monotonic() >= due and self.epoch in self.tables

    def _notify(self, _: Future[None]) -> None:
        """Wake those who wait for a change."""
        with self.changed:
            self.changed.notify_all()

    @staticmethod
    def _must_restart(future: Future[None], starts: int) -> bool:
        """Return whether a task that ended must start again; raise an error that would return."""
        error = future.exception()
        if error is None:
            return False
        if isinstance(error, ValueError | OverflowError) or starts == ATTEMPTS:
            raise error
        return True

    def work(self, task: int, start: int) -> None:
        """Read a task's partitions in turn, a batch of each, and merge each batch."""
        name = f"task-{self.number}-{task}"
        with self.changed:  # a replacement starts in the newest table
            self.writes[task] = self.epoch
            stands = dict(self.stands)
        try:
            number = self.number * self.job.tasks + task
            tasks = self.job.servers * self.job.tasks
            readers = self.job.source.readers(number, tasks, stands)
            batches = {partition: self.batches(reader) for partition, reader in readers.items()}
            step = 0
            while batches and not self.stopped:
                for partition in list(batches):
                    batch = next(batches[partition], None)
                    if batch is None:
                        del batches[partition]
                        continue
                    partials, since, tuples = batch
                    self.record(name, start, tuples)
                    step += 1
                    self.injector.reach(name, step, "read")
                    self.merge(task, partials, partition, since, readers[partition].progress)
        finally:
            with self.changed:
                del self.writes[task]
                self.changed.notify_all()

    def batches(self, reader: PartitionReader) -> Iterator[tuple[Partials, int, int]]:
        """Yield partials of batches of a partition, their first offsets and numbers of tuples."""
        sums = self.new_sums()
        begin = reader.progress
        for block in reader.blocks(min(BLOCK, self.job.batch)):
            sums.add(block)
            tuples = reader.progress.tuples - begin.tuples
            if tuples >= self.job.batch:
                yield sums.take(), begin.offset, tuples
                begin = reader.progress
        yield sums.take(), begin.offset, reader.progress.tuples - begin.tuples

    def merge(
        self, task: int, partials: Partials, partition: int, since: int, now: Progress
    ) -> None:
        """Merge a batch and its partition's offset into the table of the current epoch."""
        with self.changed:
            self.writes[task] = self.epoch
            sums, segments = self.tables.setdefault(self.epoch, (self.new_sums(), {}))
            sums.merge(partials)
            begin, _ = segments.get(partition, (since, now))
            segments[partition] = (begin, now)
            self.stands[partition] = now
            self.merges += 1
            self.changed.notify_all()
        self.injector.reach(self.name, self.merges, "merged")

    def new_sums(self) -> SliceSums:
        """Return an empty table of sums."""
        return SliceSums(self.job.source.windows.pane, self.shared.aggregate)

    @property
    def state(self) -> str:
        """The state of the checkpoint, in the document's words: open or checkpointing."""
        behind = [epoch for epoch in self.writes.values() if epoch < self.epoch]
        return "checkpointing" if behind else "open"

    def checkpoint(self) -> None:
        """Raise a barrier; when all tasks have met it, flush the complete table and commit it."""
        with self.changed:
            complete = self.epoch
            if complete not in self.tables:
                return
            self.epoch += 1
            self.changed.wait_for(lambda: self.state == "open")
            sums, segments = self.tables.pop(complete)
        partials = sums.take()
        self.own.flush(complete, partials, segments)
        self.injector.reach(self.name, complete, "flushed")
        self.commit(complete, partials, segments)

    def commit(self, epoch: int, partials: Partials, segments: Segments) -> None:
        """Merge a flushed epoch into the global table, once, and drop it from the own file."""
        self.shared.commit(self.name, epoch, partials, segments)
        self.injector.reach(self.name, epoch, "committed")
        self.own.drop(epoch)
        self.injector.reach(self.name, epoch, "dropped")

    def record(self, task: str, start: int, tuples: int) -> None:
        """Record a batch that a task has read, so that repeated reads can be counted."""
        if self.job.journal:
            process = f"{os.getpid()}-{start}"
            line = json.dumps({"task": task, "process": process, "tuples": tuples})
            with (self.job.directory / "journal.jsonl").open("a") as file:
                file.write(line + "\n")


def serve(job: Job, number: int) -> float:
    """Run a server, or the replacement of a failed one, until all is read and committed.

    Return the seconds until its tasks had read and merged everything.
    """
    own = OwnFile(job.directory / f"server-{number}.sqlite")
    with closing(own), job.table() as shared:
        server = Server(job, number, own, shared)
        begin = time.perf_counter()
        server.run()
        seconds = time.perf_counter() - begin
        server.checkpoint()
    return seconds


def read_journal(directory: Path) -> list[dict[str, Any]]:
    """Return the recorded batches: task, process (one name per start of a task), tuples."""
    return [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]
