"""Drivers and workers killed for real: every answer once, as without a failure."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from pyspark import TaskContext, cloudpickle

from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import run
from tests.crash import histogram_driver as driver

pytestmark = pytest.mark.crash
FULL = os.environ.get("AFT_TRIALS") == "full"
DRIVERS, WORKERS = (9, 6) if FULL else (1, 1)
BATCHES = driver.EVENTS.stop // driver.EVENTS.every


def check(table):
    """Every event of every key has one answer, that of an undisturbed histogram."""
    events, query = driver.EVENTS, driver.QUERY
    assert len(table) == events.keys * events.stop
    for key, answers in table.groupby("key"):
        bits = events.streams[key].draw(events.stop)
        expected = ExponentialHistogram(query.window, query.epsilon).estimates(bits)
        answers = answers.sort_values("at")
        # array_equal: pytest would explain two long lists for minutes, and controls do differ
        assert np.array_equal(answers["at"], np.arange(1, events.stop + 1))
        assert np.array_equal(answers["estimate"], expected)


def start(directory, kind, wait_s="0"):
    # a group of its own: driver, JVM and workers are killed together, as with their machine
    return subprocess.Popen(
        [sys.executable, driver.__file__, str(directory), kind, wait_s],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def killed_when(directory, kind, reached, wait_s="0.3"):
    """SIGKILL the driver and its JVM as soon as a file shows that they reached a moment."""
    process, patience = start(directory, kind, wait_s), time.monotonic() + 500
    while not any(directory.glob(reached)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < patience, f"no {reached} came"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=500)
    assert process.returncode == -signal.SIGKILL
    assert not (directory / "answers.parquet").exists()


def finished(directory, kind):
    process = start(directory, kind)
    _, error = process.communicate(timeout=900)
    assert process.returncode == 0, error
    return pd.read_parquet(directory / "answers.parquet")


def moments(batch):
    """Started; states of a partition written; answers written, not yet committed; committed."""
    return (
        f"checkpoint/offsets/{batch}",
        f"checkpoint/state/0/*/{batch + 1}.*",
        f"estimates/_spark_metadata/{batch}",
        f"checkpoint/commits/{batch}",
    )


@pytest.mark.parametrize("seed", range(DRIVERS))
def test_drivers_killed(spark, tmp_path, seed, once):
    """At one moment of one micro-batch; of two, and by a process anew, in a full series."""
    chance, batches = random.Random(seed), range(1, BATCHES - 1)
    for batch in sorted(chance.sample(batches, 2)) if FULL else [1]:
        killed_when(tmp_path, "sound", moments(batch)[(1 + seed) % 4])
    check(finished(tmp_path, "sound") if FULL else answers(spark, driver.QUERY, tmp_path))
    once()


@pytest.mark.skipif(not FULL, reason="starts Spark twice: part of the full trials")
def test_drivers_with_state_outside_are_caught(tmp_path, once):
    killed_when(tmp_path, "outside", "group-*")
    with pytest.raises(AssertionError):
        check(finished(tmp_path, "outside"))
    once()


@dataclass(frozen=True)
class Crashing(driver.Slow):
    """Its process kills itself at the end of its first attempt at one micro-batch."""

    last: int = 0

    def save(self, group, state, states):
        super().save(group, state, states)
        over = any(each.at == self.last for each in states.values())
        if over and TaskContext.get().attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class CrashingOutside(Crashing, driver.Outside):
    """The same with the state in a file, which then gets the events twice."""

    def save(self, group, state, states):
        driver.Outside.save(self, group, state, states)
        Crashing.save(self, group, state, states)


@pytest.fixture
def by_value():
    """Workers cannot import this module, so its classes are pickled by value."""
    modules = (sys.modules[__name__], driver)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


def answers(spark, query, directory):
    events = driver.EVENTS.stream(spark)
    return run(spark, events, query, directory, partitions=2).toPandas()


def crashing_query(kind, batch, **more):
    last = (batch + 1) * driver.EVENTS.every
    return kind(driver.QUERY.window, driver.QUERY.epsilon, last=last, **more)


@pytest.mark.parametrize("seed", range(WORKERS))
def test_workers_killed(spark, tmp_path, by_value, seed, once):
    """The worker of every key is killed in one micro-batch; Spark restarts it from the state."""
    check(answers(spark, crashing_query(Crashing, 1 + seed % (BATCHES - 1)), tmp_path))
    once()


def test_workers_with_state_outside_are_caught(spark, tmp_path, by_value):
    query = crashing_query(CrashingOutside, 1, directory=str(tmp_path))
    with pytest.raises(AssertionError):
        check(answers(spark, query, tmp_path))


def test_the_check_sees_an_answer_that_comes_twice():
    events, query = driver.EVENTS, driver.QUERY
    tables = []
    for key, stream in enumerate(events.streams):
        bits = stream.draw(events.stop)
        estimates = HistogramQuery(query.window, query.epsilon).histogram().estimates(bits)
        tables.append(
            pd.DataFrame({"key": key, "at": range(1, events.stop + 1), "estimate": estimates})
        )
    table = pd.concat(tables)
    check(table)
    for wrong in (pd.concat([table, table.tail(1)]), table.iloc[1:], table.assign(estimate=1.0)):
        with pytest.raises(AssertionError):
            check(wrong)
