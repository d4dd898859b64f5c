"""Drivers killed for real, anywhere in a batch: every window once, lost no more than planned."""

from __future__ import annotations

import os
import random
import time

import pytest

from aftlib.documents.checkpoint_planning.pipeline import replay_stream
from aftlib.documents.checkpoint_planning.state import CheckpointStore
from tests.crash import replay_driver as driver
from tests.crash.processes import KILLED, run, start

pytestmark = pytest.mark.crash
FULL = os.environ.get("AFT_TRIALS") == "full"
BARE, SPARK = (25, 8) if FULL else (1, 1)
POINTS = ("begun", "restored", "replayed", "estimated", "committed", "planned")


def killed_after(directory, seconds):
    """SIGKILL from outside; the driver may have finished before."""
    process = start(driver, directory, "bare", "sound")
    time.sleep(seconds)
    process.kill()
    process.wait()


def finished(directory, kind, store="sound"):
    """What the drivers have left."""
    assert run(driver, directory, kind, store) == 0
    return CheckpointStore(directory)


def check(store, log):
    """Every window of every key once, whole; exact unless estimated, then within its variance."""
    results = {(r.start, r.key): r for r in store.results().itertuples()}
    windows = range(0, log.steps, driver.WINDOW)
    assert sorted(results) == sorted((w, key) for w in windows for key in log.names)
    assert {r.samples for r in results.values()} == {driver.WINDOW}
    true = log.read(None, 0, log.steps).reshape(-1, driver.WINDOW, len(log.names)).mean(axis=1)
    for i, w in enumerate(windows):
        for k, key in enumerate(log.names):
            result = results[w, key]
            sigma = result.half_width / driver.QUERY.requirement.z
            assert abs(result.value - true[i, k]) <= 5 * sigma + 1e-9
            assert result.half_width <= driver.QUERY.requirement.epsilon * (1 + 1e-9)
    records = store.records()
    assert records["start"].tolist() == [0, *records["stop"][:-1]]


@pytest.mark.parametrize("seed", range(BARE))
def test_drivers_killed_without_spark(tmp_path, seed):
    """A trial has a kill at each point, in any order, and one at a random moment."""
    chance = random.Random(seed)
    log = driver.write_log(tmp_path)
    batches = sorted(chance.sample(range(driver.BATCHES - 1), len(POINTS)))
    for point, batch in zip(chance.sample(POINTS, len(POINTS)), batches, strict=True):
        assert run(driver, tmp_path, "bare", "sound", point, batch) == KILLED
    killed_after(tmp_path, chance.uniform(0.3, 1.5))
    check(finished(tmp_path, "bare"), log)


@pytest.mark.parametrize("seed", range(SPARK))
def test_spark_drivers_killed(spark, tmp_path, seed):
    """Inside a batch, and between the commit of its recovery and Spark's own record of it.

    In a full series also during the recovery and after the next commit, always in a new process.
    """
    chance = random.Random(100 + seed)
    log = driver.write_log(tmp_path, windows=2)
    batch = chance.randrange(0, 3)
    assert run(driver, tmp_path, "spark", "sound", POINTS[seed % 4], batch) == KILLED
    if FULL:
        assert run(driver, tmp_path, "spark", "sound", chance.choice(POINTS[1:4]), batch) == KILLED
    # the interval is recovered, but the next one is not planned; Spark has not started
    assert run(driver, tmp_path, "spark" if FULL else "bare", "sound", "committed", batch) == KILLED
    if FULL:
        assert run(driver, tmp_path, "spark", "sound", "committed", batch + 1) == KILLED
        store = finished(tmp_path, "spark")
    else:
        replay_stream(spark, driver.QUERY, log, tmp_path)
        store = CheckpointStore(tmp_path)
    check(store, log)
    recovered = store.records().query("recovered")
    assert recovered["batch"].tolist() == [batch]
    assert recovered["sensors"].tolist() == [len(driver.QUERY.first_plan.replay[batch].sensors)]


def test_a_store_that_splits_its_commit_is_caught(tmp_path):
    """The broken control: the same trial over it must not pass."""
    log = driver.write_log(tmp_path)
    assert run(driver, tmp_path, "bare", "split", "split", 1) == KILLED
    with pytest.raises(AssertionError):
        check(finished(tmp_path, "bare", store="split"), log)
