"""The exponential histogram as a stateful streaming operator: one a key (D5).

`applyInPandasWithState` hands a key's events of a micro-batch over in one call, and what it has
to remember is one row; Spark commits that with the micro-batch, so that after any death the
micro-batch runs again from the state before it. (`transformWithStateInPandas` would add the
dependency protobuf, for timers and typed states that are not needed here.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from aftlib.core.checks import require_number
from aftlib.core.paths import atomic_file
from aftlib.exponential_histogram.events import MAX_UNITS
from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.spark.drain import drain

POLICIES = ("refuse", "drop", "keep")
STATE_SCHEMA = "at long, histogram binary, waiting binary"
_SETTINGS = {
    # state outside the JVM's memory, which a million keys would fill
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
    "state.RocksDBStateStoreProvider",
}
_PARTITIONS = "spark.sql.shuffle.partitions"
_WHOLE_TYPES = {"tinyint", "smallint", "int", "bigint"}
_NO_ROWS = pd.DataFrame({"at": [], "event": [], "reason": []}).astype(
    {"at": np.int64, "event": np.int64, "reason": object}
)
#: Milliseconds since 1970 that Spark can hold as a timestamp.
_LAST_TIME = 2**53


class Kept(NamedTuple):
    """What a key's state holds: the last `at`, its histogram, and rows (at, event) that wait."""

    at: int | None
    histogram: ExponentialHistogram
    waiting: NDArray[np.int64]


