"""A replayable input as a stream whose micro-batches end where a plan says."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

_NAMED = threading.Lock()
"""Inputs of a kind have one name in Spark: what is loaded is what was registered last."""


class PlannedInput(ABC):
    """What a room says of its input; Spark calls it, in the driver's helpers and in the tasks.

    Offsets are counted in steps of any kind. An implementation is a dataclass of what it needs,
    which is pickled to the processes that read. Spark asks `next_boundary` once the micro-batch
    that ended at `start` has been committed, so it may look at what that one left behind.
    """

    schema: ClassVar[str]
    """Columns of the batches read, as Spark's DDL."""
    unit: ClassVar[str] = "step"
    """What an offset counts: its name in Spark's checkpoint."""

    @abstractmethod
    def next_boundary(self, start: int) -> int:
        """Where the micro-batch ends that begins at `start`; `start` itself when input is over."""

    @abstractmethod
    def partitions(self, start: int, stop: int) -> Sequence[InputPartition]:
        """What the tasks of the micro-batch (start, stop] read, one partition each."""

    @abstractmethod
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one partition; the same whenever it is read again."""

    def stream(self, spark: SparkSession) -> DataFrame:
        """Streaming frame of the input."""
        plan, named = self, type(self).__name__

        class Source(DataSource):
            @classmethod
            def name(cls) -> str:
                return named

            def schema(self) -> str:
                return plan.schema

            def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802, ARG002
                return _Reader(plan)

        with _NAMED:
            spark.dataSource.register(Source)
            return spark.readStream.format(named).load()


class _Reader(DataSourceStreamReader):
    def __init__(self, plan: PlannedInput) -> None:
        self.plan = plan

    def initialOffset(self) -> dict:  # noqa: N802
        return {self.plan.unit: 0}

    def latestOffset(self, start: dict, limit: Any) -> dict:  # noqa: N802, ARG002
        """The plan's, whatever limit Spark has."""
        return {self.plan.unit: self.plan.next_boundary(start[self.plan.unit])}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        begin, stop = start[self.plan.unit], end[self.plan.unit]
        return self.plan.partitions(begin, stop) if begin < stop else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.plan.read(partition)
