"""Streaming queries: inputs in planned micro-batches, runs to the end of an input, progress.

`PlannedInput` is a replayable input whose micro-batches end at a plan's steps. `drain` runs a query
until its input has ended. `committed_offset` is Spark's progress, from its checkpoint.

Spark syncs none of its files on a local disk. So after a power failure its checkpoint may be older
than the query's own state; after this state is restored from a copy, it may be newer. A query
checks this before Spark continues.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import DataStreamWriter

CHECKPOINT = "checkpoint"
"""Folder of Spark's own checkpoint in a query's directory."""
_NAMED = threading.Lock()
"""Held from registering to loading an input, because inputs of one class share a name in Spark."""


class PlannedInput(ABC):
    """A replayable input; Spark calls it in the driver's helper processes and in the tasks.

    Offsets are counted in steps of any kind. An implementation is a dataclass of its arguments,
    which is pickled to the processes that read. Spark asks for `next_boundary(start)` only after
    the micro-batch that ended at `start` has been committed. So the method may use the state that
    this micro-batch committed.
    """

    schema: ClassVar[Any]
    """Columns of the batches read, as Spark's DDL or its ``StructType``."""
    unit: ClassVar[str] = "step"
    """The unit of an offset: its name in Spark's checkpoint."""

    @abstractmethod
    def next_boundary(self, start: int) -> int:
        """End of the micro-batch that begins at `start`; `start` itself if input has ended."""

    @abstractmethod
    def partitions(self, start: int, stop: int) -> Sequence[InputPartition]:
        """Input of the tasks of the micro-batch [start, stop), one partition each."""

    @abstractmethod
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one partition; every read gives the same rows."""

    def stream(self, spark: SparkSession) -> DataFrame:
        """Streaming frame of the input."""
        plan = self
        named = type(self).__name__

        class Source(DataSource):
            @classmethod
            def name(cls) -> str:
                return named

            def schema(self) -> Any:
                return plan.schema

            def streamReader(self, schema: Any) -> DataSourceStreamReader:
                return _Reader(plan)

        with _NAMED:
            spark.dataSource.register(Source)
            return spark.readStream.format(named).load()


class _Reader(DataSourceStreamReader):
    def __init__(self, plan: PlannedInput) -> None:
        self.plan = plan

    def initialOffset(self) -> dict:
        return {self.plan.unit: 0}

    def latestOffset(self, start: dict, limit: Any) -> dict:
        """Return the plan's next boundary, whatever limit Spark sets."""
        return {self.plan.unit: self.plan.next_boundary(start[self.plan.unit])}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        begin = start[self.plan.unit]
        stop = end[self.plan.unit]
        return self.plan.partitions(begin, stop) if begin < stop else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.plan.read(partition)


def drain(
    writer: DataStreamWriter, directory: Path, each: Callable[[DataFrame, int], None]
) -> None:
    """Run a stream until its source has ended; stop it also after an error.

    Spark's own checkpoint lies in `directory`: a run goes on where the last one there ended.
    `each` is called with every micro-batch and its number. A RuntimeError is raised if somebody
    else has stopped the stream, as a second run in the same directory does: Spark itself then ends
    silently, even if input is left.
    """
    writer = writer.foreachBatch(each).option("checkpointLocation", str(directory / CHECKPOINT))
    stream = writer.start()
    try:
        stream.processAllAvailable()
        if not stream.isActive:
            raise RuntimeError(
                f"stream in {str(directory)!r} was stopped by somebody else before its end: let "
                "one run at a time work in a directory, and run it again"
            )
    finally:
        stream.stop()


def committed_offset(checkpoint: Path, fix: str) -> Any:
    """Return the offset at which the last committed micro-batch ended; None before the first.

    ValueError, which ends with `fix`, when it is missing in Spark's checkpoint, or cut.
    """
    names = (path.name for path in (checkpoint / "commits").glob("[0-9]*"))
    batches = [int(name.removesuffix(".compact")) for name in names]
    if not batches:
        return None
    file = checkpoint / "offsets" / str(max(batches))
    try:
        version, metadata, offset = file.read_text().splitlines()
        return json.loads(offset)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"Spark's checkpoint must be whole, got {str(file)!r} cut or missing, as a power "
            f"failure may leave it: {fix}"
        ) from error