@dataclass(frozen=True)
class HistogramQuery:
    """The histogram that every key of a stream has, and how often it answers.

    Called by Spark with one key's events of a micro-batch, which it sorts by `at`: the answers do
    not depend on how the events were partitioned.

    Parameters
    ----------
    window, epsilon, timed, values
        As `ExponentialHistogram`.
    each : bool
        One answer an event, or one a key and micro-batch.
    bad : {"refuse", "drop", "keep"}
        What becomes of a row without time or event, of an event that is none, and of one that comes
        too late: it ends the stream, with nothing of its micro-batch committed; it is left out
        and counted; or it is kept among the `rejects`. A stream may go on with another policy.
    lateness : int, optional
        With `timed`, how far an event may be behind the newest event of all keys, times being
        milliseconds since 1970. Events wait until none can come before them any more, and are
        answered then. A window that has emptied answers 0, and its state goes away. By default
        nothing waits, no event may come in a later micro-batch than its successor of the same key,
        and the state stays.
    """

    window: int
    epsilon: float
    timed: bool = False
    values: str = "bits"
    each: bool = True
    bad: str = "refuse"
    lateness: int | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What a stream must be continued with."""
        fixed = ("window", "epsilon", "timed", "values", "each", "lateness")
        return {name: getattr(self, name) for name in fixed}

    def histogram(self) -> ExponentialHistogram:
        """A new histogram; raises ValueError if a parameter is outside its range."""
        if self.bad not in POLICIES:
            raise ValueError(f"bad must be one of {', '.join(POLICIES)}, got {self.bad!r}")
        if self.lateness is not None:
            require_number("lateness", self.lateness, least=0, most=_LAST_TIME, whole=True)
            if not self.timed:
                raise ValueError(
                    f"lateness must be left out with timed=False, got {self.lateness}: "
                    "the windows count events, which come one after the other"
                )
        return ExponentialHistogram(self.window, self.epsilon, self.timed, self.values)

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Restore one key's state, take in its events, answer, and hand the state to Spark."""
        last, histogram, waiting = self.restore(key, state)
        rows, rejects = self.sort_out(key, list(frames), last, state)
        if len(rejects):
            yield rejects
        limit = None if self.lateness is None else state.getCurrentWatermarkMs()
        if limit is not None:  # only what is before the watermark has no more predecessors to come
            rows = np.concatenate((waiting, rows))
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
            final = int(np.searchsorted(rows[:, 0], limit))
            rows, waiting = rows[:final], rows[final:]

        if len(rows):
            at, units = (np.ascontiguousarray(column) for column in rows.T)
            last, times = int(at[-1]), at if self.timed else None
            if self.each:
                yield _told(key, at=at, estimate=histogram.estimates(units, times))
            else:
                histogram.update(units, times)
                yield _told(key, at=at[-1:], estimate=histogram.estimate())

        if limit is None:
            if last is not None:
                self.save(key, state, Kept(last, histogram, waiting))
            return
        due = waiting[:1, 0].tolist()
        if histogram.total:
            empties = histogram.buckets[0][0] + self.window
            if empties < limit:
                yield _told(key, at=[empties], estimate=0.0)
                histogram = self.histogram()
            else:
                due.append(empties)
        if due:
            self.save(key, state, Kept(last, histogram, waiting))
            state.setTimeoutTimestamp(max(min(due), limit + 1))
        else:
            state.remove()

    def sort_out(
        self, key: tuple[Any, ...], frames: list[pd.DataFrame], last: int | None, state: GroupState
    ) -> tuple[NDArray[np.int64], pd.DataFrame]:
        """Good rows (at, event) in order, shape (n, 2), and what to tell of the others.

        Raises
        ------
        ValueError
            If a row is bad and the policy is to refuse it.
        """
        table = pd.concat([*frames, _NO_ROWS]).sort_values(["at", "event"], ignore_index=True)
        good = np.flatnonzero(table["reason"].isna())
        at = table["at"].to_numpy(np.int64)[good]
        if self.lateness is not None:
            late, reason = at < state.getCurrentWatermarkMs(), "at is behind the watermark"
        elif self.timed:
            late, reason = at < (at[:1] if last is None else last), "at goes back"
        else:
            before = np.concatenate((at[:1] - 1 if last is None else [last], at))[: at.size]
            late = at <= np.maximum.accumulate(before)
            reason = "at does not rise"
        table.loc[good[late], "reason"] = reason

        bad = table[table["reason"].notna()]
        if len(bad) and self.bad == "refuse":
            row = bad.iloc[0]
            raise ValueError(
                f"key {key[0]!r} has a row whose {row['reason']}, got at={row['at']}, "
                f"event={row['event']} after at={last}: nothing of its micro-batch is committed; "
                'mend the source and number its events, or go on with bad="drop" or bad="keep"'
            )
        rows = table.loc[table["reason"].isna(), ["at", "event"]].to_numpy(np.int64)
        if self.bad == "drop":
            counts = bad["reason"].value_counts(sort=False)
            return rows, _told(key, reason=counts.index, number=counts.to_numpy())
        told = {name: bad[name].astype(object) for name in ("at", "event")}
        for name, column in told.items():
            column[bad["reason"] == f"{name} is null"] = None
        return rows, _told(key, **told, reason=bad["reason"], number=1)

    def restore(self, key: tuple[Any, ...], state: GroupState) -> Kept:
        """What the state holds, or a new histogram."""
        asked = self.histogram()
        if not state.exists:
            return Kept(None, asked, np.empty((0, 2), np.int64))
        at, data, waiting = state.get
        found = ExponentialHistogram.from_bytes(data)
        if repr(found) != repr(asked):
            raise ValueError(
                f"query must be the one that the stream began with, {found!r}, got {asked!r}: "
                "go on with that one, or start anew in another directory"
            )
        return Kept(at, found, np.frombuffer(waiting, np.int64).reshape(-1, 2))

    def save(self, key: tuple[Any, ...], state: GroupState, kept: Kept) -> None:
        """Give the state to Spark, which commits it with the micro-batch."""
        state.update((kept.at, kept.histogram.to_bytes(), kept.waiting.tobytes()))


def _told(key: tuple[Any, ...], **columns: Any) -> pd.DataFrame:
    """Rows of the stream's output."""
    names = ("key", "at", "estimate", "event", "reason", "number")
    return pd.DataFrame(dict.fromkeys(names) | {"key": key[0]} | columns)[[*names]]


