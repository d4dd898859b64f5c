"""Workers and drivers killed for real: every window once, exact or flagged as estimated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyspark import cloudpickle

from aftlib.approximately_once import pipeline as approximately_once
from aftlib.approximately_once.operator import Memory, Worker
from aftlib.approximately_once.pipeline import StreamRun, recover_stream
from aftlib.approximately_once.sink import Outage, WindowSink
from aftlib.core.sensorlog import SensorLog
from tests.crash import recovery_driver as driver

MODEL, WINDOWS, STEPS, query = driver.MODEL, driver.WINDOWS, driver.STEPS, driver.query

pytestmark = pytest.mark.crash
TRIALS = 30 if os.environ.get("AFT_TRIALS") == "full" else 2


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return driver.write_log(tmp_path_factory.mktemp("log"))


def check(done, log, stop=STEPS):
    """Every window of every key once; computed ones exact; estimates only where input was lost."""
    due = WINDOWS.ending_in(0, stop)
    expected, _ = WINDOWS.aggregate(log.read(None, 0, stop), 0, due)
    table = done.windows.set_index(["start", "key"]).unstack("key")
    assert len(table) == len(due)
    assert len(done.windows) == len(due) * MODEL.size
    value = table["value"][list(log.names)].to_numpy()
    estimated = table["estimated"][list(log.names)].to_numpy()
    assert (value[~estimated] == expected[~estimated]).all()
    worker = np.empty(MODEL.size, dtype=int)
    for i, keys in enumerate(query(log).assignment.workers):
        worker[list(keys)] = i
    allowed = np.zeros_like(estimated)
    for outage in done.outages:
        lost = [i for i, w in enumerate(due) if _touches(w, outage)]
        allowed[np.ix_(lost, np.flatnonzero(worker == outage.worker))] = True
    assert not (estimated & ~allowed).any()


def _touches(window, outage):
    start = window * WINDOWS.slide
    return start < outage.recovery and start + WINDOWS.width > outage.failure


class Crashing(Worker):
    """Kills itself in three splits of a seed's choice, at a step of its choice."""

    seed = 0

    def memory(self, split, begin):
        rng = np.random.default_rng(self.seed)
        splits = [(w, s) for s in range(0, STEPS, driver.EVERY) for w in range(self.workers)]
        chosen = [splits[i] for i in rng.choice(len(splits), 3, replace=False)]
        steps = rng.integers(driver.EVERY, size=3).tolist()
        memory = super().memory(split, begin)
        if (split.worker, split.start) not in chosen:
            return memory
        step = split.start + steps[chosen.index((split.worker, split.start))]
        marker = self.injector.directory / f"killed-{split.worker}-{split.start}"
        return CrashingMemory(**vars(memory), step=step, marker=marker)


@dataclass
class CrashingMemory(Memory):
    """Ends its process before it takes in a step, once."""

    step: int
    marker: Path

    def take(self, block):
        if self.reached + len(block) > self.step and not self.marker.exists():
            self.marker.parent.mkdir(exist_ok=True)
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().take(block)


@pytest.fixture
def working(monkeypatch):
    """Let workers of another class work."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield lambda kind: monkeypatch.setattr(approximately_once, "Worker", kind)
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("seed", range(TRIALS))
def test_workers_killed_at_random(spark, log, tmp_path, working, seed):
    job = query(log)
    kind = type("Crashing", (Crashing,), {"seed": seed, "workers": len(job.assignment.workers)})
    working(kind)
    done = recover_stream(spark, job, tmp_path)
    assert len([*(tmp_path / "faults").glob("killed-*")]) == 3
    assert 1 <= len(done.outages) <= 3
    check(done, log)


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """What a killed driver left: a log, and a directory for each of its streams."""
    directory = tmp_path_factory.mktemp("streams")
    driver.write_log(directory)
    command = [sys.executable, driver.__file__, str(directory)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert process.returncode == -signal.SIGKILL, process.stderr
    return directory


def held(directory):
    """What the sink in a directory holds."""
    sink = WindowSink(directory / "sink.sqlite")
    return StreamRun(sink, sink.outages(), None)


def gone_on(before, done):
    """Whether nothing that was written has changed since."""
    both = before.merge(done, on=["start", "key"], suffixes=("", "_after"))
    return len(both) == len(before) and (both["value"] == both["value_after"]).all()


@pytest.mark.parametrize(
    ("name", "estimated", "recorded"),
    [
        ("alone", 0, {0}),  # the driver crashes, and in the re-run a worker
        ("after another", 18, {1}),  # the same after another's loss: read again
        ("together", 0, set()),  # driver and worker: the restarted ones have lost nothing
    ],
)
def test_a_driver_crashes_and_in_the_re_run_a_worker(spark, streams, name, estimated, recorded):
    log, directory, stop = SensorLog.open(streams / "log"), streams / name, 2 * driver.EVERY
    before = held(directory).windows
    assert (len(before) > 0) == (driver.SCENARIOS[name].batch is not None)
    done = recover_stream(spark, query(log, stop=stop), directory, [Outage(0, 6000, 6500)])
    check(done, log, stop)
    assert done.windows["estimated"].sum() == before["estimated"].sum() == estimated
    assert gone_on(before, done.windows)
    assert (directory / "faults" / "fault-kill-worker-0-6000.json").exists()
    assert {outage.worker for outage in done.outages} == recorded


def test_after_a_driver_crash_the_next_one_has_the_guards_state(spark, streams):
    """Killed after the batch in which a worker was lost; a worker lost later is estimated, too."""
    log, directory = SensorLog.open(streams / "log"), streams / "guarded"
    before = held(directory).windows
    assert len(before) == len(WINDOWS.ending_in(0, 5 * driver.EVERY)) * MODEL.size
    later = [Outage(0, 42_000, 42_500), Outage(2, 52_000, 52_400)]
    done = recover_stream(spark, query(log, "guard"), directory, later)
    check(done, log)
    assert gone_on(before, done.windows)
    lost = done.windows[done.windows["estimated"]]
    assert {start // 10_000 for start in lost["start"]} == {4, 5}
    assert lost["start"].nunique() < 18  # of each outage, every sixth window at least was read


class Forgetful(Worker):
    """A broken control: its replacement reports half-filled windows as whole."""

    def memory(self, split, begin):
        due = self.windows.ending_in(split.start, split.stop)
        needed = due.start * self.windows.slide
        hidden = np.zeros((max(0, begin - needed), len(split.keys)))
        return Memory(self.windows, needed, due.start, hidden)


def test_a_worker_that_hides_its_loss_is_caught(spark, log, tmp_path, working):
    working(Forgetful)
    stop, outage = 2 * driver.EVERY, Outage(1, 14_000, 14_400)
    done = recover_stream(spark, query(log, stop=stop), tmp_path, [outage])
    assert len(done.outages) == 1
    with pytest.raises(AssertionError):
        check(done, log, stop)
