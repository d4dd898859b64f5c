"""The exponential histogram as a stateful streaming operator: one a key (D5).

`applyInPandasWithState` hands a key's events of a micro-batch over in one call, and what it has
to remember is one byte string; Spark commits that with the micro-batch, so that after any death
the micro-batch runs again from the state before it. (`transformWithStateInPandas` would add the
dependency protobuf, for timers and typed states that one byte string does not need.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.spark.drain import drain

STATE_SCHEMA = "at long, histogram binary"
_PARTITIONS = "spark.sql.shuffle.partitions"


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
    """

    window: int
    epsilon: float
    timed: bool = False
    values: str = "bits"
    each: bool = True

    def histogram(self) -> ExponentialHistogram:
        """A new histogram; raises ValueError if a parameter is outside its range."""
        return ExponentialHistogram(self.window, self.epsilon, self.timed, self.values)

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Restore one key's histogram, take in its events, answer, and hand the state to Spark."""
        rows = pd.concat(list(frames)).sort_values(["at", "event"])
        if rows["at"].isna().any():
            raise ValueError(f"at must not be null, got null for key {key[0]!r}: number the events")
        at, events = rows["at"].to_numpy(), rows["event"].to_numpy()
        last, histogram = self.restore(key, state)
        if not self.timed:
            before = np.concatenate(([at[0] - 1 if last is None else last], at[:-1]))
            if (at <= before).any():
                place = int(np.argmax(at <= before))
                raise ValueError(
                    f"at must rise from event to event of a key, got {at[place]} after "
                    f"{before[place]}: number the events, and deliver none twice or in a later "
                    "micro-batch"
                )

        times = at if self.timed else None
        if self.each:
            answers = histogram.estimates(events, times)
        else:
            histogram.update(events, times)
            at, answers = at[-1:], np.array([histogram.estimate()])
        self.save(key, state, int(at[-1]), histogram)
        yield pd.DataFrame({"key": key[0], "at": at, "estimate": answers})

    def restore(
        self, key: tuple[Any, ...], state: GroupState
    ) -> tuple[int | None, ExponentialHistogram]:
        """The last event's `at` (None before the first), and the histogram."""
        asked = self.histogram()
        if not state.exists:
            return None, asked
        at, data = state.get
        found = ExponentialHistogram.from_bytes(data)
        if repr(found) != repr(asked):
            raise ValueError(
                f"query must be the one that the stream began with, {found!r}, got {asked!r}: "
                "go on with that one, or start anew in another directory"
            )
        return at, found

    def save(
        self, key: tuple[Any, ...], state: GroupState, at: int, histogram: ExponentialHistogram
    ) -> None:
        """Give the state to Spark, which commits it with the micro-batch."""
        state.update((at, histogram.to_bytes()))


def estimates(events: DataFrame, query: HistogramQuery) -> DataFrame:
    """Answers of one histogram a key over a stream of events.

    Parameters
    ----------
    events : DataFrame
        Streaming; key: of any type; at: long, the event's number within its key, or its timestamp
        with `timed`; event: boolean or a whole number.
    query : HistogramQuery

    Returns
    -------
    DataFrame
        Streaming; key, at, estimate.

    Raises
    ------
    ValueError
        If a parameter of the query is outside its range; in the stream, if `at` goes back or an
        event is none.
    """
    query.histogram()
    warm()
    key = events.schema["key"].dataType.simpleString()
    return (
        events.select("key", "at", "event")
        .groupBy("key")
        .applyInPandasWithState(
            query,
            f"key {key}, at long, estimate double",
            STATE_SCHEMA,
            "append",
            GroupStateTimeout.NoTimeout,
        )
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
        Place of Spark's checkpoint (offsets and state) and of the estimates, as Parquet files.
    partitions : int, optional
        Parts of the state, fixed when the stream first starts; by default the session's number of
        shuffle partitions. More than there are keys only cost time.

    Returns
    -------
    DataFrame
        All estimates so far: key, at, estimate.
    """
    place = Path(directory).absolute()
    answers, target = estimates(events, query), str(place / "estimates")
    before = str(spark.conf.get(_PARTITIONS))
    try:
        spark.conf.set(_PARTITIONS, str(partitions or before))
        drain(answers.writeStream.format("parquet").option("path", target), place)
    finally:
        spark.conf.set(_PARTITIONS, before)
    # the schema is named, for a stream without events leaves no file to take it from
    return spark.read.schema(answers.schema).parquet(target)


def warm() -> None:
    """Compile the kernels here, so that workers on this machine find them in numba's cache."""
    from aftlib.exponential_histogram import kernels  # noqa: F401
