"""A task: reads its partitions, aggregates batches, and merges them into its server's table."""

from __future__ import annotations

import time
from collections.abc import Callable

from aftlib.shared_state.servers.journal import Journal
from aftlib.shared_state.servers.stage import Stage
from aftlib.shared_state.servers.wire import Link
from aftlib.shared_state.stores.tables import END, Progress, StaleBatch
from aftlib.shared_state.stream.intake import Intake
from aftlib.shared_state.stream.parsing import BLOCK
from aftlib.shared_state.stream.tuplelog import TupleLog

RETRY_S = 0.02


def work(stage: Stage, server: int, task: int, journal: Journal) -> None:
    """Read all partitions of a task to their ends.

    The server says where to begin, at first and again whenever it, or this task's process, has
    died. Nothing about the past is kept here. A task that has come to the end waits until its
    server has handed all of it over: if the server dies before, some is to be read again. Errors
    are those of `PartitionReader.blocks` and `StateTable.merge`, and a ValueError when a
    partition's file is gone, or has not the length that it was written with.
    """
    at = stage.points(journal.who)
    while not (stage.directory / f"server-{server}.done").exists():
        try:
            with Link(server) as link:
                read_on(stage, link, stage.partitions_of(server, task), journal, at)
                journal.note("ended")
                link.stay()
        except (ConnectionError, EOFError, StaleBatch):
            time.sleep(RETRY_S)


def read_on(
    stage: Stage, link: Link, partitions: list[int], journal: Journal, at: Callable[[str], None]
) -> None:
    """Read partitions to their ends, a batch of each in turn."""
    TupleLog.open(stage.log.path)  # all of it is there
    stands = link.join(partitions)
    journal.note("joined", offsets={p: now.offset for p, now in stands.items()})
    intake = Intake(stage.rules, stands, stage.function, stage.rejects, note_all=False)
    rows = min(BLOCK, stage.batch)
    readers = {
        p: intake.read(p, stage.log.part(p), rows)
        for p in partitions
        if p not in stands or stands[p].watermark != END
    }
    while readers:
        for partition in list(readers):
            since = intake.progress.get(partition, Progress()).tuples
            if not any(waiting >= stage.batch for waiting in readers[partition]):
                TupleLog.open(stage.log.path)  # as it was written: this is a partition's end
                intake.end(partition)
                del readers[partition]
            partials, progress = intake.take()
            upto = intake.progress[partition].tuples
            journal.note("read", partition=partition, since=since, upto=upto)
            at("read")
            link.merge(partials, progress)
            at("merged")
