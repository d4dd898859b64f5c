"""A task: reads its partitions, aggregates batches, and merges them into its server's table."""

from __future__ import annotations

import time
from collections.abc import Callable

from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.servers.journal import Journal
from aftlib.shared_state.servers.server import nothing_happens
from aftlib.shared_state.servers.source import END
from aftlib.shared_state.servers.wire import Link
from aftlib.shared_state.stores.tables import Progress, StaleBatch

RETRY_S = 0.02


def work(
    job: Job,
    server: int,
    task: int,
    journal: Journal,
    at: Callable[[str], None] = nothing_happens,
) -> None:
    """Read all partitions of a task to their ends.

    The server says where to begin, at first and again whenever it, or this task's process, has
    died: nothing about the past is kept here. A task that has come to the end stays until its
    server has handed all of it over, for if the server dies before, some is to be read again.

    Raises
    ------
    OverflowError
        When a sum leaves the 64 bits.
    """
    while not (job.directory / f"server-{server}.done").exists():
        try:
            with Link(server) as link:
                _read(job, link, job.partitions_of(server, task), journal, at)
                journal.note("ended")
                link.stay()
        except (ConnectionError, FileNotFoundError, EOFError, StaleBatch):
            time.sleep(RETRY_S)


def _read(
    job: Job, link: Link, partitions: list[int], journal: Journal, at: Callable[[str], None]
) -> None:
    stands = link.join(partitions)
    journal.note("joined", offsets={p: now.offset for p, now in stands.items()})
    batches = {
        p: job.source.batches(p, stands.get(p), job.batch)
        for p in partitions
        if p not in stands or stands[p].watermark != END
    }
    while batches:
        for partition in list(batches):
            block, progress = next(batches[partition])
            journal.note("read", partition=partition, since=progress.since, offset=progress.offset)
            at("read")
            _merge(job, link, block, {partition: progress})
            at("merged")
            if progress.watermark == END:
                del batches[partition]


def _merge(job: Job, link: Link, block: tuple, progress: dict[int, Progress]) -> None:
    link.merge(job.function.partials(*block), progress)
