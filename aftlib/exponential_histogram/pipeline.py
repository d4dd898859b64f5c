"""From streams of events to estimates, and from partitions of events to one histogram (D5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.state import GroupStateTimeout

from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.operator import LAST_TIME, HistogramQuery
from aftlib.exponential_histogram.sketch import MAX_UNITS
from aftlib.exponential_histogram.source import Reader, rows
from aftlib.spark.checkpoint import QueryDirectory, last_number
from aftlib.spark.streams import drain

_SETTINGS = {
    # state outside the JVM's memory, which a million keys would fill
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
    "state.RocksDBStateStoreProvider",
}
_PARTITIONS = "spark.sql.shuffle.partitions"
_WHOLE_TYPES = {"tinyint", "smallint", "int", "bigint"}
_ANEW = "restore the whole directory from one copy, or start again in another directory"
_COLUMNS = ("key", "at", "event")
_LOG = "estimates/_spark_metadata"
#: JSON options with which a key of any type becomes text and is restored exactly.
_EXACT = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",  # the text of a timestamp must not depend on the session
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def estimates(events: DataFrame, query: HistogramQuery) -> DataFrame:
    """Return the answers of one histogram per key over a stream of events, and rejected rows.

    The stream has the columns key (of any type), at, and event (boolean or a whole number). at is
    the event's number within its key or, with `timed`, its timestamp. Answers have key, at,
    estimate. Rejected rows have key, reason, number of rows, and at, event with the policy "keep".

    Raises
    ------
    ValueError
        If a parameter of the query is outside its range, or a column is of another type; in the
        stream, if a row is bad and the policy is to refuse it.
    """
    query.check()
    for name in _COLUMNS:
        if [column for column in events.columns if column.lower() == name] != [name]:
            raise ValueError(
                f"events must have one column {name}, got {events.columns}: add or rename one"
            )
    types = dict(events.dtypes)
    for name, wanted in (("at", _WHOLE_TYPES), ("event", _WHOLE_TYPES | {"boolean"})):
        if types.get(name) not in wanted:
            raise ValueError(
                f"events must have a column {name} of type {', '.join(sorted(wanted))}, got "
                f"{types.get(name)}: cast it"
            )
    from aftlib.exponential_histogram import kernels  # noqa: F401 - compiled before the tasks start

    at, event = F.col("at").cast("long"), F.col("event").cast("long")
    first, after = (-MAX_UNITS + 1, MAX_UNITS) if query.lateness is None else (0, LAST_TIME)
    most, kind = (1, "no bit") if query.values == "bits" else (MAX_UNITS - 1, "too large")
    reason = (
        F.when(at.isNull(), "at is null")
        .when(event.isNull(), "event is null")
        .when((at < first) | (at >= after), "at is out of range")
        .when(event < 0, "event is negative")
        .when(event > most, f"event is {kind}")
    )
    at, event = (F.coalesce(column, F.lit(0)) for column in (at, event))
    key = F.to_json(F.struct("key"), _EXACT)
    group = F.pmod(F.xxhash64(key), F.lit(query.groups)).alias("group")
    columns = {"key": key, "at": at, "event": event, "reason": reason}
    table = events.select(group, *(column.alias(name) for name, column in columns.items()))
    timeout = GroupStateTimeout.NoTimeout
    if query.lateness is not None:
        # Spark silently drops rows behind the watermark. So an event becomes two rows: one with
        # its time moves the watermark and is dropped here; the other one has no time.
        time = F.when(F.col("reason").isNull(), F.timestamp_millis("at"))
        both = F.array_distinct(F.array(time, F.lit(None).cast("timestamp")))
        table = table.withColumn("time", F.explode(both))
        table = table.withWatermark("time", f"{query.lateness} milliseconds")
        table = table.filter(F.col("time").isNull())
        timeout = GroupStateTimeout.EventTimeTimeout
    answers = table.groupBy("group").applyInPandasWithState(
        query,
        "key string, at long, estimate double, event long, reason string, number long",
        "keys binary",
        "append",
        timeout,
    )
    structure = T.StructType([T.StructField("key", events.schema["key"].dataType)])
    return answers.withColumn("key", F.from_json("key", structure, _EXACT)["key"])


def run(
    spark: SparkSession,
    events: DataFrame,
    query: HistogramQuery,
    directory: Path,
    partitions: int | None = None,
) -> DataFrame:
    """Stream all present events into estimates; continue where an earlier process stopped.

    The directory holds the query, Spark's checkpoint (offsets and state) and the estimates, as
    Parquet files. All estimates so far are returned: key, at, estimate. `partitions` is the number
    of parts of the state, fixed when the stream first starts; by default the session's number of
    shuffle partitions. More partitions than keys only cost time.

    With a lateness, an event is answered once an event of any key has come that is more than
    `lateness` ms later. So the last `lateness` ms of a finite input wait in the state. End such an
    input with one event of a key of its own, later than the last by more than `lateness`.

    Raises
    ------
    ValueError
        As `estimates`, or if the directory holds the stream of another query or of columns of other
        types, was moved, or was damaged by a power failure.
    """
    place = Path(directory).absolute()
    answers = estimates(events, query)
    types = {f"{name} type": events.schema[name].dataType.simpleString() for name in _COLUMNS}
    identity = query.identity | types
    QueryDirectory(place).claim("query", identity)
    require_in_step(place)

    settings = _SETTINGS | ({_PARTITIONS: str(partitions)} if partitions else {})
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        writer = answers.writeStream.format("parquet").option("path", str(place / "estimates"))
        drain(writer, place)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    # a stream without events leaves no file from which Spark could read the schema
    table = spark.read.schema(answers.schema).parquet(str(place / "estimates"))
    return table.filter("reason is null").select("key", "at", "estimate")


def require_in_step(place: Path) -> None:
    """Refuse a checkpoint and estimates that are damaged, moved, or not from the same moment.

    Spark would not notice. It emits a micro-batch once by its number, whatever its contents, and
    does not read estimates that were written to another path.
    """
    log = place / _LOG
    spark, written = QueryDirectory(place, _ANEW).spark_checkpoint(), last_number(log)
    if not spark.committed <= written <= spark.started:
        raise ValueError(
            f"checkpoint and estimates in {str(place)!r} must be of one moment, got micro-batch "
            f"{spark.committed} as the last that was committed, {spark.started} that began and "
            f"{written} that was emitted (-1: none): {_ANEW}"
        )
    for file, size in logged_files(log):
        if file.parent != log.parent:
            raise ValueError(
                f"estimates must lie where they were written, in {str(file.parent)!r}, got "
                f"{str(log.parent)!r}: move the directory back, or start again in another one"
            )
        length = file.stat().st_size if file.exists() else 0
        if length != size:
            raise ValueError(
                f"estimates must be whole, got {length} of {size} bytes of {str(file)!r}, as a "
                f"power failure may leave them: {_ANEW}"
            )


def logged_files(log: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files of estimates that Spark's log lists, with their sizes in bytes."""
    for path in log.glob("[0-9]*"):
        version, *lines = path.read_text().splitlines() or [""]
        try:
            entries = [json.loads(line) for line in lines]
        except ValueError:
            version = ""
        if version != "v1":
            raise ValueError(
                f"log of the estimates must be whole, got {str(path)!r} cut or empty, as a power "
                f"failure may leave it: {_ANEW}"
            )
        yield from ((Path(unquote(urlsplit(e["path"]).path)), e["size"]) for e in entries)


