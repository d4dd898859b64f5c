"""The exponential histogram as a stateful streaming operator, one histogram per key (D5).

In one call `applyInPandasWithState` passes a micro-batch's events of one group of keys. The state
of the group is one row. Spark commits that row with the micro-batch, so after any failure the
micro-batch runs again from the state before it. A call costs Spark most of a millisecond, so keys
are grouped by their hash. (`transformWithStateInPandas` would add the dependency protobuf, for
timers and typed states that are not needed here.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.streaming.state import GroupState

from aftlib.core.checks import require_choice, require_number
from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.sketch import MAX_UNITS

POLICIES = ("refuse", "drop", "keep")
_NO_ROWS = pd.DataFrame({"key": [], "at": [], "event": [], "reason": []}).astype(
    {"key": object, "at": np.int64, "event": np.int64, "reason": object}
)
#: Most milliseconds since 1970 that Spark can hold as a timestamp.
LAST_TIME = 2**53
_STATE = pa.schema(
    {"key": pa.string(), "at": pa.int64(), "histogram": pa.binary(), "waiting": pa.binary()}
    | {"due": pa.int64()}
)


class KeyState(NamedTuple):
    """The state of one key."""

    at: int | None = None  # number or time of its last event
    histogram: bytes = b""
    waiting: bytes = b""  # rows (at, event) of 64-bit integers
    due: int | None = None  # time of its next answer without a new event


def packed(states: dict[str, KeyState]) -> bytes:
    """Pack the states of a group's keys into bytes."""
    columns = zip(*((key, *each) for key, each in states.items()), strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _STATE.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_STATE).serialize().to_pybytes()


def unpacked(data: bytes) -> dict[str, KeyState]:
    """Restore the states that `packed` wrote."""
    keys, *columns = pa.ipc.read_record_batch(pa.py_buffer(data), _STATE).to_pydict().values()
    return dict(zip(keys, map(KeyState, *columns), strict=True))


