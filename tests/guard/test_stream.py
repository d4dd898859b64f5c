"""The guard over a stream: its rows are those of a guard with the same windows."""

import os
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from aftlib.guard.guard import Guard
from aftlib.guard.pipeline import GuardedBatches, Promise, recoverable

NAMES = ["a", "b", "c", "d"]
WORKERS = [["a"], ["b"], ["c", "d"]]
START = pd.Timestamp("2026-01-01", tz="UTC")
ASKED = {"workers": WORKERS, "epsilon": 0.5, "delta": 0.05, "window": "5min"}
PROMISE = Promise(**ASKED, samples=5)


def minutes(rounds=280, seed=1):
    """Samples a minute of four sensors that share a slow common part."""
    rng = np.random.default_rng(seed)
    common = 0.1 * rng.normal(size=(rounds * 5, 1)).cumsum(0)
    return common + 0.1 * rng.normal(size=(rounds * 5, 4))


def long(samples):
    times = pd.date_range(START, periods=len(samples), freq="min", name="time")
    wide = pd.DataFrame(samples, times, NAMES).reset_index()
    rows = wide.melt("time", var_name="sensor").sort_values(["time", "sensor"])
    return rows.dropna().reset_index(drop=True)


def streamed(spark, directory, parts, promise):
    """All rows that a stream over these parts, a file each, handed over."""
    (directory / "incoming").mkdir()
    for number, part in enumerate(parts):
        path = directory / "incoming" / f"{number}.parquet"
        part.to_parquet(path, coerce_timestamps="us")
        os.utime(path, (number, number))  # Spark reads files by age
    reader = spark.readStream.schema("time timestamp, sensor string, value double")
    stream = reader.option("maxFilesPerTrigger", 1).parquet(str(directory / "incoming"))
    handed = {}
    writer = recoverable(
        stream, directory / "state", lambda rows, batch: handed.update({batch: rows}), promise
    )
    running = writer.trigger(availableNow=True).start()
    assert running.awaitTermination(120)
    unread = sum(p["observedMetrics"]["unread"].rows for p in running.recentProgress)
    return pd.concat(handed.values(), ignore_index=True), unread


