"""A server: its tasks are threads that share tables in memory, by epoch (D3 section 5.1).

A task merges a batch and its partition's offset into the table of the current epoch: the in-memory
transaction. At a checkpoint barrier the server opens the next epoch. Each task writes its next
batch into the new table, and once all tasks do, the old table is complete. The server flushes it to
its own SQLite file, and commits it to the global table.

A failed task's replacement continues at the offset in memory, and the other tasks go on. The
replacement of a failed server commits what the global table lacks of the flushed epochs, and
continues there. Without the file it continues at the offsets of the global table.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from aftlib.shared_state.parsing import BLOCK, PartitionReader, Progress, TupleSource
from aftlib.shared_state.sums import Partials, SliceSums
from aftlib.shared_state.table import (
    GlobalTable,
    Segments,
    connect,
    insert_rows,
    read_rows,
    transaction,
)
from aftlib.spark.faults import Fault, Injector

ATTEMPTS = 4
"""Times that a task starts before its server gives up, as with Spark's tasks."""


class TaskStopped(RuntimeError):
    """An injected failure of a task's thread."""


class TaskInjector(Injector):
    """An injector that can also end a single task: a fault of the kind "stop"."""

    def stop(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """End the calling thread."""
        raise TaskStopped(f"{fault.target} was ended on purpose")


@dataclass(frozen=True)
class Job:
    """A log that servers sum, each with some tasks, and where they keep their state.

    `table` opens the global table. Each server's own file is in `directory`, where also the marker
    files of injected faults are. With `journal`, tasks record there what they read.
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
    def injector(self) -> TaskInjector:
        """Injector of the faults."""
        return TaskInjector(self.directory / "faults", self.faults)

    def partitions(self, server: int) -> list[int]:
        """Partitions that the tasks of a server read."""
        numbers = range(server * self.tasks, (server + 1) * self.tasks)
        return [p for n in numbers for p in self.source.partitions(n, self.servers * self.tasks)]


class OwnFile:
    """A server's SQLite file: flushed epochs that the global table may lack."""

    def __init__(self, path: Path) -> None:
        self._connection = connection = connect(path)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # waits until a failed server is gone
        with transaction(connection):
            for table in (
                "epochs (epoch INTEGER PRIMARY KEY)",
                "segments (epoch, part, since, place, watermark, tuples, late)",
                "rows (epoch, slice, key, value, count)",
            ):
                connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")

    def flush(self, epoch: int, partials: Partials, segments: Segments) -> None:
        """Store a complete epoch durably, in one transaction."""
        with transaction(self._connection):
            self._connection.execute("INSERT INTO epochs VALUES (?)", [epoch])
            self._connection.executemany(
                f"INSERT INTO segments VALUES ({epoch}, ?, ?, ?, ?, ?, ?)",
                [(part, since, *astuple(now)) for part, (since, now) in segments.items()],
            )
            insert_rows(self._connection, "rows", f"({epoch}, ?, ?, ?, ?)", partials)

    def epochs(self) -> list[int]:
        """Return the flushed epochs that were not dropped, ascending."""
        return [e for (e,) in self._connection.execute("SELECT epoch FROM epochs ORDER BY epoch")]

    def read(self, epoch: int) -> tuple[Partials, Segments]:
        """Return the rows and segments of an epoch."""
        of_epoch = f"WHERE epoch = {epoch}"
        rows = self._connection.execute(f"SELECT slice, key, value, count FROM rows {of_epoch}")
        segments = self._connection.execute(f"SELECT * FROM segments {of_epoch}").fetchall()
        return (
            read_rows(rows),
            {part: (since, Progress(*now)) for _, part, since, *now in segments},
        )

    def drop(self, epoch: int) -> None:
        """Remove an epoch, which the global table holds."""
        with transaction(self._connection):
            for table in ("epochs", "segments", "rows"):
                self._connection.execute(f"DELETE FROM {table} WHERE epoch = {epoch}")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@dataclass
class EpochTable:
    """The sums of one epoch in memory, and how far each partition was read in it."""

    sums: SliceSums
    segments: Segments = field(default_factory=dict)

    def merge(self, partials: Partials, since: int, partition: int, now: Progress) -> None:
        """Merge a batch of a partition, which begins at the offset `since`."""
        self.sums.merge(partials)
        begin, _ = self.segments.get(partition, (since, now))
        self.segments[partition] = begin, now


class Server:
    """Runs the tasks of one server, and its checkpoints.

    `open` until a barrier is raised, then `checkpointing` until each task has written into the new
    table or has ended.
    """

    def __init__(self, job: Job, number: int, own: OwnFile, shared: GlobalTable) -> None:
        self.job, self.number, self.name = job, number, f"server-{number}"
        self.own, self.shared = own, shared
        self.injector, self.changed = job.injector, threading.Condition()
        for epoch in self.own.epochs():  # flushed by a process that failed
            self.commit(epoch, *own.read(epoch))
        self.epoch = shared.last_epoch(self.name) + 1
        self.tables: dict[int, EpochTable] = {}
        self.writes: dict[int, int] = {}  # epoch of each running task's last batch
        stands = shared.progress()
        self.stands = {partition: stands[partition] for partition in job.partitions(number)}
        self.merges, self.failed = 0, False

    def run(self) -> None:
        """Run the tasks to the end of their partitions; replace those that fail.

        Errors of the input (ValueError, OverflowError) end the run. So does a task's fourth
        failure.
        """
        starts = dict.fromkeys(range(self.job.tasks), 1)
        due = time.monotonic() + self.job.checkpoint_s
        with ThreadPoolExecutor(self.job.tasks) as pool:
            running = {pool.submit(self.work, task, 1): task for task in starts}
            try:
                while running:
                    left_s = max(due - time.monotonic(), 0)
                    done, _ = wait(running, left_s, FIRST_COMPLETED)
                    for future in done:
                        task = running.pop(future)
                        if self._must_restart(future, starts[task]):
                            starts[task] += 1
                            running[pool.submit(self.work, task, starts[task])] = task
                    if running and time.monotonic() >= due:
                        self.checkpoint()
                        due = time.monotonic() + self.job.checkpoint_s
            finally:
                self.failed = True  # ends the other tasks, if there are any

    @staticmethod
    def _must_restart(future: Future[None], starts: int) -> bool:
        """Return whether a task that ended has failed; raise what a replacement cannot mend."""
        error = future.exception()
        if error is None:
            return False
        if isinstance(error, ValueError | OverflowError) or starts == ATTEMPTS:
            raise error
        return True

    def work(self, task: int, start: int) -> None:
        """Read a task's partitions in turn, a batch of each, and merge each batch."""
        number, name = self.number * self.job.tasks + task, f"task-{self.number}-{task}"
        with self.changed:  # a replacement starts in the newest table
            self.writes[task], stands = self.epoch, dict(self.stands)
        try:
            tasks = self.job.servers * self.job.tasks
            readers = self.job.source.readers(number, tasks, stands)
            batches = {
                partition: self.batches(partition, reader) for partition, reader in readers.items()
            }
            step = 0
            while batches and not self.failed:
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

    def batches(
        self, partition: int, reader: PartitionReader
    ) -> Iterator[tuple[Partials, int, int]]:
        """Yield partials of batches of a partition, their first offsets and numbers of tuples."""
        sums, begin = self.new_sums(), reader.progress
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
            table = self.tables.setdefault(self.epoch, EpochTable(self.new_sums()))
            table.merge(partials, since, partition, now)
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
            table = self.tables.pop(complete)
        partials = table.sums.take()
        self.own.flush(complete, partials, table.segments)
        self.injector.reach(self.name, complete, "flushed")
        self.commit(complete, partials, table.segments)

    def commit(self, epoch: int, partials: Partials, segments: Segments) -> None:
        """Merge a flushed epoch into the global table, once, and drop it from the own file."""
        self.shared.commit(self.name, epoch, partials, segments)
        self.injector.reach(self.name, epoch, "committed")
        self.own.drop(epoch)
        self.injector.reach(self.name, epoch, "dropped")

    def record(self, task: str, start: int, tuples: int) -> None:
        """Record a batch that a task has read, for those who count what is read again."""
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
    """Return what tasks recorded: task, process (one name for each start of a task), tuples."""
    return [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]