def rejects(spark: SparkSession, directory: Path) -> DataFrame:
    """Rows that a stream of `run` has rejected: key, at, event, reason, number of rows.

    The key is of the stream's own type; it is text where nothing has been emitted yet.
    """
    place = Path(directory).absolute()
    if (place / "query.json").exists() and not any(logged_files(place / _LOG)):
        schema = "key string, at long, event long, reason string, number long"
        return spark.createDataFrame([], schema)
    table = spark.read.parquet(str(place / "estimates"))
    return table.filter("reason is not null").select("key", "at", "event", "reason", "number")


@dataclass(frozen=True)
class Merged:
    """Result of `aggregate`: the histogram of all events, and numbers of events and partitions."""

    histogram: ExponentialHistogram
    events: int
    partitions: int


def aggregate(frame: DataFrame, query: HistogramQuery, reader: Reader = rows) -> Merged:
    """Merge the histograms of a frame's partitions, one each; the error is at most ε + ε + ε².

    The reader turns the frame's rows into events, by default one per row, with the columns at and
    event. Within a partition events must be in order of time. Raises ValueError if the query is no
    time window, because only these merge, or (in a task) if the timestamps go back.
    """
    if not query.timed:
        raise ValueError(
            "query must have timed=True to be merged, got False: the last N events of each "
            "part are not the last N of the stream; use windows in time"
        )

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        histogram, events = query.histogram(), 0
        for at, event in reader(batches):
            histogram.update(event, at)
            events += at.size
        data = histogram.to_bytes()
        yield pa.RecordBatch.from_pydict({"events": [events], "histogram": [data]})

    from aftlib.exponential_histogram import kernels  # noqa: F401 - compiled before the tasks start

    parts = _mapped(frame, part, "events long, histogram binary")
    histograms = [ExponentialHistogram.from_bytes(data) for data in parts["histogram"]]
    merged = query.histogram().merge(*histograms) if histograms else query.histogram()
    return Merged(merged, sum(parts["events"]), len(histograms))


def _mapped(frame: DataFrame, part: Any, schema: str) -> dict[str, list[Any]]:
    """Map partitions by `part`, in batches a hundred times Spark's default; return the columns."""
    conf, name = frame.sparkSession.conf, "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = str(conf.get(name))
    try:
        conf.set(name, str(10**6))
        return frame.mapInArrow(part, schema).toArrow().to_pydict()
    finally:
        conf.set(name, before)


def count(frame: DataFrame, reader: Reader = rows) -> tuple[int, int]:
    """Count events, and events that are not 0: the baseline with which `aggregate` is compared."""

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        events, ones = 0, 0
        for at, event in reader(batches):
            events, ones = events + at.size, ones + int(np.count_nonzero(event))
        yield pa.RecordBatch.from_pydict({"events": [events], "ones": [ones]})

    parts = _mapped(frame, part, "events long, ones long")
    return sum(parts["events"]), sum(parts["ones"])
