"""The guarantee over any stream of samples, as Spark's own keyed state: one guard per group.

Spark aggregates, and its watermark ends the windows. A stateful processor gives them to the group's
guard, on the executor that has the group, and Spark's checkpoint holds the guard's state. A known
model has nothing to learn, so its windows pass without state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from importlib import import_module

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aftlib.core.checks import listed
from aftlib.guard.estimator import LARGEST
from aftlib.spark.session import LISTING, PROVIDER, REUSE, ROCKSDB
from aftlib.streaming.aggregation import (
    OF_WINDOWS,
    ROWS,
    WATERMARK,
    columns_for,
    read_samples,
    reasons_to_reject,
    results_of_windows,
    setting_of,
)
from aftlib.streaming.coordinator import coordinate
from aftlib.streaming.operator import GuardProcessor
from aftlib.streaming.promise import Promise, fixed_part, microseconds
from aftlib.streaming.rows import MOST_SENSORS, SENSOR_TALLY, TALLY

import_module("google.protobuf")  # Spark's keyed state needs it in each worker

BUCKETS = 16
"""Keys of the guards' state, each of many groups; so many tasks can run guards at once."""


def recoverable(
    stream: DataFrame,
    promise: Promise,
    *,
    group: str | None = None,
    time: str = "time",
    sensor: str = "sensor",
    value: str = "value",
    now: Column | None = None,
) -> DataFrame:
    """Aggregate a stream in windows, and estimate the missing windows that were guaranteed.

    Parameters
    ----------
    stream : DataFrame
        Streaming, one row per sample. If it has a watermark already, this must be one on the column
        `time`, and it ends the windows; `promise.watermark` is not used then.
    promise : Promise
        The guarantee, which holds for each group separately.
    group : str, optional
        Column of the groups, such as sites. Each group has the sensors of `promise`, and a guard of
        its own.
    time, sensor, value : str
        The stream's columns; names may have dots and blanks, with or without Spark's backticks.
    now : Column, optional
        The present time, to which the promise's `ahead` is added to reject rows; by default the
        time of the micro-batch, which stays the same when the batch runs again.

    Returns
    -------
    DataFrame
        Streaming, in append mode; write it to any sink with a `checkpointLocation`, which holds the
        guards' state. One row per window and sensor, in the order of time in each group:

        - `start`, the group's column if there is one, `sensor`;
        - `state`: "exact", all samples came; "estimated", an error of at most ε was guaranteed
          before the loss began, or the half-width of a partial window is at most ε; "lost"
          otherwise: `repair` puts those right from an archive;
        - `value`: the window's result, or its estimate; null where a lost window has none;
        - `half_width`: of this one estimate: a share 1 − δ of comparable errors were within it. A
          partial window has the half-width of its sample. It may be above ε, which is a limit for
          all estimated rows together. Null where exact or lost without a value;
        - `samples`: how many samples came;
        - `recoverable`: how many windows long a loss of the sensor may be if it begins now;
        - `window_time`: the window's last microsecond, which has the stream's watermark. Aggregate
          and join by it, as in ``groupBy(window("window_time", "1 hour"))``, without another
          `withWatermark`.

        When no sensor of the group sends anything for a while, the first H windows of that gap have
        rows; the later ones have none, and are lost. These rows come with the next window in which
        a sensor sent a sample, so a further aggregation may drop them as late, and count them. With
        a known model no window of a gap has rows.

    Raises
    ------
    ValueError
        When the stream is no streaming DataFrame or lacks a column, has a watermark on another
        column or a `recoverable` already, when the promise's query is no aggregate of the value,
        or the session's state store is not RocksDB or it reuses parts of plans. Spark refuses a
        checkpoint whose promise differs in a fixed parameter, or whose `group` has another name,
        before it reads a sample (STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE); its message shows both.
    ModuleNotFoundError
        Without the extra `spark`.

    Notes
    -----
    Some rows are left out before the watermark: those without time, group, sensor or a value below
    1e100, those of sensors that the promise does not name, and those with implausible times. They
    are counted by reason in the query's progress (`observedMetrics`, "rejected"). Spark counts what
    came too late (`numRowsDroppedByWatermark`): a sensor's samples of a window in a task are one.

    Between two runs of a query `workers`, `epsilon`, `delta`, `predictor` and `learned` of its
    promise may change. If the sensors stay, each guard keeps what it learned, and the accounts
    whose ε, δ or worker changes begin anew, with a slack of their own; else the guards begin anew.
    `watermark`, `ahead` and `behind` may change at will. A known model may become another one.

    Examples
    --------
    >>> promise = Promise([["a"], ["b"], ["c"]], epsilon=0.5, delta=0.05, window="10min")
    >>> samples = spark.readStream.schema(SCHEMA).json("incoming")  # doctest: +SKIP
    >>> windows = recoverable(samples, promise)  # doctest: +SKIP
    >>> writer = windows.writeStream.option("checkpointLocation", "state")  # doctest: +SKIP
    >>> writer.start("windows")  # doctest: +SKIP
    """
    if not isinstance(stream, DataFrame) or not stream.isStreaming:
        raise ValueError(
            f"stream must be streaming (spark.readStream), got a {type(stream).__name__} that is "
            "not: for a table use Guard.replay"
        )
    columns = columns_for(promise, stream, time=time, sensor=sensor, value=value, group=group)
    require_settings(stream)
    named = {role: name for role, name in columns.items() if role == "group"}
    query_content = json.dumps(json.loads(promise.content) | named)
    samples = samples_of_stream(stream, promise, columns, now)
    rows_by = rows_by_guards if promise.model is None else rows_by_known_model
    rows = rows_by(samples, promise, query_content)
    end = F.max("start") + promise.width  # of the last window, in µs since 1970
    rows = rows.observe("windows", counts_of_windows(promise), end.alias("end"))
    start = F.timestamp_micros(F.col("start")).alias("start")
    of_group = [F.col("key").alias(columns["group"])] if "group" in columns else []
    # the watermark passes it when the row comes, so that Spark may aggregate and join by it
    last = F.timestamp_micros(F.col("start") + promise.width - 1)
    last = last.alias("window_time", metadata={WATERMARK: OF_WINDOWS})
    return rows.select(start, *of_group, *ROWS, last)


