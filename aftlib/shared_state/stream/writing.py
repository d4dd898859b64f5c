"""Where Spark writes logs of tuples: every partition by one task, the same bytes in any number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from aftlib.core.paths import atomic_directory
from aftlib.shared_state.stream.tuplelog import TupleLog, write_manifest, write_part
from aftlib.shared_state.stream.tuples import TupleStream


def write_tuples(
    spark: SparkSession, stream: TupleStream, partitions: int, path: Path | str
) -> TupleLog:
    """Draw a stream in Spark tasks and keep it as a log; reuse it when it is there.

    Parameters
    ----------
    spark : SparkSession
    stream : TupleStream
        Its row ranges are dealt out to the partitions in turn.
    partitions : int
        The most tasks that can ever read the log at once.
    path : path
        Folder of the log; where several machines work, one that all of them share.

    Returns
    -------
    TupleLog

    Raises
    ------
    ValueError
        When partitions is less than 1, or `path` holds a log of another stream.
    """
    if partitions < 1:
        raise ValueError(f"partitions must be at least 1, got {partitions!r}")
    if Path(path).exists():
        return _same_log(TupleLog.open(path), stream, partitions)
    with atomic_directory(Path(path)) as scratch:

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for partition in batch.column(0).to_pylist():
                    ranges = range(partition, stream.ranges, partitions)
                    write_part(scratch, partition, map(stream.text, ranges))
                yield batch

        written = spark.range(0, partitions, 1, partitions).mapInArrow(write, "id long").count()
        if written != partitions:
            raise RuntimeError(f"wrote {written} of {partitions} partitions; run again")
        write_manifest(scratch, partitions, stream.tuples, stream.about)
    return TupleLog.open(path)


def _same_log(log: TupleLog, stream: TupleStream, partitions: int) -> TupleLog:
    if (log.about, log.partitions) != (stream.about, partitions):
        raise ValueError(
            f"path holds a log of {log.about} in {log.partitions} partitions, got a request for "
            f"{stream.about} in {partitions}; give another path or delete the folder"
        )
    return log
