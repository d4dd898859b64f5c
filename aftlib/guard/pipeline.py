"""The guard over any stream of samples, as Spark's own keyed state: one guard per group.

Spark aggregates, and its watermark ends the windows. A stateful processor gives them to the group's
guard, on the executor that has the group, and Spark's checkpoint holds the guard's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from aftlib.core.checks import listed
from aftlib.core.windows import AGGREGATES
from aftlib.guard.guard import VERSION
from aftlib.guard.keyed import Change, GuardCache, KeyedGuard, identity_of
from aftlib.guard.promise import Promise, microseconds
from aftlib.guard.rounds import LARGEST

REASONS = (
    "no_time", "no_group", "no_sensor", "no_value", "unknown_sensor", "too_late", "too_early",
)  # fmt: skip
"""Reasons to leave a row out; if several apply, the first counts."""
AUDIT = ("audited", "wrong", "allowed")
"""Columns for a micro-batch's additions to a group's `KeyedGuard.audit`. The group's first row has
them; the other rows have zeros."""
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHUNK = 2**20
"""Bytes of a part of a snapshot in the state store."""
PROMISE = -1
"""Key of the promise among the snapshot's parts."""
_TYPES = {
    "time": {"timestamp"},  # Spark's watermark takes no other
    "sensor": {"string"},
    "value": {"tinyint", "smallint", "int", "bigint", "float", "double"},
}
_ROWS = (
    "sensor string, state string, value double, half_width double, samples bigint, recoverable int"
)
_guards = GuardCache()


def guarded_windows(
    stream: DataFrame, promise: Promise, columns: Mapping[str, str], now: Column | None
) -> DataFrame:
    """Return the result of `promise.recoverable`; `columns` names the stream's columns by role."""
    rows = classified(stream, promise, columns, now)
    counts = [F.count(F.when(F.col("reason") == reason, 1)).alias(reason) for reason in REASONS]
    kept = rows.observe("rejected", *counts).where(F.col("reason").isNull())
    total = getattr(F, AGGREGATES[promise.query].spark)
    late, width, step = (
        f"{length} microseconds"
        for length in (microseconds("watermark", promise.watermark), promise.width, promise.step)
    )
    variance = F.var_samp("value") if promise.samples > 1 else F.lit(None).cast("double")
    windows = (
        kept.withWatermark("time", late)
        .groupBy(F.window("time", width, step).alias("window"), "key", "sensor")
        .agg(
            total("value").alias("value"),
            F.count("value").alias("samples"),
            variance.alias("variance"),
        )
        .select(
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
    rows = windows.groupBy("key").transformWithStateInPandas(
        GuardProcessor(promise), f"start bigint, key {key}, {_ROWS}{audit}", "append", "none"
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


def classified(
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


class GuardProcessor(StatefulProcessor):
    """The guard of each group, with its state in three variables.

    `head` changes with every micro-batch and has some 100 bytes. `log` gains each window. The
    snapshot, in `chunks`, is written once per `keyed.LEAST_LOG` windows. The chunk `PROMISE` has
    the promise, so that a query with a changed promise can read the state and continue from it.
    """

    def __init__(self, promise: Promise) -> None:
        self.promise, self.identity = promise, identity_of(promise)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variables."""
        self.head = handle.getValueState("head", "identity string, token binary, chunks int")
        self.log = handle.getListState("log", "start bigint, window binary")
        self.chunks = handle.getMapState("snapshot", "place int", "content binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process a group's windows of a micro-batch."""
        windows = pd.concat(list(rows), ignore_index=True)
        # windows of a sensor that left the promise may still have been open
        windows = windows[windows["sensor"].isin(self.promise.sensors)]
        if windows.empty:
            return
        keyed, chunks = self.load()
        before = keyed.audit
        table, change = keyed.process(windows)
        chunks = self.store(change, chunks)
        self.head.update((self.identity, keyed.token, chunks))
        _guards.keep(keyed)
        table.insert(1, "key", key[0])
        table[list(AUDIT)] = 0.0
        table.loc[0, list(AUDIT)] = keyed.audit - before
        yield table

    def load(self) -> tuple[KeyedGuard, int]:
        """Return the group's guard, and the number of its snapshot's chunks."""
        head = self.head.get() if self.head.exists() else None
        if head is None:
            self.chunks.updateValue((PROMISE,), (self.promise.content.encode(),))
            return KeyedGuard(self.promise), 0
        identity, token, chunks = head
        if (version := identity.split()[0]) != str(VERSION):
            raise ValueError(
                f"the checkpoint must be of format {VERSION}, got {version}: go on with the "
                "version of aftlib that wrote it, or choose another checkpointLocation"
            )
        keyed = _guards.take(bytes(token)) or self.restored(bytes(token), chunks)
        if identity == self.identity:
            return keyed, chunks
        keyed = keyed.continue_with(self.promise)
        self.chunks.updateValue((PROMISE,), (self.promise.content.encode(),))
        return keyed, self.store(Change(keyed.snapshot()), chunks)

    def restored(self, token: bytes, chunks: int) -> KeyedGuard:
        """Return the guard of the stored state, with the promise that wrote it."""
        keyed = KeyedGuard(Promise.from_content(self.read_chunk(PROMISE).decode()))
        snapshot = b"".join(self.read_chunk(place) for place in range(chunks))
        entries = [(start, bytes(window)) for start, window in self.log.get()]
        keyed.restore(snapshot or None, entries, token)
        return keyed

    def read_chunk(self, place: int) -> bytes:
        """Return a part of the snapshot; no bytes where it is missing."""
        (content,) = self.chunks.getValue((place,)) or (b"",)
        return bytes(content)

    def store(self, change: Change, chunks: int) -> int:
        """Write the changes; return the number of the snapshot's chunks."""
        if change.snapshot is not None:
            self.log.clear()
            cuts = range(0, len(change.snapshot), CHUNK)
            for place, cut in enumerate(cuts):
                self.chunks.updateValue((place,), (change.snapshot[cut : cut + CHUNK],))
            for place in range(len(cuts), chunks):
                self.chunks.removeKey((place,))
            chunks = len(cuts)
        if change.entries:
            self.log.appendList(change.entries)
        return chunks

    def close(self) -> None:
        """Do nothing, because nothing is open."""