@pytest.mark.parametrize("slide", [None, "2min"])
def test_a_stream_gives_a_guards_estimates(spark, tmp_path, slide):
    samples = minutes()
    samples[1100:1112, 0] = np.nan  # worker 0 is away
    samples[1200:1230] = np.nan  # all are
    promise = Promise(**ASKED, samples=5, slide=slide)
    rows = long(samples)
    odd = pd.DataFrame({
        "time": [None, START, START, START], "sensor": ["a", None, "b", "b"],
        "value": [1.0, 2.0, np.inf, -1e100],
    }).astype({"time": rows["time"].dtype})  # fmt: skip
    parts = [rows[:2500], rows[2500:4300], pd.concat([odd, rows[4300:]])]
    found, unread = streamed(spark, tmp_path, parts, promise)
    assert unread == 4

    step = 2 if slide else 5
    starts = np.arange(0 if slide is None else -4, len(samples), step)
    padded = np.vstack([np.full((4, 4), np.nan), samples, np.full((5, 4), np.nan)])
    windows = np.array([padded[s + 4 : s + 9].mean(0) for s in starts])
    windows = windows[: len(found) // 4]
    guard = Guard([[0], [1], [2, 3]], 0.5, 0.05, 5)
    handed = guard.update(windows)
    missing, declared = np.isnan(windows), handed.declared
    assert len(windows) > 150 and declared[missing].any() and not declared[missing].all()
    state = np.where(missing, np.where(declared, "estimated", "lost"), "exact")
    value = np.where(missing, np.where(declared, handed.estimate, np.nan), windows)
    assert found["state"].tolist() == state.ravel().tolist()
    np.testing.assert_allclose(found["value"], value.ravel(), rtol=1e-9)
    assert found["sensor"].tolist() == NAMES * len(windows)
    times = START + pd.to_timedelta(np.repeat(starts[: len(windows)], 4), "min")
    assert found["start"].tolist() == times.tolist()


def batch(samples, first=0):
    """Windows as Spark hands them over, in an order of its own."""
    rows = long(samples)
    rows["time"] += pd.Timedelta(minutes=first)
    grouped = rows.groupby([rows["time"].dt.floor("5min"), "sensor"])["value"]
    table = grouped.agg(value="mean", samples="count").reset_index(names=["start", "sensor"])
    return given(table.sample(frac=1, random_state=1))


def given(table):
    return SimpleNamespace(toArrow=lambda: pa.Table.from_pandas(table, preserve_index=False))


def test_a_micro_batch_that_runs_again_hands_over_the_same(tmp_path):
    samples, handed = minutes(), []
    samples[1100:1106, 1] = np.nan

    def fails_once(rows, number):
        handed.append((number, rows))
        if number == 1 and len(handed) == 2:
            raise OSError("the sink is away")

    batches = GuardedBatches(tmp_path, PROMISE, fails_once)
    batches(batch(samples[:1000]), 0)
    with pytest.raises(OSError, match="sink is away"):
        batches(batch(samples[1000:1200], 1000), 1)
    for _ in range(2):  # again after the sink, and once more as if Spark's commit was lost
        GuardedBatches(tmp_path, PROMISE, fails_once)(batch(samples[1000:1200], 1000), 1)
    assert [number for number, _ in handed] == [0, 1, 1, 1]
    for _, rows in handed[2:]:
        pd.testing.assert_frame_equal(rows, handed[1][1])
    assert {"estimated", "exact"} <= set(handed[1][1]["state"])


def test_sliding_windows_in_micro_batches_are_a_guards_rounds(tmp_path):
    """Each window depends on the last but one, so that a longer loss can be the safer one."""
    rng, rounds, period = np.random.default_rng(4), 900, 10
    values = 0.05 * rng.normal(size=(rounds // 2, 2, 4)).cumsum(axis=0).reshape(-1, 4)
    values += np.sin(2 * np.pi * np.arange(rounds) / period)[:, None]
    values[700:702, 0] = values[801, 2:] = np.nan
    starts = START + pd.to_timedelta(np.arange(rounds) * 2, "min")
    wide = pd.DataFrame(values, starts, NAMES).rename_axis("start").reset_index()
    table = wide.melt("start", var_name="sensor").dropna().assign(samples=4)
    promise = Promise(**ASKED | {"window": "4min", "slide": "2min", "seasons": ["20min"]})
    found, batches = [], GuardedBatches(tmp_path, promise, lambda rows, _: found.append(rows))
    for number, part in enumerate(np.array_split(starts, 6)):
        batches(given(table[table["start"].isin(part)]), number)
    rows = pd.concat(found, ignore_index=True)

    guard = Guard([[0], [1], [2, 3]], 0.5, 0.05, seasons=[period])
    handed, safe = [], []
    for window in values:
        handed.append(guard.update(window))
        safe.append(guard.recoverable)
    lasting = [[np.argmin([*h, False]) for h in now.T] for now in safe]
    declared = np.concatenate([one.declared for one in handed])
    estimate = np.concatenate([one.estimate for one in handed])
    lost = np.isnan(values)
    assert (np.array(safe)[:, 1] & ~np.array(safe)[:, 0]).any() and declared.any()
    assert rows["start"].tolist() == np.repeat(starts, 4).tolist()
    assert rows["recoverable"].tolist() == np.ravel(lasting).tolist()
    assert (rows["state"] == "estimated").tolist() == declared.ravel().tolist()
    expected = np.where(lost, np.where(declared, estimate, np.nan), values)
    np.testing.assert_array_equal(rows["value"], expected.ravel())
    assert len([*tmp_path.iterdir()]) == 2  # of the last two micro-batches, which may run again


def test_times_before_1970_are_times_like_others(tmp_path):
    back, found = pd.Timedelta(days=65 * 365), []
    for name, shift in (("usual", pd.Timedelta(0)), ("early", back)):
        (tmp_path / name).mkdir()
        rows = []
        batches = GuardedBatches(
            tmp_path / name, PROMISE, lambda table, _, to=rows: to.append(table)
        )
        for number, first in enumerate((0, 300)):  # 250 minutes without any sample between them
            table = batch(minutes(rounds=10), first).toArrow().to_pandas()
            batches(given(table.assign(start=table["start"] - shift)), number)
        found.append(pd.concat(rows).assign(start=lambda table, by=shift: table["start"] + by))
    assert len(found[0]) == 70 * len(NAMES)
    pd.testing.assert_frame_equal(*found, check_dtype=False)


def test_sensors_may_have_any_name(tmp_path):
    names, rows = ["", " ", "nan", "None", "a\nb", "a\0", "a", "ä", "start"], []
    promise = Promise(**(ASKED | {"workers": [[name] for name in names]}))
    table = pd.DataFrame({"start": START, "sensor": names, "value": range(9), "samples": 5})
    GuardedBatches(tmp_path, promise, lambda found, _: rows.append(found))(given(table), 0)
    assert rows[0]["sensor"].tolist() == names
    assert rows[0]["value"].tolist() == [*range(9)]


def test_a_window_with_too_few_samples_is_lost(tmp_path):
    samples, handed = minutes(rounds=20), []
    samples[52, 2] = np.nan
    GuardedBatches(tmp_path, PROMISE, lambda rows, _: handed.append(rows))(batch(samples), 0)
    (odd,) = handed[0][handed[0]["state"] != "exact"].itertuples()
    assert (odd.sensor, odd.samples, odd.state) == ("c", 4, "lost") and np.isnan(odd.value)
    assert odd.start == START + pd.Timedelta(minutes=50)


def test_what_does_not_fit_stops_the_stream(tmp_path):
    batches = GuardedBatches(tmp_path, PROMISE, lambda rows, _: None)
    one = pd.DataFrame({"start": [START], "sensor": ["x"], "value": [1.0], "samples": [5]})
    with pytest.raises(ValueError, match="stream must hold the sensors of workers only, got x"):
        batches(given(one), 0)
    with pytest.raises(ValueError, match=r"guard-6\.npz, which is missing"):
        batches(batch(minutes(2)), 7)
    batches(batch(minutes(2)), 0)
    late = one.assign(sensor="a", start=START + pd.Timedelta(days=3650))
    with pytest.raises(ValueError, match="jump by more than 100000 windows, got one at 2035"):
        batches(given(late), 1)
    short = GuardedBatches(tmp_path, Promise(**(ASKED | {"window": "1us"})), lambda rows, _: None)
    with pytest.raises(ValueError, match="jump by more than 100000 windows"):  # not a MemoryError
        short(given(pd.concat([one.assign(sensor="a"), late])), 0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": "max"}, "query must be 'mean' or 'sum', got 'max'"),
        ({"query": ["sum"]}, r"query must be 'mean' or 'sum', got \['sum'\]"),
        ({"samples": 0}, "samples must be a whole number at least 1, got 0"),
        ({"slide": "6min"}, "slide must be above 0 and at most window = 5min, got 6min"),
        ({"slide": "0s"}, "slide must be above 0"),
        ({"window": "0s"}, "window must last, got '0s'"),
        ({"window": "soon"}, "window must be a duration such as '10min', got 'soon'"),
        ({"watermark": "-1s"}, "watermark must not be negative, got '-1s'"),
        ({"workers": [["a"], ["a", "b"]]}, "each sensor once, got a twice"),
        ({"workers": ["hall", ["b"]]}, r"workers must be lists .* got 'hall': give \['hall'\]"),
        ({"delta": 1}, "delta must be above 0 and below 1"),
    ],
)
def test_impossible_promises_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        Promise(**(ASKED | changed))


def test_a_stream_that_does_not_fit_is_refused(spark, tmp_path):
    stream = spark.readStream.schema("time timestamp, sensor string, value string").json(
        str(tmp_path)
    )
    with pytest.raises(ValueError, match="value must name a column of type .* of type string"):
        recoverable(stream, tmp_path, print, PROMISE)
    with pytest.raises(ValueError, match="time must name a column .* 'when' of type None"):
        recoverable(stream, tmp_path, print, PROMISE, time="when")
    with pytest.raises(ValueError, match="stream must be streaming"):
        recoverable(spark.range(3), tmp_path, print, PROMISE)
    stream = stream.withColumn("value", stream["value"].cast("double"))
    recoverable(stream, tmp_path / "state", print, PROMISE)
    with pytest.raises(ValueError, match=r"began with, epsilon = 0\.5, got 0\.7"):
        recoverable(stream, tmp_path / "state", print, Promise(**(ASKED | {"epsilon": 0.7})))
    zoneless = stream.withColumn("time", stream["time"].cast("timestamp_ntz"))
    with pytest.raises(ValueError, match="time must name .* got 'time' of type timestamp_ntz"):
        recoverable(zoneless, tmp_path, print, PROMISE)
    other = stream.withColumnRenamed("value", "heat")
    with pytest.raises(ValueError, match="value = None, got heat"):
        recoverable(other, tmp_path / "state", print, PROMISE, value="heat")
    recoverable(other, tmp_path / "other", print, PROMISE, value="heat")
    with pytest.raises(ValueError, match="value = heat, got None"):
        recoverable(stream, tmp_path / "other", print, PROMISE)
