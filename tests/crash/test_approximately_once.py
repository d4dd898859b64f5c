"""Workers and the coordinator killed by SIGKILL: every window once, exact or by equation (1)."""

from __future__ import annotations

import os
import time

import numpy as np
import pandas as pd
import pytest

from aftlib.core.generators import draw
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.approximately_once.six_sensors import advance, estimate_windows
from aftlib.documents.approximately_once.worker import EPOCH, Worker
from tests.crash import processes
from tests.crash import recovery_driver as driver
from tests.crash.recovery_driver import ASSIGNMENT, MODEL, PROMISE, SAMPLES, STEPS, WINDOWS

pytestmark = [pytest.mark.crash, pytest.mark.spark]
TRIALS = 10 if os.environ.get("AFT_TRIALS") == "full" else 1
KILLED_AT = range(90, STEPS - 60, 100)
"""Steps around which a worker is killed: five in each trial, beside the driver."""
NAMES = list(SAMPLES.names)


class Stream:
    """Three workers; `run` advances them, and kills and replaces one of them at random points."""

    def __init__(self, directory, seed, steps=STEPS):
        self.directory, self.steps = directory, steps
        self.rng = np.random.default_rng(seed)
        self.log = SensorLog.write(directory / "log", draw(SAMPLES, steps, seed), NAMES)
        self.incoming = directory / "incoming"
        self.incoming.mkdir()
        self.workers = [self.begin(number) for number in range(3)]
        self.away, self.back = None, None  # the killed worker, and the step of its replacement

    def begin(self, number, step=0):
        keys = list(ASSIGNMENT.workers[number])
        worker = Worker(self.log, keys, WINDOWS, step, self.incoming)
        worker.wait()
        return worker

    def run(self, steps, pause_s=0.0):
        """Advance all workers step by step; the step's number is that of its last sample."""
        for step in steps:
            if step in KILLED_AT:
                self.away = int(self.rng.integers(3))
                self.back = step + int(self.rng.integers(11, 30))
                ahead = int(self.rng.integers(1, 6))  # at most a window, as the watermark allows
                self.workers[self.away].advance(step + ahead)
                time.sleep(self.rng.uniform(0, 0.003))  # in the middle of its work
                self.workers[self.away].stop()
            if step == self.back:
                self.workers[self.away], self.away = self.begin(self.away, step), None
            alive = [w for number, w in enumerate(self.workers) if number != self.away]
            advance(alive, [step])
            time.sleep(pause_s)

    def stop(self):
        for worker in self.workers:
            worker.stop()

    def emitted(self):
        """The workers' files as a table of windows and sensors, NaN where none came."""
        files = pd.concat(map(pd.read_parquet, sorted(self.incoming.glob("[0-9]*.parquet"))))
        files["start"] = (files["time"] - EPOCH).dt.total_seconds().astype(int)
        return files.pivot(index="start", columns="sensor", values="value")[NAMES]


def check_emitted(stream):
    """A worker emits whole windows only, each once, and a replacement none that began before it."""
    emitted = stream.emitted()
    starts = np.arange(0, stream.steps - WINDOWS.width + 1, WINDOWS.slide)
    assert emitted.index.tolist() == starts.tolist()
    truth, _ = WINDOWS.aggregate(stream.log.read(None, 0, stream.steps), 0, range(len(starts)))
    came = emitted.notna().to_numpy()
    np.testing.assert_array_equal(emitted.to_numpy()[came], truth[came])
    return emitted


def check(stream, spark):
    """Nothing is lost or doubled: what came is exact, and what did not come is by equation (1)."""
    emitted = check_emitted(stream)
    table = spark.read.parquet(str(stream.directory / "windows")).toPandas()
    table["start"] = (table["start"].dt.tz_localize("UTC") - EPOCH).dt.total_seconds().astype(int)
    assert not table.duplicated(["start", "sensor"]).any()
    wide = table.pivot(index="start", columns="sensor")
    closed = emitted.loc[: wide.index.max()]  # the watermark has passed these windows
    assert wide.index.tolist() == closed.index.tolist() and wide.index.max() >= stream.steps - 30
    for start, values in closed.iterrows():
        missing = values.isna().to_numpy()
        states = wide.loc[start, "state"][NAMES].to_numpy()
        assert (states[~missing] == "exact").all() and (states[missing] == "estimated").all()
        expected = values.to_numpy().copy()
        expected[missing] = MODEL.condition(values.dropna()).mean
        np.testing.assert_allclose(wide.loc[start, "value"][NAMES], expected, atol=1e-9)
        assert (wide.loc[start, "samples"][NAMES] == ~missing).all()
    return table


@pytest.mark.parametrize("seed", range(TRIALS))
def test_workers_and_the_coordinator_are_killed_at_random(rocksdb, tmp_path, seed):
    stream = Stream(tmp_path, seed)
    coordinator = processes.start(driver, tmp_path)
    try:
        stream.run(range(1, 201))
        deadline = time.monotonic() + 300
        while not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")):
            assert time.monotonic() < deadline and coordinator.poll() is None
            time.sleep(0.02)
        stream.run(range(201, 401), pause_s=stream.rng.uniform(0, 0.02))
    finally:
        coordinator.kill()
        coordinator.wait()
    stream.run(range(401, STEPS + 1))  # while no coordinator is there
    stream.stop()

    query = estimate_windows(rocksdb, PROMISE, stream.incoming, tmp_path)
    query.processAllAvailable()
    query.stop()
    table = check(stream, rocksdb)
    assert table[table["state"] == "estimated"].groupby("sensor")["start"].nunique().max() >= 2


def test_a_worker_that_hides_its_loss_is_caught(tmp_path):
    """A control: the replacement emits windows that it has half of as whole ones."""
    stream = Stream(tmp_path, seed=1)
    advance(stream.workers, range(1, 97))
    stream.workers[1].stop()
    samples = stream.log.read(None, 0, STEPS)
    samples[:103] = 0  # what the replacement does not know
    hidden = SensorLog.write(tmp_path / "hidden", samples, NAMES)
    keys = list(ASSIGNMENT.workers[1])
    stream.workers[1] = Worker(hidden, keys, WINDOWS, 90, stream.incoming)
    stream.workers[1].wait()
    advance(stream.workers, [STEPS])
    stream.stop()
    with pytest.raises(AssertionError, match="not equal"):
        check_emitted(stream)


@pytest.mark.long
def test_a_coordinator_that_writes_a_micro_batch_twice_is_caught(rocksdb, tmp_path):
    stream = Stream(tmp_path, seed=2, steps=150)
    stream.run(range(1, 151))
    stream.stop()
    assert processes.run(driver, tmp_path, 1) == processes.KILLED
    query = driver.start_careless(rocksdb, tmp_path)
    query.processAllAvailable()
    query.stop()
    with pytest.raises(AssertionError, match="duplicated"):
        check(stream, rocksdb)
