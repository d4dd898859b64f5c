"""The exponential histogram as a streaming operator: one histogram per key as Spark's state (D5).

Spark commits the state of each key with the micro-batch. After any failure the micro-batch runs
again from the state before it, so every event counts once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from aftlib.documents.exponential_histogram.histogram import ExponentialHistogram


@dataclass(frozen=True)
class HistogramOperator:
    """Parameters of the histogram of each key, as `ExponentialHistogram` takes them.

    Spark calls it with a micro-batch's events of one key. It sorts them by `at`, so the answers do
    not depend on how the events were partitioned.
    """

    window: int
    epsilon: float

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Add the events of one key, answer after each, and give the state to Spark."""
        rows = pd.concat(list(frames)).sort_values("at", kind="stable")
        histogram = ExponentialHistogram(self.window, self.epsilon, timed=True)
        if state.exists:
            histogram = ExponentialHistogram.from_bytes(*state.get)
        try:
            estimates = histogram.estimates(rows["event"].to_numpy(), rows["at"].to_numpy())
        except ValueError as error:
            text = f"key {key[0]}: {error}; nothing of this micro-batch is committed"
            raise ValueError(text) from error
        state.update((histogram.to_bytes(),))
        yield pd.DataFrame({"key": key[0], "at": rows["at"], "estimate": estimates})


def count_events(events: DataFrame, operator: HistogramOperator) -> DataFrame:
    """Return the answers of one histogram per key over a stream of events.

    Parameters
    ----------
    events
        A streaming frame with the columns key (of any type), at (the event's timestamp or, to count
        the last events, its number within its key; a whole number) and event (boolean, 0 or 1).
    operator
        The histograms' parameters; their windows are windows of `at`.

    Returns
    -------
    DataFrame
        Columns key, at, estimate: one row per event, in append mode.

    Raises
    ------
    ValueError
        In the stream, if `at` of a key goes back.
    """
    key = events.schema["key"].dataType.simpleString()
    return (
        events.selectExpr("key", "cast(at AS bigint)", "cast(event AS bigint)")
        .groupBy("key")
        .applyInPandasWithState(
            operator,
            f"key {key}, at bigint, estimate double",
            "histogram binary",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


def run_operator(
    spark: SparkSession, folder: Path, events: pd.DataFrame, operator: HistogramOperator, files: int
) -> pd.DataFrame:
    """Run the operator over events (key, at, event) as a stream of `files` micro-batches.

    Return its answers: key, at, estimate, in order of key and at. The folder keeps input, Spark's
    checkpoint and answers.
    """
    source = folder / "events"
    source.mkdir(parents=True)
    for number, (_, part) in enumerate(events.groupby(pd.cut(events["at"], files)), 1):
        path = source / f"{number:04}.parquet"
        part.to_parquet(path, index=False)
        os.utime(path, (number, number))  # Spark reads files in order of these times
    stream = (
        spark.readStream.schema("key bigint, at bigint, event boolean")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
    )
    query = (
        count_events(stream, operator)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "answers"))
    )
    query.awaitTermination()
    answers = spark.read.parquet(str(folder / "answers")).toPandas()
    return answers.sort_values(["key", "at"], ignore_index=True)