def rows_by_guards(samples: DataFrame, promise: Promise, query_content: str) -> DataFrame:
    """Return the rows of windows by the guards in Spark's state.

    ValueError for a session whose API has no keyed state in Python.
    """
    windows = results_of_windows(samples, promise)
    number = F.pmod(F.xxhash64("key"), F.lit(BUCKETS))
    buckets = windows.withColumn("bucket", key_of_state(query_content, number)).groupBy("bucket")
    if not hasattr(buckets, "transformWithStateInPandas"):
        raise ValueError(
            "the session must have keyed state in Python, got Spark Connect of pyspark "
            f"{pyspark.__version__}: use Spark Connect 4.1 or newer, or a classic session"
        )
    key = windows.schema["key"].dataType.simpleString()
    processor = GuardProcessor(query_content, key, promise.learned)
    return buckets.transformWithStateInPandas(processor, schema_of_rows(windows), "append", "none")


def rows_by_known_model(samples: DataFrame, promise: Promise, query_content: str) -> DataFrame:
    """Return the rows of windows by the known model, which needs no state.

    Only Spark's aggregation has one, so its key must differ when a fixed parameter does.
    """
    # null in every row, as no sample has such a value; only its type matters
    never = F.col("value") < -LARGEST
    fixed = F.when(never, key_of_state(query_content, F.lit(0))).alias("fixed")
    windows = results_of_windows(samples, promise, fixed)
    # the group's column concerns the key alone
    work = partial(coordinate, content=promise.content)
    return windows.repartition("key").mapInPandas(work, schema_of_rows(windows))


def schema_of_rows(windows: DataFrame) -> str:
    """Return the columns of rows with key and tally, as Spark's DDL."""
    key = windows.schema["key"].dataType.simpleString()
    columns = {"start": "bigint"} | ROWS | {"key": key, "tally": "array<double>"}
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def key_of_state(query_content: str, number: Column) -> Column:
    """Return a key of state, whose type differs when a fixed parameter of the query differs.

    Spark compares the types of a checkpoint's keys with those of the query before it reads a
    sample, so it refuses a query that cannot go on (STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE). Names
    are not compared; so precision and scale of decimals have 48 bits of a hash. These fields are
    null, but depend on a column, because Spark removes constants from a key.
    """
    words = ", ".join(f"{name} {value}" for name, value in fixed_part(query_content))
    nothing = F.when(number < 0, number)
    digest = blake2b(words.encode(), digest_size=6).digest()
    hashed = [
        nothing.cast(f"decimal({20 + byte % 16}, {byte // 16})").alias(f"hash_{place}")
        for place, byte in enumerate(digest)
    ]
    # Spark's message shows the names of both keys, so that a reader sees which parameter differs
    readable = "state_of_" + re.sub(r"[^A-Za-z0-9]+", "_", words)
    return F.struct(number.alias(readable), *hashed)