@dataclass(frozen=True)
class HistogramQuery:
    """The parameters of a histogram per key of a stream, and how often it answers.

    Spark calls it with a micro-batch's events of one group of keys. It sorts them by `at`, so the
    answers do not depend on how the events were partitioned.

    `bad` is the policy for bad rows: without time or event, with an invalid event, or too late.
    "refuse" ends the stream, with nothing of its micro-batch committed. "drop" leaves the row out
    and counts it. "keep" stores it among the `rejects`. A stream may be continued with another
    policy.

    With a lateness, times are milliseconds since 1970, and an event waits until the watermark has
    passed it. So the last `lateness` ms of a finite input are never answered, unless it ends with a
    later event (see `pipeline.run`). A window that has emptied answers 0, and its key's state is
    removed. Without a lateness nothing waits and the state stays. Then an event must not come in a
    later micro-batch than the next event of its key.
    """

    window: int  # this and the next three as `ExponentialHistogram`
    epsilon: float
    timed: bool = False
    values: str = "bits"
    each: bool = True  # one answer per event; else one per key and micro-batch
    bad: str = "refuse"  # one of `POLICIES`
    lateness: int | None = None  # milliseconds behind the newest event of all keys, with `timed`
    # number of groups of keys; a micro-batch reads and writes the whole state of each group with
    # events, which takes most of a millisecond; about a thousand keys per group are fine
    groups: int = 256

    @property
    def identity(self) -> dict[str, Any]:
        """Values that must be the same when a stream is continued."""
        names = (each.name for each in fields(HistogramQuery) if each.name != "bad")
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Raise ValueError if a parameter is outside its range."""
        self.histogram()
        require_choice("bad", self.bad, POLICIES)
        require_number("groups", self.groups, least=1, most=2**31 - 1, whole=True)
        if self.lateness is not None:
            require_number("lateness", self.lateness, least=0, most=LAST_TIME, whole=True)
            if not self.timed:
                raise ValueError(
                    f"lateness must be left out with timed=False, got {self.lateness}: "
                    "the windows count events, which come one after the other"
                )

    def histogram(self) -> ExponentialHistogram:
        """A new histogram."""
        return ExponentialHistogram(self.window, self.epsilon, self.timed, self.values)

    def __call__(
        self, group: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Restore the keys of a group, add their events, answer, and give the states to Spark."""
        states = self.restore(group, state)
        limit = None if self.lateness is None else state.getCurrentWatermarkMs()
        keys, rows, rejects = self.split_rows(list(frames), states, limit)
        if rejects is not None:
            yield rejects

        edges = [0, *np.flatnonzero(keys[1:] != keys[:-1]) + 1, len(keys)] if len(keys) else []
        parts = {keys[i]: rows[i:j] for i, j in zip(edges, edges[1:], strict=False)}
        if limit is not None:
            due = [key for key, each in states.items() if each.due is not None and each.due < limit]
            parts = dict.fromkeys(due, rows[:0]) | parts
        times, estimates = [], []
        for key, part in parts.items():
            at, estimate, left = self.step(states.pop(key, KeyState()), part, limit)
            times.append(at)
            estimates.append(estimate)
            if left is not None:
                states[key] = left
        if parts:
            key = np.repeat(np.array([*parts], object), [at.size for at in times])
            yield _output(key=key, at=np.concatenate(times), estimate=np.concatenate(estimates))
        self.save(group, state, states)

    def split_rows(
        self, frames: list[pd.DataFrame], states: dict[str, KeyState], limit: int | None
    ) -> tuple[NDArray[np.object_], NDArray[np.int64], pd.DataFrame | None]:
        """Keys and good rows (at, event) by key and time, and a report of the bad rows.

        Raises
        ------
        ValueError
            If a row is bad and the policy is to refuse it.
        """
        table = pd.concat(frames) if frames else _NO_ROWS
        codes, texts = pd.factorize(table["key"], sort=True)
        at, event = (table[name].to_numpy(np.int64) for name in ("at", "event"))
        order = np.lexsort((event, at, codes))
        codes, at, event = codes[order], at[order], event[order]
        keys, reason = np.asarray(texts, object)[codes], table["reason"].to_numpy(object)[order]

        good = np.flatnonzero(pd.isna(reason))
        when, whose = at[good], codes[good]
        if limit is not None:
            late, why = when < limit, "at is behind the watermark"
        else:
            ends = [states[text].at if text in states else None for text in texts]
            last = np.array([-MAX_UNITS if end is None else end for end in ends], np.int64)[whose]
            late, why = when < last, "at goes back"
            if not self.timed:
                again = (np.diff(whose, prepend=-1) == 0) & (np.diff(when, prepend=0) == 0)
                late, why = (when <= last) | again, "at does not rise"
        reason[good[late]] = why
        good, bad = good[~late], np.flatnonzero(pd.notna(reason))
        rows = np.column_stack([at, event])
        if not len(bad):
            return keys[good], rows[good], None
        rows_bad = {"key": keys[bad], "at": at[bad], "event": event[bad], "reason": reason[bad]}
        return keys[good], rows[good], self.reject(pd.DataFrame(rows_bad), states)

    def reject(self, bad: pd.DataFrame, states: dict[str, KeyState]) -> pd.DataFrame:
        """Report of bad rows by the policy; ValueError if the policy is to refuse."""
        if self.bad == "refuse":
            row = bad.iloc[0]
            before = states.get(row["key"], KeyState()).at
            raise ValueError(
                f"key {json.loads(row['key'])['key']!r} has a row whose {row['reason']}, got "
                f"at={row['at']}, event={row['event']} after at={before}: nothing of its "
                "micro-batch is committed; "
                'mend the source and number its events, or go on with bad="drop" or bad="keep"'
            )
        if self.bad == "drop":
            counts = bad.groupby(["key", "reason"], sort=False).size().rename("number")
            return _output(**counts.reset_index())
        columns = {name: bad[name].astype(object) for name in ("at", "event")}
        for name, column in columns.items():
            column[bad["reason"] == f"{name} is null"] = None
        return _output(key=bad["key"], **columns, reason=bad["reason"], number=1)

    def step(
        self, before: KeyState, rows: NDArray[np.int64], limit: int | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], KeyState | None]:
        """Add a key's good rows; return times and estimates of its answers, and its next state."""
        last, waiting = before.at, rows[:0]
        if before.histogram:
            histogram = ExponentialHistogram.from_bytes(before.histogram)
            own = self.window, self.epsilon, self.timed, self.values
            if own != (histogram.window, histogram.epsilon, histogram.timed, histogram.values):
                raise ValueError(
                    f"query must be the one that the stream began with, {histogram!r}, got "
                    f"{self!r}: go on with that one, or start again in another directory"
                )
        else:
            histogram = self.histogram()
        if limit is not None:  # only rows before the watermark have all their predecessors
            rows = np.concatenate((np.frombuffer(before.waiting, np.int64).reshape(-1, 2), rows))
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
            final = int(np.searchsorted(rows[:, 0], limit))
            rows, waiting = rows[:final], rows[final:]

        at, units = (np.ascontiguousarray(column) for column in rows.T)
        times, estimate = at if self.timed else None, np.empty(0)
        last = int(at[-1]) if at.size else last
        if self.each:
            estimate = histogram.estimates(units, times)
        elif at.size:
            histogram.update(units, times)
            at, estimate = at[-1:], np.array([histogram.estimate()])
        if limit is None:
            return at, estimate, KeyState(last, histogram.to_bytes())

        due = waiting[:1, 0].tolist()
        if histogram.total:
            empties = histogram.buckets[0][0] + self.window
            if empties < limit:
                at, estimate = np.append(at, empties), np.append(estimate, 0.0)
                histogram = self.histogram()
            else:
                due.append(empties)
        left = KeyState(last, histogram.to_bytes(), waiting.tobytes(), min(due)) if due else None
        return at, estimate, left

    def restore(self, group: tuple[Any, ...], state: GroupState) -> dict[str, KeyState]:
        """The state of each key of a group."""
        return unpacked(*state.get) if state.exists else {}

    def save(self, group: tuple[Any, ...], state: GroupState, states: dict[str, KeyState]) -> None:
        """Give the state to Spark, which commits it with the micro-batch."""
        if states:
            state.update((packed(states),))
        elif state.exists:
            state.remove()
        due = [each.due for each in states.values() if each.due is not None]
        if due:
            state.setTimeoutTimestamp(max(min(due), state.getCurrentWatermarkMs() + 1))


def _output(**columns: Any) -> pd.DataFrame:
    """Rows of the stream's output."""
    names = ("key", "at", "estimate", "event", "reason", "number")
    return pd.DataFrame(dict.fromkeys(names) | columns)[[*names]]
