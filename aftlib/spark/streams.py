"""Streaming queries: inputs in planned micro-batches, runs to the end, and Spark's checkpoint.

`PlannedInput` is a replayable input whose micro-batches end where a plan says. `drain` runs a query
until its input has ended. `read_checkpoint` says where Spark's checkpoint stands before Spark goes
on by it: Spark syncs none of its files on a local disk, so that a power failure may leave them
behind the output, ahead of a copy of it, empty or cut. Only the last ones count.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import DataStreamWriter

_NAMED = threading.Lock()
"""Inputs of a kind have one name in Spark: what is loaded is what was registered last."""


class PlannedInput(ABC):
    """A replayable input; Spark calls it in the driver's helper processes and in the tasks.

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


def drain(
    writer: DataStreamWriter,
    directory: Path,
    each: Callable[[DataFrame, int], None] | None = None,
) -> None:
    """Run a stream until its source has nothing more; stop it whatever happens.

    Spark's own checkpoint lies in `directory`: a run goes on where the last one there ended.
    `each` is called with every micro-batch and its number. What ``foreachBatch`` alone would keep
    is let go of at the end: `each`, with all that it holds, until the JVM collects garbage, and for
    good a connection with a thread here, as py4j has one for every thread of the JVM that calls.
    A RuntimeError says that somebody else has stopped the stream, as a second run in the same
    directory does: Spark itself then says nothing, whatever is left of the input.
    """
    acts, connections, stream = [each], list[Any](), None

    def act(frame: DataFrame, batch: int) -> None:
        client = frame.sparkSession.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
        asked = getattr(client, "get_thread_connection", lambda: None)  # not with unpinned threads
        connections[:] = [asked()]
        acts[0](frame, batch)  # type: ignore[misc]

    if each is not None:
        writer = writer.foreachBatch(act)
    try:
        stream = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
        stream.processAllAvailable()
        if not stream.isActive:
            raise RuntimeError(
                f"stream in {str(directory)!r} was stopped by somebody else before its end: let "
                "one run at a time work in a directory, and run it again"
            )
    finally:
        try:
            if stream is not None:
                stream.stop()
        finally:
            acts.clear()
            for connection in connections:
                with suppress(AttributeError, OSError):  # closed already
                    connection.socket.shutdown(SHUT_RDWR)  # which ends the thread that reads it
            connections.clear()


@dataclass(frozen=True)
class SparkCheckpoint:
    """Numbers of the last micro-batches in Spark's checkpoint; −1 where there is none."""

    begun: int
    committed: int
    offset: Any = None  # at which the last committed one ended; None before the first


def read_checkpoint(directory: Path | str, way_out: str) -> SparkCheckpoint:
    """Return how far the folder `checkpoint` in a stream's directory has come.

    ValueError when its last files are empty or cut, or there is a commit of a batch that has not
    begun; `way_out` says what becomes of the stream then.
    """
    place = Path(directory) / "checkpoint"
    begun, committed = (last_number(place / name) for name in ("offsets", "commits"))
    if committed > begun:
        why = f"micro-batch {committed} is committed, and {begun} is the last that began"
        raise _torn(place, why, way_out)
    if begun >= 0 or (place / "metadata").exists():
        _whole(place / "metadata", 0, way_out)
    for number in {begun, begun - 1, committed} - {-1, -2}:  # those that Spark goes on by
        offsets = _whole(place / "offsets" / str(number), 1, way_out)
        if len(offsets) < 2:
            raise _torn(place, f"offsets/{number} is cut", way_out)
    if committed < 0:
        return SparkCheckpoint(begun, committed)
    _whole(place / "commits" / str(committed), 1, way_out)
    offset = _whole(place / "offsets" / str(committed), 1, way_out)[1]
    return SparkCheckpoint(begun, committed, offset)


def last_number(folder: Path) -> int:
    """Highest number that a file of one of Spark's logs has, compacted or not; −1 without any."""
    names = (path.name.removesuffix(".compact") for path in folder.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _whole(file: Path, version: int, way_out: str) -> list[Any]:
    """The lines of JSON in a file, after those that tell its version."""
    place = next(parent for parent in file.parents if parent.name == "checkpoint")
    try:
        lines = [json.loads(line) for line in file.read_text().splitlines()[version:]]
    except (ValueError, OSError) as error:
        raise _torn(place, f"{file.relative_to(place)} is missing or cut", way_out) from error
    if not lines:
        raise _torn(place, f"{file.relative_to(place)} is empty", way_out)
    return lines


def _torn(place: Path, what: str, way_out: str) -> ValueError:
    return ValueError(
        f"Spark's checkpoint must be whole, got {str(place)!r} where {what}, as a power failure "
        f"may leave it: {way_out}"
    )
