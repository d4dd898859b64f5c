"""`repair` on Spark: windows put right by key, estimates audited, a kill that changes nothing."""

import shutil
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from aftlib import Promise, repair
from aftlib.core.intervals import clustered_share_interval
from aftlib.core.storage import CURRENT
from aftlib.streaming.repair import audit_of
from tests.crash import repair_driver as driver

pytestmark = pytest.mark.spark

START = pd.Timestamp("2026-01-01")
WINDOW = pd.Timedelta("5min")
PROMISE = Promise([["a"], ["b"]], 0.5, 0.05, "5min", samples=5)
WINDOWS = 12
KEYS = ["start", "site", "sensor"]


def at(window):
    return START + window * WINDOW


def samples():
    """One sample per minute of two sensors of two sites, in steps of 1/1024."""
    rng = np.random.default_rng(1)
    times = pd.date_range(START - WINDOW, at(WINDOWS + 1), freq="min", inclusive="left", unit="us")
    rows = [
        (time, site, sensor) for time in times for site in ("north", "south") for sensor in "ab"
    ]
    table = pd.DataFrame(rows, columns=["time", "site", "sensor"])
    return table.assign(value=np.round(rng.normal(20, 0.1, len(table)) * 1024) / 1024)


def truth(rows):
    """The windows of the samples by pandas."""
    groups = rows.assign(start=rows["time"].dt.floor(WINDOW)).groupby(KEYS)["value"]
    return groups.agg(value="mean", samples="count")


def with_rows(table, rows):
    """Replace state, value, half-width and samples of windows, by (window, site, sensor)."""
    for (window, site, sensor), values in rows.items():
        key = at(window), site, sensor
        table.loc[key, ["state", "value", "half_width", "samples"]] = values
    return table


def tables():
    """A stream's windows with what went wrong, the archive, and the windows put right."""
    archive = samples()
    whole = truth(archive).assign(state="exact", half_width=np.nan)
    whole = whole[["state", "value", "half_width", "samples"]].astype({"samples": float})
    in_table = (whole.index.get_level_values("start") >= at(0)) & (
        whole.index.get_level_values("start") < at(WINDOWS)
    )
    right = whole[in_table]
    value = right["value"]
    lost = ("lost", np.nan, np.nan, 0)
    windows = with_rows(right.copy(), {
        (2, "north", "a"): lost,
        (3, "north", "a"): ("estimated", value[at(3), "north", "a"] + 0.25, 0.4, 0),
        (4, "north", "a"): ("estimated", value[at(4), "north", "a"] - 0.75, 0.4, 0),
        (8, "north", "a"): ("estimated", value[at(8), "north", "a"] + 0.125, 0.4, 0),
        (6, "north", "b"): ("estimated", value[at(6), "north", "b"] + 0.625, 0.3, 4),
        (7, "north", "b"): ("lost", 20.5, 0.9, 3),
        (1, "south", "a"): ("estimated", 20.0, 0.4, 0),
        (1, "south", "b"): ("estimated", 20.0, 0.4, 0),
        (2, "south", "b"): lost,
        (3, "south", "a"): ("estimated", 20.0, 0.4, 0),
    })  # fmt: skip
    windows = windows.drop([(at(w), "south", s) for w in (5, 6, 7) for s in "ab"])
    # of south the archive lacks a's window 1, and two samples of b's windows 1 and 2, and of a's 3
    start = archive["time"].dt.floor(WINDOW)
    minute = (archive["time"] - start).dt.total_seconds() / 60
    south = archive["site"] == "south"
    gone = south & (start == at(1)) & (archive["sensor"] == "a")
    of_b = south & start.isin([at(1), at(2)]) & (archive["sensor"] == "b")
    of_a = south & (start == at(3)) & (archive["sensor"] == "a")
    gone |= (of_b | of_a) & (minute >= 3)
    archive = archive.assign(value=archive["value"] + 8 * (minute % 2) * of_a)[~gone]
    right = with_rows(right.copy(), {
        (1, "south", "a"): ("estimated", 20.0, 0.4, 0),
        (3, "south", "a"): ("estimated", 20.0, 0.4, 0),  # three such samples would make it lost
    })  # fmt: skip
    for window in (1, 2):
        three = archive[of_b[~gone] & (archive["time"].dt.floor(WINDOW) == at(window))]["value"]
        half_width = 4.302653 * three.std() * np.sqrt(1 / 3 - 1 / 5)  # Student's with 2 degrees
        assert half_width < 0.5
        with_rows(
            right, {(window, "south", "b"): ("estimated", three.mean(), half_width, len(three))}
        )
    return windows, archive, right


def test_an_outage_is_a_run_of_windows_of_a_group_and_counts_once():
    """Two outages in one group, the same times in another; a's errors are all in one of them.

    Between a's first two estimates a window is lost.
    """
    rows = [("north", window, "a", 0, error) for window, error in ((1, 0.9), (3, 0.6), (9, 0.1))]
    rows += [("north", 3, "b", 0, 0.1), ("south", 2, "a", 0, np.nan), ("south", 2, "b", 3, 0.7)]
    columns = ["key", "start", "sensor", "samples", "error"]
    estimates = pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=1)
    estimates["start"] *= PROMISE.step
    audit = audit_of(estimates, PROMISE)
    assert audit.index.tolist() == [
        ("missing", "(all)"), ("missing", "a"), ("missing", "b"),
        ("partial", "(all)"), ("partial", "b"),
    ]  # fmt: skip
    counts = audit[["estimated", "compared", "outages", "wrong"]].to_numpy().tolist()
    assert counts == [[5, 4, 2, 2], [4, 3, 2, 2], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    low, high = audit.loc[("missing", "a"), ["low", "high"]]
    assert (low, high) == clustered_share_interval(np.array([2, 0]), np.array([2, 1]))
    assert audit.loc[("missing", "a"), "largest_error"] == 0.9
    nothing = audit_of(estimates[:0], PROMISE)
    assert nothing.empty and nothing.index.names == ["kind", "sensor"]


def frame(spark, table):
    table = table.reset_index() if table.index.names[0] else table
    if "samples" in table:
        table = table.assign(note="kept").astype({"samples": int})
    return spark.createDataFrame(table)


def in_pandas(table):
    rows = table.toPandas().astype({"start": "datetime64[us]"})
    return rows.set_index(KEYS).sort_index()


def test_windows_are_put_right_by_key_and_estimates_are_audited(spark, tmp_path):
    windows, archive, right = tables()
    table, audit = repair(
        frame(spark, windows), frame(spark, archive), PROMISE, group="site", into=tmp_path / "r"
    )
    result = in_pandas(table)
    before = windows.reindex(right.index)
    columns = ["state", "value", "half_width", "samples"]
    pd.testing.assert_frame_equal(
        result[columns], right, check_dtype=False, check_index_type=False, rtol=1e-6
    )
    changed = (before["samples"].fillna(0) < right["samples"]).to_numpy()
    np.testing.assert_array_equal(result["repaired"], changed)
    assert changed.sum() == 14
    replaced = result.loc[changed & before["state"].notna().to_numpy(), "before"]
    states = pd.Series([row["state"] for row in replaced], replaced.index)
    assert states.to_dict() == before["state"][states.index].to_dict()
    assert result.loc[~changed, "before"].isna().all()
    added = before["state"].isna()
    np.testing.assert_array_equal(result["note"].isna(), added)
    assert added.sum() == 6

    missing = audit.loc["missing"]
    assert missing.index.tolist() == ["(all)", "a", "b"]
    assert missing["estimated"].tolist() == [6, 5, 1]
    assert missing.loc["a", ["compared", "outages", "wrong"]].tolist() == [3, 1, 1]
    assert missing.loc["a", "share"] == pytest.approx(1 / 3)
    assert 0 < missing.loc["a", "low"] < 0.05 and 0.9 < missing.loc["a", "high"] < 1
    assert missing.loc["a", "largest_error"] == pytest.approx(0.75)
    assert missing.loc["b", "compared"] == 0 and np.isnan(missing.loc["b", "share"])
    assert audit.loc["partial", "b"][["compared", "wrong"]].tolist() == [1, 1]

    again = repair(frame(spark, windows), frame(spark, archive), PROMISE, group="site")
    pd.testing.assert_frame_equal(in_pandas(again.table), result)
    pd.testing.assert_frame_equal(again.audit, audit)


def test_other_aggregates_sliding_windows_and_late_samples_are_put_right(spark):
    """Without groups, and with one sample as the least of a window."""
    promise = Promise([["a"], ["b"]], 0.5, 0.05, "10min", slide="5min", query="max(value)")
    archive = samples()
    archive = archive[archive["site"] == "north"].drop(columns="site")
    starts = pd.date_range(at(0), at(5), freq=WINDOW)
    rows = [(start, sensor) for start in starts for sensor in "ab"]
    windows = pd.DataFrame(rows, columns=["start", "sensor"])
    of = {sensor: own.set_index("time")["value"] for sensor, own in archive.groupby("sensor")}
    right = [of[sensor][start : start + pd.Timedelta("9min")].max() for start, sensor in rows]
    windows = windows.assign(state="exact", value=1.0, half_width=np.nan, samples=9)
    windows.loc[3, ["state", "samples"]] = "lost", 0
    windows.loc[4, ["value", "samples"]] = 99.0, 10  # as many as the archive has
    windows["window_time"] = windows["start"]
    expected = pd.Series(right).where(windows["samples"] < 10, 99.0)
    given = spark.createDataFrame(windows)
    table, audit = repair(given, spark.createDataFrame(archive), promise)
    result = table.toPandas().sort_values(["start", "sensor"], ignore_index=True)
    assert result["value"].tolist() == expected.tolist()
    assert set(result["state"]) == {"exact"} and len(result) == len(windows)
    last = windows["start"] + pd.Timedelta("10min") - pd.Timedelta("1us")
    assert result["window_time"].tolist() == last.tolist()
    assert audit.empty and audit.index.names == ["kind", "sensor"]
    nothing, _ = repair(given.where("false"), spark.createDataFrame(archive), promise)
    assert nothing.count() == 0


def test_what_is_no_table_of_windows_or_samples_is_refused(spark, tmp_path):
    windows, archive, _ = tables()
    windows, archive = frame(spark, windows), frame(spark, archive)
    stream = spark.readStream.format("rate").load()
    for arguments, problem in [
        ((stream, archive, PROMISE), "windows must be a Spark DataFrame and no stream"),
        ((windows, "archive", PROMISE), "archive must be a Spark DataFrame .*, got a str"),
        ((windows, archive, "promise"), "promise must be a Promise, got 'promise'"),
        ((windows.drop("state", "samples"), archive, PROMISE), "none for 'state', 'samples': read"),
        ((windows, archive.drop("value"), PROMISE), "value must name one column .* for none"),
        ((windows, archive, PROMISE), "got 42 rows of 24: give group=…, or drop repeated rows"),
    ]:
        with pytest.raises(ValueError, match=problem):
            repair(*arguments)
    with pytest.raises(ValueError, match="into must be a folder of this machine, got 's3://"):
        repair(windows, archive, PROMISE, into="s3://bucket/windows")
    with pytest.raises(ValueError, match="got one of repair: read the former"):
        repair(repair(windows, archive, PROMISE, group="site").table, archive, PROMISE)
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(ValueError, match="have nothing but versions"):
        repair(windows, archive, PROMISE, into=tmp_path, group="site")


def stored(spark, directory):
    """The stored result as its readers see it, or None where they see an error."""
    try:
        return in_pandas(spark.read.parquet(str(directory / "right" / CURRENT)))
    except Exception:
        return None


@pytest.mark.crash
def test_a_repair_that_is_killed_changes_nothing_and_the_next_one_ends_it(spark, tmp_path):
    """Killed while Spark writes, and before the new version is in use; a control is caught."""
    windows, archive, _ = tables()
    early = archive[archive["time"] < at(4)]
    prepared = tmp_path / "prepared"
    for part, table in {"windows": windows, "archive": archive}.items():
        frame(spark, table).write.parquet(str(prepared / part))
    repair(
        spark.read.parquet(str(prepared / "windows")),
        frame(spark, early),
        PROMISE,
        group="site",
        into=prepared / "right",
    )

    def copied(name):
        return shutil.copytree(prepared, tmp_path / name, symlinks=True)

    whole = copied("whole")
    former = stored(spark, whole)
    expected = driver.run(spark, whole)
    result = stored(spark, whole)
    assert not result.equals(former) and len(former) > 30
    seen = {}
    for step in driver.STEPS:
        directory = copied(step)
        command = [sys.executable, "-m", "tests.crash.repair_driver", str(directory), step]
        process = subprocess.run(command, stderr=subprocess.DEVNULL, timeout=900, check=False)
        assert process.returncode == -signal.SIGKILL
        seen[step] = stored(spark, directory)
        if step != "in-place":
            again = driver.run(spark, directory)
            pd.testing.assert_frame_equal(stored(spark, directory), result)
            pd.testing.assert_frame_equal(again.audit, expected.audit)
    for step in ("write", "link"):
        pd.testing.assert_frame_equal(seen[step], former)
    assert not any(each.equals(seen["in-place"]) for each in (former, result))