def require_settings(stream: DataFrame) -> None:
    """Refuse a session whose state store cannot hold the guards, or that may lose rows."""
    provider = setting_of(stream, PROVIDER)
    # a platform may have one of its own
    if provider is not None and not provider.rpartition(".")[2].startswith("RocksDB"):
        raise ValueError(
            f"the session's state store must be RocksDB, got {provider}: call "
            f'spark.conf.set("{PROVIDER}", "{ROCKSDB}"), and for sources of many small files '
            f'spark.conf.set("{LISTING}", "10000")'
        )
    if setting_of(stream, REUSE) == "true":
        raise ValueError(
            f"the session must not reuse parts of a plan, got {REUSE} = true: Spark would lose "
            f"rows when windows are united or joined with each other; call "
            f'spark.conf.set("{REUSE}", "false")'
        )


def samples_of_stream(
    stream: DataFrame, promise: Promise, columns: Mapping[str, str], now: Column | None
) -> DataFrame:
    """Return the samples behind a watermark; Spark counts the rows that are left out."""
    rows = read_samples(stream, promise, columns, now)
    reasons = reasons_to_reject(promise, now)
    counts = [F.count_if(F.col("reason") == name).alias(name) for name in reasons]
    try:
        rows = rows.observe("rejected", *counts)
        rows.schema  # noqa: B018 - only then does Spark Connect look at the plan
    except AnalysisException as error:
        if error.getCondition() != "DUPLICATED_METRICS_NAME":
            raise
        raise ValueError(
            "stream must be without recoverable, and without an observe named 'rejected', got one: "
            "rename your own; of recoverable a query may have one: unite the streams of samples "
            "before it, with a column for group, or write its windows to a table, and read that in "
            "a second query"
        ) from error
    rows = rows.where(F.col("reason").isNull())
    if not has_watermark(stream, columns["time"]):
        late = microseconds("watermark", promise.watermark)
        rows = rows.withWatermark("time", f"{late} microseconds")
    return rows


def has_watermark(stream: DataFrame, time: str) -> bool:
    """Whether the stream has a watermark on its column `time`; ValueError if on another one only.

    Spark permits one watermark in a chain of operators. Its mark on a column is the only public
    sign of one. The mark of `OF_WINDOWS` comes from a table, because `samples_of_stream` has
    refused a stream of windows, which has metrics named "rejected" already.
    """
    marks = {column.name: column.metadata.get(WATERMARK) for column in stream.schema.fields}
    marked = [name for name, delay in marks.items() if delay not in (None, OF_WINDOWS)]
    if marked and time not in marked:
        raise ValueError(
            f"time must name the column of the stream's watermark, got {time!r} and a watermark on "
            f"{listed(marked)}: call withWatermark({time!r}, …) instead of that one; behind an "
            "aggregation take window_time(…) of its window as the time, without another watermark; "
            "if the stream reads a table, and has no watermark, remove the table's mark: "
            f"withMetadata({marked[0]!r}, {{'comment': 'no watermark'}})"
        )
    return bool(marked)


def counts_of_windows(promise: Promise) -> Column:
    """Return the sums of the tallies of a micro-batch for Spark's progress.

    Of each sensor, `sensors` has the numbers of `SENSOR_TALLY`. It is one aggregate, because Spark
    prepares each of them in each task of each micro-batch.
    """
    names = promise.sensors if len(promise.sensors) <= MOST_SENSORS else []
    size = len(TALLY) + len(names) * len(SENSOR_TALLY)

    def add(one: Column, other: Column) -> Column:
        return F.zip_with(one, other, lambda x, y: x + y)

    def named(sums: Column) -> Column:
        totals = [sums[place].alias(name) for place, name in enumerate(TALLY)]
        starts = range(len(TALLY) + 1, size, len(SENSOR_TALLY))  # SQL counts from 1
        of_sensors = [F.slice(sums, start, len(SENSOR_TALLY)) for start in starts]
        by_sensor = F.map_from_arrays(F.lit(names), F.array(*of_sensors))
        return F.struct(*totals, by_sensor.alias("sensors"))

    zeros = F.array_repeat(F.lit(0.0), size)
    return F.aggregate(F.collect_list("tally"), zeros, add, named).alias("counts")
