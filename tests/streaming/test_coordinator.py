"""The coordinator with a known model: all windows at once have the rows of each one alone."""

import numpy as np
import pandas as pd
import pytest

from aftlib import GaussianModel, Promise
from aftlib.guard.known import KnownModel
from aftlib.streaming.coordinator import coordinate
from aftlib.streaming.rows import SENSOR_TALLY, TALLY

NAMES = ["a", "b", "c", "d"]
WORKERS = [["a"], ["b"], ["c", "d"]]
MODEL = GaussianModel(np.zeros(4), 4 + 0.05 * np.eye(4), NAMES)
TERMS = {"epsilon": 0.55, "delta": 0.05, "window": "5min", "samples": 5, "share": 1, "model": MODEL}
PROMISE = Promise(WORKERS, **TERMS)
STEP = 300_000_000


def rows_one_by_one(windows, promise):
    """The rows of each window by an estimator of its own, which has seen no other window."""
    places = [[NAMES.index(name) for name in worker] for worker in promise.workers]
    tables = []
    for start, window in windows.groupby("start"):
        one = window.set_index("sensor").reindex(NAMES)
        came = one["value"].where(one["samples"] >= promise.share * promise.samples)
        known = KnownModel(promise.model, places, promise.epsilon, promise.delta)
        answer = known.update(came.to_numpy())
        estimated = came.isna() & answer.certified[0]
        columns = {
            "start": start,
            "sensor": NAMES,
            "state": np.where(estimated, "estimated", np.where(came.isna(), "lost", "exact")),
            "value": np.where(estimated, answer.estimate[0], came),
            "half_width": np.where(estimated, answer.half_width[0], np.nan),
            "samples": one["samples"].fillna(0).astype(int).to_numpy(),
            "recoverable": known.recoverable.sum(0),
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def windows_of(group, rounds=40):
    """Windows in which one worker is away, then two, then all; some have too few samples."""
    rng = np.random.default_rng(ord(group))
    values = rng.multivariate_normal(MODEL.mean, MODEL.covariance, rounds)
    values[5:9, 0] = np.nan
    values[12:15, 2:] = np.nan
    values[20:22, :2] = np.nan
    values[30:33] = np.nan
    wide = pd.DataFrame(values, pd.Index(np.arange(rounds) * STEP, name="start"), NAMES)
    rows = wide.reset_index().melt("start", var_name="sensor").dropna()
    samples = np.where(rng.random(len(rows)) < 0.9, 5, 4)
    return rows.assign(samples=samples, variance=0.01, key=group)


def in_order(rows):
    return rows.sort_values(["key", "start", "sensor"], ignore_index=True)


@pytest.fixture(scope="module")
def groups():
    return {group: windows_of(group) for group in "gh"}


@pytest.fixture(scope="module")
def rows(groups):
    """Windows of all groups in any order, in two parts; a sensor has left the promise."""
    mixed = pd.concat(groups.values()).sample(frac=1, random_state=1)
    left = mixed[:5].assign(sensor="e")
    return pd.concat(coordinate([mixed[:100], left, mixed[100:]], PROMISE.content))


def test_rows_are_those_of_each_window_alone(groups, rows):
    expected = [rows_one_by_one(each, PROMISE).assign(key=key) for key, each in groups.items()]
    expected = in_order(pd.concat(expected))
    assert expected["state"].value_counts().min() > 20
    assert {*expected["recoverable"]} == {0, 5}
    pd.testing.assert_frame_equal(
        in_order(rows)[expected.columns], expected, check_dtype=False, check_exact=True
    )
    for _, each in rows.groupby("key"):
        assert each["start"].is_monotonic_increasing


def test_the_first_row_has_the_tally_of_all(groups, rows):
    known = KnownModel(MODEL, [[0], [1], [2, 3]], 0.55, 0.05)
    for each in groups.values():
        whole = each[each["samples"] == 5].pivot(index="start", columns="sensor", values="value")
        known.update(whole.to_numpy())
    number, wrong, _ = known.outcomes[:, 0]
    assert 0 < wrong.sum() < number.sum()
    tally, *others = rows["tally"]
    assert not any(others)
    by_sensor = tally[len(TALLY) :].reshape(4, len(SENSOR_TALLY))
    counts = dict(zip(TALLY, tally[: len(TALLY)], strict=True))
    for state, rows_of_state in rows["state"].value_counts().items():
        assert counts[state] == rows_of_state > 20
    np.testing.assert_array_equal(by_sensor[:, 2:].T, [number, wrong])
    np.testing.assert_allclose(tally[TALLY.index("allowed")], 0.05 * number.sum())


def test_a_partition_without_windows_has_no_rows(groups):
    """Spark gives it no frame at all, or an empty one."""
    assert list(coordinate([], PROMISE.content)) == []
    assert list(coordinate([groups["g"][:0]], PROMISE.content)) == []