def estimates(events: DataFrame, query: HistogramQuery) -> DataFrame:
    """Answers of one histogram a key over a stream of events, and its rejects.

    Parameters
    ----------
    events : DataFrame
        Streaming; key: of any type; at: a whole number, the event's number within its key, or its
        timestamp with `timed`; event: boolean or a whole number.
    query : HistogramQuery

    Returns
    -------
    DataFrame
        Streaming; key, at, estimate; for what was rejected at, event (with the policy "keep"),
        reason, number of rows.

    Raises
    ------
    ValueError
        If a parameter of the query is outside its range, or a column is of another type; in the
        stream, if a row is bad and the policy is to refuse it.
    """
    query.histogram()
    types = {field.name: field.dataType.simpleString() for field in events.schema.fields}
    for name, wanted in (("at", _WHOLE_TYPES), ("event", _WHOLE_TYPES | {"boolean"})):
        if types.get(name) not in wanted:
            raise ValueError(
                f"events must have a column {name} of type {', '.join(sorted(wanted))}, got "
                f"{types.get(name)}: cast it"
            )
    warm()

    at, event = F.col("at").cast("long"), F.col("event").cast("long")
    first, after = (-MAX_UNITS + 1, MAX_UNITS) if query.lateness is None else (0, _LAST_TIME)
    most, kind = (1, "no bit") if query.values == "bits" else (MAX_UNITS - 1, "too large")
    reason = (
        F.when(at.isNull(), "at is null")
        .when(event.isNull(), "event is null")
        .when((at < first) | (at >= after), "at is out of range")
        .when(event < 0, "event is negative")
        .when(event > most, f"event is {kind}")
    )
    at, event = (F.coalesce(column, F.lit(0)) for column in (at, event))
    columns = {"key": F.col("key"), "at": at, "event": event, "reason": reason}
    rows = events.select(*(column.alias(name) for name, column in columns.items()))
    timeout = GroupStateTimeout.NoTimeout
    if query.lateness is not None:
        # Spark drops rows behind the watermark without a word. So the times that move it are rows
        # of their own, which are dropped here, and the events go without a time.
        time = F.when(F.col("reason").isNull(), F.timestamp_millis("at"))
        both = F.array(time, F.lit(None).cast("timestamp"))
        rows = rows.withColumn("time", F.explode(both))
        rows = rows.withWatermark("time", f"{query.lateness} milliseconds")
        rows, timeout = rows.filter(F.col("time").isNull()), GroupStateTimeout.EventTimeTimeout
    return rows.groupBy("key").applyInPandasWithState(
        query,
        f"key {types['key']}, at long, estimate double, event long, reason string, number long",
        STATE_SCHEMA,
        "append",
        timeout,
    )


def run(
    spark: SparkSession,
    events: DataFrame,
    query: HistogramQuery,
    directory: Path,
    partitions: int | None = None,
) -> DataFrame:
    """Stream all events that are there into estimates; go on where an earlier process died.

    Parameters
    ----------
    spark : SparkSession
    events, query
        As for `estimates`.
    directory : path
        Place of the query, of Spark's checkpoint (offsets and state) and of the estimates, as
        Parquet files.
    partitions : int, optional
        Parts of the state, fixed when the stream first starts; by default the session's number of
        shuffle partitions. More than there are keys only cost time.

    Returns
    -------
    DataFrame
        All estimates so far: key, at, estimate.

    Raises
    ------
    ValueError
        As `estimates`, or if the directory holds the stream of another query.
    """
    place = Path(directory).absolute()
    answers = estimates(events, query)
    note = place / "query.json"
    if note.exists():
        begun = json.loads(note.read_text())
        if begun != query.identity:
            differ = [name for name in begun if begun[name] != query.identity[name]]
            raise ValueError(
                f"query must be the one that the stream in {place} began with, "
                + "; ".join(f"{n} = {begun[n]}, got {query.identity[n]}" for n in differ)
                + ": go on with that one, or start anew in another directory"
            )
    elif (place / "checkpoint").exists():
        raise ValueError(
            f"directory must hold the query of its stream in {note}, which is missing: "
            "start anew in another directory"
        )
    place.mkdir(parents=True, exist_ok=True)
    with atomic_file(note) as file:
        file.write_text(json.dumps(query.identity))

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
    # the schema is named, for a stream without events leaves no file to take it from
    table = spark.read.schema(answers.schema).parquet(str(place / "estimates"))
    return table.filter("reason is null").select("key", "at", "estimate")


def rejects(spark: SparkSession, directory: Path) -> DataFrame:
    """What a stream that `run` wrote has rejected: key, at, event, reason, number of rows."""
    table = spark.read.parquet(str(Path(directory).absolute() / "estimates"))
    return table.filter("reason is not null").select("key", "at", "event", "reason", "number")


def warm() -> None:
    """Compile the kernels here, so that workers on this machine find them in numba's cache."""
    from aftlib.exponential_histogram import kernels  # noqa: F401
