"""Micro-batches without Spark: each attempt at a split is a process of its own that may crash."""

from __future__ import annotations

from multiprocessing import get_context
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa

from aftlib.approximately_once import operator
from aftlib.approximately_once.pipeline import StreamRun, staff


def attempt(splits, split, number, gate):
    """Rows of one attempt at a split, in a process of its own; None when it crashed."""
    context = get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def work():
        task = SimpleNamespace(get=lambda: SimpleNamespace(attemptNumber=lambda: number))
        operator.TaskContext = task
        gate(split, number)
        batches = list(splits.read(split))
        sending.send(pa.Table.from_batches(batches))

    process = context.Process(target=work)
    process.start()
    sending.close()
    try:
        table = receiving.recv()
    except EOFError:
        table = None
    process.join()
    return table


def micro_batch(job, start, stop, gate=lambda split, number: None):
    """One micro-batch as Spark does it: every task up to four times, then the coordinator."""
    splits, coordinator = job
    tables = []
    for split in splits.partitions(start, stop):
        tries = (attempt(splits, split, number, gate) for number in range(4))
        tables.append(next(table for table in tries if table is not None))
    coordinator(SimpleNamespace(toArrow=lambda: pa.concat_tables(tables)), 0)
    return coordinator.sink


def recover_stream(_, query, directory, outages=()):
    """As the pipeline's."""
    splits, coordinator = job = staff(query, directory, outages)
    start = 0
    while (stop := splits.next_boundary(start)) > start:
        micro_batch(job, start, stop)
        start = stop
    audit, sink = coordinator.close(), coordinator.sink
    return StreamRun(sink, sink.outages(), pd.DataFrame(coordinator.splits), audit)
