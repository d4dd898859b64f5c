"""The guard over any stream of samples, as Spark's own keyed state: one guard per group.

Spark aggregates, and its watermark ends the windows. A stateful processor gives them to the group's
guard, on the executor that has the group, and Spark's checkpoint holds the guard's state.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aftlib.core.checks import listed
from aftlib.core.windows import AGGREGATES
from aftlib.guard.groups import AUDIT
from aftlib.guard.operator import GuardProcessor
from aftlib.guard.promise import Promise, microseconds
from aftlib.guard.rounds import LARGEST

REASONS = (
    "no_time", "no_group", "no_sensor", "no_value", "unknown_sensor", "too_late", "too_early",
)  # fmt: skip
"""Reasons to leave a row out; if several apply, the first counts."""
BUCKETS = 64
"""Keys of the guards' state, each of many groups; so many tasks can run guards at once."""
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_TYPES = {
    "time": {"timestamp"},  # Spark's watermark takes no other
    "sensor": {"string"},
    "value": {"tinyint", "smallint", "int", "bigint", "float", "double"},
}
_NO_GROUP = ("float", "double", "array", "map", "struct", "variant")  # NaN; no equality in Python
_ROWS = (
    "sensor string, state string, value double, half_width double, samples bigint, recoverable int"
)


def guarded_windows(
    stream: DataFrame, promise: Promise, columns: Mapping[str, str], now: Column | None
) -> DataFrame:
    """Return the result of `promise.recoverable`; `columns` names the stream's columns by role."""
    rows = classify_rows(stream, promise, columns, now)
    counts = [F.count(F.when(F.col("reason") == reason, 1)).alias(reason) for reason in REASONS]
    accepted = rows.observe("rejected", *counts).where(F.col("reason").isNull())
    total = getattr(F, AGGREGATES[promise.query].spark)
    late, width, step = (
        f"{length} microseconds"
        for length in (microseconds("watermark", promise.watermark), promise.width, promise.step)
    )
    variance = F.var_samp("value") if promise.samples > 1 else F.lit(None).cast("double")
    windows = (
        accepted.withWatermark("time", late)
        .groupBy(F.window("time", width, step).alias("window"), "key", "sensor")
        .agg(
            total("value").alias("value"),
            F.count("value").alias("samples"),
            variance.alias("variance"),
        )
        .select(
            F.pmod(F.xxhash64("key"), F.lit(BUCKETS)).alias("bucket"),
            "key",
            F.unix_micros(F.col("window.start")).alias("start"),
            "sensor",
            "value",
            "samples",
            "variance",
        )
    )
    key = windows.schema["key"].dataType.simpleString()
    audit = "".join(f", {name} double" for name in AUDIT)
    rows = windows.groupBy("bucket").transformWithStateInPandas(
        GuardProcessor(promise.content, key),
        f"start bigint, key {key}, {_ROWS}{audit}",
        "append",
        "none",
    )
    rows = rows.observe("windows", *_window_metrics(promise))
    start = F.timestamp_micros(F.col("start")).alias("start")
    group = [F.col("key").alias(columns["group"])] if "group" in columns else []
    others = [name for name in rows.columns if name not in ("start", "key", *AUDIT)]
    return rows.select(start, *group, *others)


def _window_metrics(promise: Promise) -> list[Column]:
    """Return the counts of a micro-batch's windows in Spark's progress, for `metrics_log`."""
    counts = {state: F.col("state") == state for state in ("exact", "estimated", "lost")}
    counts |= {"empty": F.col("samples") == 0, "certified": F.col("recoverable") > 0}
    return [
        *(F.count(F.when(test, 1)).alias(name) for name, test in counts.items()),
        *(F.sum(name).alias(name) for name in AUDIT),
        (F.max("start") + promise.width).alias("end"),
        F.max(F.lit(promise.delta)).alias("delta"),
    ]


def rejected_rows(
    stream: DataFrame,
    promise: Promise,
    *,
    group: str | None = None,
    time: str = "time",
    sensor: str = "sensor",
    value: str = "value",
    now: Column | None = None,
) -> DataFrame:
    """Return the rows of a stream that `recoverable` leaves out, with a column `reason`.

    The arguments are those of `recoverable`. Rows behind the watermark are not returned, because
    Spark drops them.
    """
    columns = {"time": time, "sensor": sensor, "value": value}
    if group is not None:
        columns["group"] = group
    _require_fitting(stream, columns)
    reason = _reason(promise, columns, now).alias("reason")
    return stream.select("*", reason).where(F.col("reason").isNotNull())


def classify_rows(
    stream: DataFrame, promise: Promise, columns: Mapping[str, str], now: Column | None
) -> DataFrame:
    """Return time, key, sensor and value of each row, and the reason to leave it out, or null."""
    _require_fitting(stream, columns)
    if (provider := stream.sparkSession.conf.get(PROVIDER, "")) != ROCKSDB:
        raise ValueError(
            f"the session's state store must be RocksDB, got {provider or 'the default'}: "
            f'call spark.conf.set("{PROVIDER}", "{ROCKSDB}")'
        )
    key = F.col(columns["group"]) if "group" in columns else F.lit("")
    return stream.select(
        F.col(columns["time"]).alias("time"),
        key.alias("key"),
        F.col(columns["sensor"]).alias("sensor"),
        F.col(columns["value"]).cast("double").alias("value"),
        _reason(promise, columns, now).alias("reason"),
    )


def _require_fitting(stream: DataFrame, columns: Mapping[str, str]) -> None:
    """Refuse a DataFrame that is not streaming or lacks a column of the right type."""
    if not stream.isStreaming:
        raise ValueError(
            "stream must be streaming (spark.readStream); for a table use Guard.replay"
        )
    types = {column.name: column.dataType.simpleString() for column in stream.schema.fields}
    for argument, name in columns.items():
        if argument not in _TYPES:
            if name not in types:
                raise ValueError(f"group must name a column, got {name!r}: it has {listed(types)}")
            if types[name].startswith(_NO_GROUP):
                raise ValueError(
                    f"group must name a column of names or whole numbers, got {name!r} of type "
                    f"{types[name]}: cast it to string"
                )
        elif types.get(name) not in _TYPES[argument]:
            raise ValueError(
                f"{argument} must name a column of type {' or '.join(sorted(_TYPES[argument]))}, "
                f"got {name!r} of type {types.get(name)}: rename or cast it"
            )


def _reason(promise: Promise, columns: Mapping[str, str], now: Column | None) -> Column:
    """Return the reason to leave a row out, or null."""
    time, sensor = F.col(columns["time"]), F.col(columns["sensor"])
    number = F.col(columns["value"]).cast("double")
    ahead = F.make_dt_interval(secs=F.lit(microseconds("ahead", promise.ahead) / 1e6))
    latest = (F.current_timestamp() if now is None else now) + ahead
    tests = {
        "no_time": time.isNull(),
        "no_group": F.col(columns["group"]).isNull() if "group" in columns else F.lit(False),
        "no_sensor": sensor.isNull(),
        "no_value": ~F.coalesce(F.abs(number) < LARGEST, F.lit(False)),
        "unknown_sensor": ~sensor.isin(promise.sensors),
        "too_late": time > latest,
        "too_early": time < F.lit(promise.earliest.to_pydatetime()),
    }
    return F.coalesce(*[F.when(tests[reason], F.lit(reason)) for reason in REASONS])
