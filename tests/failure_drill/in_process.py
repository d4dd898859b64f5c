"""The drill's schemes in this process: a process that is killed raises `Killed` instead.

Times are those of a clock that only moves when something is read or stored. So a mutation of the
project's code is a patch.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa

from aftlib.approximately_once.message_log import _MESSAGE, MessageLog
from aftlib.approximately_once.sink import WindowSink
from aftlib.checkpoint_planning import driver
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.sensorlog import LogReader, SensorLog
from aftlib.failure_drill import schemes_process, schemes_spark
from aftlib.shared_state.aggregates import SUM
from aftlib.shared_state.job import Account, Journal
from aftlib.shared_state.output import Output
from aftlib.shared_state.server import Server
from aftlib.shared_state.stores.tables import MemoryTable
from aftlib.shared_state.task import read_on
from aftlib.spark import streams

BATCH_S = 1.0
"""Seconds that Spark needs for a micro-batch by any scheme."""
CLOCK = SimpleNamespace(now=time.time())


class Killed(BaseException):
    """A process was killed."""


def injected(pid, number):
    """Replace `os.kill`: a kill raises `Killed`, and a pause does nothing."""
    if number == signal.SIGKILL:
        raise Killed


def all_here(patch):
    """Replace the functions that start processes or Spark by ones that work in this process."""
    patch.setattr(os, "kill", injected)
    patch.setattr(schemes_spark.SensorSplits, "stream", lambda splits, _: SimpleNamespace(
        writeStream=splits
    ))  # fmt: skip
    for module in (schemes_spark, streams):
        patch.setattr(module, "drain", batch_by_batch)
    patch.setattr(CheckpointStore, "end", lambda *_: None)  # a killed process ends nothing
    for timed in (driver, schemes_spark):
        own = SimpleNamespace(time=lambda: CLOCK.now, time_ns=time.time_ns)
        patch.setattr(timed, "time", own)
    costly = ((LogReader, "blocks"), (CheckpointStore, "commit"), (WindowSink, "write"))
    for owner, name in costly:
        patch.setattr(owner, name, taking(1e-3, getattr(owner, name)))
    patch.setattr(schemes_process, "run_process", run_process)
    patch.setattr(schemes_process, "run_job", run_job)


def taking(seconds, function):
    """Wrap a function so that it takes some seconds by the clock of this module."""

    def timed(*given, **named):
        CLOCK.now += seconds
        return function(*given, **named)

    return timed


def batch_by_batch(splits, directory, handler):
    """Do Spark's part of D1: retry each split until it succeeds, then call the handler.

    Its checkpoint has the end of each micro-batch that the handler has finished.
    """
    log, checkpoint = SensorLog.open(splits.log), directory / "checkpoint"
    ends = [*map(int, checkpoint.read_text().split())] if checkpoint.exists() else [0]
    while (stop := splits.next_boundary(start := ends[-1])) > start:
        rows, CLOCK.now = [], CLOCK.now + BATCH_S
        for split in splits.partitions(start, stop):
            for attempt in range(4):
                try:
                    rows += [*splits.worker.work(split, attempt, log.blocks)]
                    break
                except Killed:
                    path = MessageLog(splits.worker.messages)._path(
                        split.worker, split.start, attempt
                    )
                    os.truncate(path, path.stat().st_size - _MESSAGE.size)  # not reached
                    rows = [row for row in rows if row.column("worker")[0].as_py() != split.worker]
        handler(SimpleNamespace(toArrow=partial(pa.Table.from_batches, rows)), len(ends) - 1)
        ends.append(stop)
        checkpoint.write_text(" ".join(map(str, ends)))


def run_process(command, expected=(0,), env=None):  # noqa: ARG001
    """Run D2's driver, or D1's, in this process."""
    module, *given = command[2:]
    try:
        if module == driver.__name__:
            driver.main(*given)
        else:
            schemes_spark.drive(None, Path(*given))
        status = 0
    except Killed:
        status = -signal.SIGKILL
    assert status in expected
    return status


def run_job(job):
    """Run D3's servers one after the other, each with its tasks and with stores in memory."""
    job.claim_folder()
    os.chdir(job.directory)
    shared = MemoryTable(SUM)
    for number in range(job.servers):
        server = Server(job, number, MemoryTable(SUM), shared)
        for task in range(job.tasks):
            journal, mine = Journal(f"task-{number}-{task}"), job.partitions_of(number, task)
            for visit in count():
                name = f"{task}-{visit}"
                link = SimpleNamespace(
                    join=partial(server.join, name), merge=partial(server.merge, name)
                )
                try:
                    read_on(job, link, mine, journal, job.points(journal.who))
                    break
                except Killed:
                    continue
                finally:
                    server.leave(name)
        server.checkpoint()
        server.commit_epochs()
    Output(job, shared).emit()
    return Account.of(job.directory)
