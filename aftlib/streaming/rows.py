"""The rows of windows: each sensor's state, value and half-width, which need no memory.

They follow from what came of the windows and from an estimator's answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from aftlib.core.windows import result_per_mean
from aftlib.guard.estimator import LARGEST, Recovered
from aftlib.streaming.promise import Promise

STATES = ("exact", "estimated", "lost")
"""States of a row."""
SHADOW_AUDIT = ("audited", "wrong", "allowed")
"""Counts of guaranteed predictions of windows that came, as if they had been lost: those with a
known outcome, the wrong ones, and the bound on these."""
TALLY = (*STATES, "empty", "certified", *SHADOW_AUDIT)
"""Counts over all rows of a frame. "certified" counts the windows after which a loss of the sensor
could have been estimated, and "estimated" those that were."""
SENSOR_TALLY = ("windows", "estimated", *SHADOW_AUDIT[:2])
"""Counts over the rows of one sensor."""
MOST_SENSORS = 200
"""Sensors up to which each has a tally of its own; those of more would take too long."""


class Arranged(NamedTuple):
    """Windows of many groups by sensor, in the order of time in each group."""

    key: np.ndarray  # (rounds,) the group
    start: np.ndarray  # (rounds,) in µs
    value: np.ndarray  # (rounds, n) results that are used (`used_results`); NaN where missing
    samples: np.ndarray  # (rounds, n), NaN where missing, as the variance
    variance: np.ndarray


@dataclass(frozen=True)
class Rounds:
    """Windows as they came, and an estimator's answers."""

    windows: Arranged
    recovered: Recovered
    recoverable: np.ndarray  # (rounds, n) the longest loss, in windows, that may begin then


def arrange(windows: pd.DataFrame, promise: Promise) -> Arranged:
    """Return a frame with a row per window and sensor as arrays; other sensors are left out.

    Columns: key, start (µs), sensor, value, samples, variance. Groups come in the order in which
    they occur.
    """
    sensors = pd.Index(promise.sensors, dtype=object)
    column = sensors.get_indexer(pd.Index(windows["sensor"]))
    windows = windows[column >= 0]
    group, keys = pd.factorize(windows["key"].astype(object))
    starts, time = np.unique(windows["start"].to_numpy(), return_inverse=True)
    rounds, row = np.unique(group * starts.size + time, return_inverse=True)
    wide = np.full((3, rounds.size, sensors.size), np.nan)
    numbers = windows[["value", "samples", "variance"]].to_numpy(float)
    wide[:, row, column[column >= 0]] = numbers.T
    wide[0] = used_results(promise, wide[0], wide[1])
    return Arranged(keys[rounds // starts.size], starts[rounds % starts.size], *wide)


def rows_of(promise: Promise, rounds: Rounds) -> dict[str, np.ndarray]:
    """Return one row per round and sensor, as columns."""
    _, start, result, samples, variance = rounds.windows
    samples = np.nan_to_num(samples).astype(np.int64)
    state, half_width = states_of(promise, result, samples, variance, promise.rules.epsilon)
    estimated = np.isnan(result) & rounds.recovered.certified
    state[estimated] = "estimated"
    half_width[estimated] = rounds.recovered.half_width[estimated]
    value = np.where(estimated, rounds.recovered.estimate, result)
    names = np.array(promise.sensors, object)
    return {
        "start": np.repeat(start, names.size),
        "sensor": np.tile(names, start.size),
        "state": state.ravel(),
        "value": value.ravel(),
        "half_width": half_width.ravel(),
        "samples": samples.ravel(),
        "recoverable": rounds.recoverable.astype(np.int32).ravel(),
    }


def frame_of_rounds(
    promise: Promise, rounds: Rounds, key: np.ndarray, audit: np.ndarray
) -> pd.DataFrame:
    """Return the rows of rounds with each round's key.

    The first row has the tally of all, so that Spark need not count them, which takes longer.
    `audit`, (3, n), is what they add to the counts of `SHADOW_AUDIT`.
    """
    columns = rows_of(promise, rounds)
    tally = np.full(columns["start"].size, None, object)
    tally[0] = tally_of(columns, audit)
    keys = np.repeat(key, len(promise.sensors))
    return frame_of(columns | {"key": keys, "tally": tally})


def tally_of(columns: Mapping[str, np.ndarray], audit: np.ndarray) -> np.ndarray:
    """Return the counts of `TALLY`, then those of `SENSOR_TALLY` for each of few sensors.

    `columns` are those of `rows_of`, in which the sensors take turns.
    """
    sensors = audit.shape[1]
    state = columns["state"].reshape(-1, sensors)
    exact, estimated, lost = ((state == name).sum(0) for name in STATES)
    empty = (columns["samples"].reshape(state.shape) == 0).sum(0)
    certified = (columns["recoverable"].reshape(state.shape) > 0).sum(0)
    windows = np.full(sensors, len(state))
    totals = np.sum([exact, estimated, lost, empty, certified, *audit], axis=1)
    by_sensor = np.transpose([windows, estimated, *audit[:2]])
    return np.append(totals, by_sensor if sensors <= MOST_SENSORS else [])


def states_of(
    promise: Promise,
    result: np.ndarray,
    samples: np.ndarray,
    variance: np.ndarray,
    limits: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return state and half-width of windows as they came; a missing one (NaN) is lost.

    `limits` has the ε of each window.
    """
    missing = np.isnan(result)
    partial = ~missing & (samples < promise.samples)
    half_width = np.full(result.shape, np.nan)
    half_width[partial] = sampling_half_width(promise, samples[partial], variance[partial])
    state = np.full(result.shape, "exact", object)
    state[missing | partial] = "lost"
    state[half_width <= limits] = "estimated"
    return state, half_width


def used_results(promise: Promise, value: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Return windows' results; NaN where too few samples came or a result is too large.

    Results of partial windows are extrapolated to all samples, which is possible for a mean or a
    sum; for other queries the promise has only whole windows.
    """
    number = np.nan_to_num(samples)
    enough = (number >= promise.share * promise.samples) & (np.abs(value) < LARGEST)
    present = np.clip(number, 1, promise.samples)
    of_all = result_per_mean(promise.query, promise.samples)
    whole = value * (of_all / result_per_mean(promise.query, present))
    return np.where(enough, whole, np.nan)


def sampling_half_width(promise: Promise, samples: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return t·s·√(1/m − 1/w) for m samples drawn from the w of a window; NaN for m = 1.

    t is Student's quantile with m − 1 degrees of freedom, because s comes from m samples.
    """
    quantile = stdtrit(np.maximum(samples - 1, 1), 1 - promise.delta / 2)
    left = np.maximum(1 / np.maximum(samples, 1) - 1 / promise.samples, 0)
    half_width = np.where(samples > 1, quantile * np.sqrt(variance * left), np.nan)
    return half_width * result_per_mean(promise.query, promise.samples)


def frame_of(columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return columns as a DataFrame; texts stay objects, because Spark refuses chunked texts."""
    series = {name: pd.Series(column, dtype=column.dtype) for name, column in columns.items()}
    return pd.DataFrame(series, copy=False)
