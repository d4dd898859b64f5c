"""The exponential histogram as a streaming operator: one histogram per key as Spark's state (D5).

Spark commits the state of each key with the micro-batch. After any failure the micro-batch runs
again from the state before it, so every event counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from aftlib.exponential_histogram.histogram import ExponentialHistogram

_COLUMNS = ("key", "at", "event")


@dataclass(frozen=True)
class HistogramOperator:
    """Parameters of the histogram of each key, as `ExponentialHistogram` takes them.

    Spark calls it with a micro-batch's events of one key. It sorts them by `at`, so the answers do
    not depend on how the events were partitioned.
    """

    window: int
    epsilon: float
    timed: bool = False
    values: str = "bits"

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Add the events of one key, answer after each, and give the state to Spark."""
        rows = pd.concat(list(frames)).sort_values("at", kind="stable")
        last, histogram = self.restore(state)
        at, events = rows["at"].to_numpy(), rows["event"].to_numpy()
        steps = np.diff(at, prepend=at[0] if last is None else last)
        behind = steps < 0 if self.timed else steps <= 0
        behind[0] &= last is not None
        if behind.any():
            place = int(behind.argmax())
            before = at[place - 1] if place else last
            raise ValueError(
                f"at of key {key[0]} must rise, got {at[place]} after {before}: nothing of this "
                "micro-batch is committed; number each event once, and keep late ones out"
            )
        estimates = histogram.estimates(events, at if self.timed else None)
        state.update((int(at[-1]), histogram.to_bytes()))
        yield pd.DataFrame({"key": key[0], "at": at, "estimate": estimates})

    def restore(self, state: GroupState) -> tuple[int | None, ExponentialHistogram]:
        """Return time and histogram of the last micro-batch, or a new histogram."""
        if not state.exists:
            return None, ExponentialHistogram(self.window, self.epsilon, self.timed, self.values)
        last, data = state.get
        return last, ExponentialHistogram.from_bytes(data)


def count_events(events: DataFrame, operator: HistogramOperator) -> DataFrame:
    """Return the answers of one histogram per key over a stream of events.

    Parameters
    ----------
    events
        A streaming frame with the columns key (of any type), at (the event's number within its key
        or, with `timed`, its timestamp; a whole number) and event (boolean or a whole number).
    operator
        The histograms' parameters.

    Returns
    -------
    DataFrame
        Columns key, at, estimate: one row per event, in append mode.

    Raises
    ------
    ValueError
        If a column is missing; in the stream, if `at` of a key does not rise.
    """
    if missing := [name for name in _COLUMNS if name not in events.columns]:
        raise ValueError(
            f"events must have the columns {', '.join(_COLUMNS)}, got {events.columns}: "
            f"add {missing[0]}"
        )
    key = events.schema["key"].dataType.simpleString()
    return (
        events.selectExpr("key", "cast(at AS bigint)", "cast(event AS bigint)")
        .groupBy("key")
        .applyInPandasWithState(
            operator,
            f"key {key}, at bigint, estimate double",
            "at bigint, histogram binary",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )
