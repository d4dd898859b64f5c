"""A user's stream with the guard: its driver is killed, or a worker as in docs/any_stream.md."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark import cloudpickle

from aftlib.streaming import stream
from aftlib.streaming.keyed import KeyedGuards
from tests.crash import guard_driver as driver
from tests.crash.processes import KILLED, run
from tests.streaming.test_keyed import processed
from tests.streaming.test_stream import in_microseconds

PAGE = Path(__file__).parents[2] / "docs" / "any_stream.md"

pytestmark = [pytest.mark.crash, pytest.mark.spark]


@pytest.fixture
def session(rocksdb):
    """The session whose Python workers get the driver's code."""
    cloudpickle.register_pickle_by_value(driver)
    yield rocksdb
    cloudpickle.unregister_pickle_by_value(driver)


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """A folder with the streams "mean" and "nearest", whose driver was killed."""
    folder = tmp_path_factory.mktemp("streams")
    killed = [folder / name for name in ("mean", "nearest")]
    for directory in killed:
        directory.mkdir()
    driver.prepare(folder / "incoming")
    assert run(driver, *killed) == KILLED
    return folder


@pytest.mark.versions
def test_a_killed_driver_and_killed_workers_change_no_row(session, streams, monkeypatch):
    killed, whole, workers, broken = (
        streams / name for name in ("mean", "whole", "workers", "broken")
    )
    for directory in (whole, workers):
        directory.mkdir()
    expected = driver.run(session, whole)
    assert (expected["state"] == "estimated").sum() >= 3

    shutil.copytree(killed, broken)
    pd.testing.assert_frame_equal(driver.run(session, killed), expected)

    windows = driver.run(session, workers, kill_workers=True)
    assert (workers / "workers-killed").exists()
    pd.testing.assert_frame_equal(windows, expected)

    # a control whose guard has no state after the crash, and so estimates nothing
    monkeypatch.setattr(stream, "GuardProcessor", driver.Forgetful)
    assert not driver.run(session, broken).equals(expected)


def test_a_killed_driver_changes_no_row_of_another_aggregate_and_predictor(session, streams):
    """The rows are those of one guard of the windows' ranges by NumPy, bit for bit."""
    rows = driver.run(session, streams / "nearest", nearest=True)
    assert (rows["state"] == "estimated").sum() >= 3

    samples = pd.concat(map(pd.read_parquet, (streams / "incoming").glob("*.parquet")))
    start = samples["time"].dt.floor("5min")
    groups = samples.assign(start=start).groupby(["start", "sensor"])["value"]
    windows = groups.agg(value=lambda values: np.ptp(values.to_numpy()), samples="count")
    windows = in_microseconds(windows.reset_index().assign(variance=np.nan))
    promise = driver.promise_of(session, streams / "nearest", nearest=True)
    whole = windows[windows["start"] < windows["start"].max()]
    expected, _ = processed(KeyedGuards(promise), whole)
    columns = ["sensor", "state", "value", "half_width", "samples", "recoverable"]
    pd.testing.assert_frame_equal(
        rows[columns], expected[columns], check_dtype=False, check_exact=True
    )


def test_the_pages_processes_and_queries_end_when_the_second_query_does_not_start(spark):
    """They would write for ever."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    first = "    return writer.start("
    broken = code.replace(first, f'    assert name != "rolled", "no second query"\n{first}')
    assert broken != code
    names = {}
    with pytest.raises(AssertionError, match="no second query"):
        exec(broken, names)
    assert [worker.wait(60) for worker in names["workers"]] == [KILLED] * 3
    assert not spark.streams.active


@pytest.mark.long
def test_the_pages_worker_is_killed_and_its_windows_are_estimated(spark):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for _ in range(3):  # on a busy machine others lose windows with it, and nothing is certified
        names = {}
        exec(code, names)
        table, killed = names["table"], names["killed"]
        if (table["state"] == "estimated").any():
            break
    assert not table.duplicated(["start", "sensor"]).any()
    estimated = table[table["state"] == "estimated"]

    # the killed worker's sensors lose windows around the kill
    at = (table["start"].astype("datetime64[us]").astype("int64") / 1e6 - killed).to_numpy()
    around = table[(at > -1) & (at < 5) & (table["state"] != "exact")]
    assert {"1", "2"} <= set(around["sensor"])
    assert len(estimated) and (estimated["half_width"] < 1).all()

    truth = 20 + estimated["sensor"].astype(int) / 10
    times = estimated["start"].astype("datetime64[us]").astype("int64").to_numpy() / 1e6
    samples = 3 * np.sin(times[:, None] + np.arange(5) / 50)
    off = np.abs(estimated["value"] - truth - samples.mean(1))
    assert (off <= 0.5).mean() >= 0.9
