"""Upfront partitioning alone (D3): its shuffle between compiled loops, no engine's work per tuple.

Spark's own upfront takes each tuple from Arrow into a row of the JVM, and back out of it to be
added up; that is the engine's cost, not the strategy's. Here a task deals its tuples out to the
tasks of their keys, and Spark's shuffle carries what goes from one to another as bytes, a few
megabytes per row. Behind it the tuples are added up by the loops that late merge uses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from aftlib.core.compiling import jit
from aftlib.shared_state.experiments.parameters import Input
from aftlib.shared_state.sums import SliceSums
from aftlib.shared_state.task import Intake

NAME = "upfront, compiled"
ROWS = 2**17
_SUMS = pa.schema([(name, pa.int64()) for name in ("windows", "keys", "sums", "counts")])
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


@jit()
def deal_out(block: Any, tasks: int) -> tuple[Any, Any]:
    """Tuples by the task of their key, and where each task's end.

    A task's are its three columns, one after the other: 3 · (end − begin) numbers.
    """
    parts, keys, values = block
    ends = np.zeros(tasks + 1, np.int64)
    for key in keys:
        ends[key % tasks + 1] += 1
    ends = np.cumsum(ends)
    flat, at = np.empty(3 * len(keys), np.int64), np.zeros(tasks, np.int64)
    for i in range(len(keys)):
        task = keys[i] % tasks
        size, place = ends[task + 1] - ends[task], 3 * ends[task] + at[task]
        flat[place], flat[place + size], flat[place + 2 * size] = parts[i], keys[i], values[i]
        at[task] += 1
    return flat, ends


def upfront(spark: SparkSession, each: Input, tasks: int) -> tuple[float, list[int]]:
    """Seconds that the caller waits for the sums; their number, the sums' and the counts' sum."""

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in (index for batch in batches for index in batch.column(0).to_pylist()):
            intake = Intake(each.rules)
            for partition in range(index, each.log.partitions, tasks):
                for block in intake.blocks(partition, each.log.part(partition), ROWS):
                    flat, ends = deal_out(block, tasks)
                    texts = [flat[3 * a : 3 * b].tobytes() for a, b in pairwise(ends.tolist())]
                    yield pa.RecordBatch.from_pydict({"task": range(tasks), "tuples": texts})

    def receive(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = SliceSums(each.rules.windows.pane)
        for text in (text for batch in batches for text in batch.column("tuples")):
            sums.add(np.frombuffer(text.as_buffer(), np.int64).reshape(3, -1))
        partials = sums.take()
        columns = [partials.windows, partials.keys, *partials.values.T]
        yield pa.RecordBatch.from_arrays([*map(pa.array, columns)], schema=_SUMS)

    before = str(spark.conf.get(_BATCH))
    try:
        spark.conf.set(_BATCH, "16")  # rows of megabytes
        begin = time.perf_counter()
        senders = spark.range(0, tasks, 1, tasks).mapInArrow(send, "task long, tuples binary")
        behind = senders.repartitionById(tasks, F.col("task").cast("int"))
        table = behind.mapInArrow(receive, from_arrow_schema(_SUMS)).toArrow()
        seconds = time.perf_counter() - begin
    finally:
        spark.conf.set(_BATCH, before)
    return seconds, [len(table), pc.sum(table["sums"]).as_py(), pc.sum(table["counts"]).as_py()]
