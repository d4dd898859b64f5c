"""D3's strategies as Spark jobs: shuffle first, merge in the driver, merge in a shared table.

They read by the same compiled parser and add up by the same compiled sums. `run_job` runs the
document's own design: servers with tasks, whose complete windows the driver emits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from aftlib.core.compiling import LONGS, jit
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job, serve
from aftlib.documents.shared_state.sums import (
    PackedColumn,
    Partials,
    SliceSums,
    merge_sums,
    sum_tuples,
)
from aftlib.documents.shared_state.table import GlobalTable
from aftlib.spark.sweep import by_number, sweep

#: Tuples that a sender deals out at once.
ROWS = 2**17
#: One row per task, so that Spark does no work per sum.
BYTES = "sums binary"
EMIT_S = 0.1
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


@jit(f"Tuple((int64[::1], int64[::1]))({', '.join([LONGS] * 3)}, int64)")
def deal_out(parts: Any, keys: Any, values: Any, tasks: int) -> tuple[Any, Any]:
    """Return tuples by the task of their key, and where each task's end; `parts` are slices.

    Task t has the tuples ends[t] … ends[t + 1] − 1, and of the flat array the numbers
    3 · ends[t] … 3 · ends[t + 1] − 1: its tuples' slices, then their keys, then their values.
    """
    ends = np.zeros(tasks + 1, np.int64)
    for key in keys:
        ends[key % tasks + 1] += 1
    ends = np.cumsum(ends)
    flat = np.empty(3 * len(keys), np.int64)
    at = np.zeros(tasks, np.int64)
    for i in range(len(keys)):
        task = keys[i] % tasks
        size = ends[task + 1] - ends[task]
        place = 3 * ends[task] + at[task]
        flat[place] = parts[i]
        flat[place + size] = keys[i]
        flat[place + 2 * size] = values[i]
        at[task] += 1
    return flat, ends


def upfront(spark: SparkSession, source: TupleSource, tasks: int) -> Partials:
    """Shuffle every tuple to its key's task, then sum: return sums by slice and key."""

    def send(task: int) -> Iterator[pa.RecordBatch]:
        for reader in source.readers(task, tasks).values():
            for block in reader.blocks(ROWS):
                flat, ends = deal_out(*block, tasks)
                texts = [flat[3 * a : 3 * b].tobytes() for a, b in pairwise(ends.tolist())]
                yield pa.RecordBatch.from_pydict({"task": range(tasks), "tuples": texts})

    def receive(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = SliceSums(source.windows.pane)
        for text in (text for batch in batches for text in batch.column("tuples")):
            sums.add(np.frombuffer(text.as_buffer(), np.int64).reshape(3, -1))
        yield _to_batch(sums.take())

    before = str(spark.conf.get(_BATCH))
    try:
        spark.conf.set(_BATCH, "16")  # rows of megabytes
        sent = by_number(spark, tasks, send, "task long, tuples binary")
        received = sent.repartitionById(tasks, f.col("task").cast("int"))
        return _merge_batches(received.mapInArrow(receive, BYTES))
    finally:
        spark.conf.set(_BATCH, before)


def late_local(spark: SparkSession, source: TupleSource, tasks: int) -> Partials:
    """Let each task sum its own input, and merge the sums in the driver."""

    def work(task: int) -> list[PackedColumn]:
        return sum_tuples(source.readers(task, tasks).values()).pack()

    return merge_sums(map(Partials.unpack, sweep(spark, work, range(tasks))))


def late_global(
    spark: SparkSession, source: TupleSource, tasks: int, table: Callable[[], GlobalTable]
) -> Partials:
    """Let each task sum its own input and merge its sums once into a new shared table."""

    def work(task: int) -> None:
        with table() as shared:
            stands = shared.progress()
            readers = source.readers(task, tasks, stands)
            sums = sum_tuples(readers.values())
            segments = {p: (stands[p].offset, reader.progress) for p, reader in readers.items()}
            shared.commit(f"task-{task}", 1, sums, segments)

    with table() as shared:
        shared.prepare(source.log.partitions)
        sweep(spark, work, range(tasks))
        return shared.read()


def run_job(spark: SparkSession, job: Job) -> pd.DataFrame:
    """Run the servers of a job as Spark tasks, and emit complete windows meanwhile.

    Spark starts a failed server again, up to three times with a local master. A job whose driver
    failed goes on when it is run again. The results are in the global table. Return server and
    seconds, as `serve` counts them in the server's last process.
    """
    job.directory.mkdir(parents=True, exist_ok=True)
    with job.table() as shared:
        shared.prepare(job.source.log.partitions)

    def work(server: int) -> Iterator[pa.RecordBatch]:
        seconds = serve(job, server)
        yield pa.RecordBatch.from_pydict({"server": [server], "seconds": [seconds]})

    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        emitting = pool.submit(emit_until, over, job)
        try:
            frame = by_number(spark, job.servers, work, "server long, seconds double").toPandas()
        finally:
            over.set()
        emitting.result()
    return frame


def emit_until(over: threading.Event, job: Job) -> None:
    """The output task: emit complete windows until all servers have ended."""
    with job.table() as shared:
        while not over.wait(EMIT_S):
            shared.emit(job.source.windows)
        shared.emit(job.source.windows)


def _to_batch(sums: Partials) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"sums": [sums.rows.tobytes()]})


def _merge_batches(frame: DataFrame) -> Partials:
    texts = frame.toArrow()["sums"].to_pylist()
    return merge_sums(Partials.of(np.frombuffer(each, np.int64).reshape(-1, 4)) for each in texts)
