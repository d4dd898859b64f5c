"""Workers killed from outside, at random: every window once, exact or flagged as estimated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from pyspark import cloudpickle

from aftlib.approximately_once import pipeline as approximately_once
from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.master import Outage
from aftlib.approximately_once.operator import Memory, Worker
from aftlib.approximately_once.pipeline import Query, recover_stream
from aftlib.approximately_once.sink import WindowSink
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

pytestmark = pytest.mark.crash
TRIALS = 30 if os.environ.get("AFT_TRIALS") == "full" else 2
MODEL, WINDOWS, STEPS = block_model(6, 2), Windows(100, 50), 60_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log"
    return SensorLog.write(path, draw(MODEL, STEPS, 4), MODEL.names)


def query(log):
    model, requirement = MODEL.aggregate(WINDOWS.width), Requirement(1.0, 0.05)
    assignment = assign_spread(model, 3, requirement)
    return Query(log, WINDOWS, model, assignment, requirement, every=STEPS // 6)


def check(done, log):
    """Every window of every key once; computed ones exact; estimates only where input was lost."""
    due = WINDOWS.ending_in(0, STEPS)
    expected, _ = WINDOWS.aggregate(log.read(None, 0, STEPS), 0, due)
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
        struck = [i for i, w in enumerate(due) if _touches(w, outage)]
        allowed[np.ix_(struck, np.flatnonzero(worker == outage.worker))] = True
    assert not (estimated & ~allowed).any()


def _touches(window, outage):
    start = window * WINDOWS.slide
    return start < outage.recovery and start + WINDOWS.width > outage.failure


def python_workers():
    """Workers of our tasks, not of planning: children of the `pyspark.worker` daemon."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    parent = {int(pid): int(ppid) for pid, ppid, *_ in rows}
    daemons = {
        int(pid) for pid, _, *args in rows if args and "pyspark.daemon pyspark.worker" in args[0]
    }

    def ours(pid):
        while pid in parent:
            pid = parent[pid]
            if pid == os.getpid():
                return True
        return False

    return sorted(p for p in daemons if parent[p] in daemons and ours(p))


def killing(spark, stop, rng, most=3):
    """SIGKILL a worker now and then; one task survives three deaths, not four."""
    while most and not stop.is_set():
        time.sleep(rng.uniform(0.02, 0.2))
        busy = spark.sparkContext.statusTracker().getActiveStageIds()
        victims = python_workers() if busy else []
        if victims:
            os.kill(int(rng.choice(victims)), signal.SIGKILL)
            most -= 1


def struck_stream(spark, log, directory, seed):
    """Stream under fire until at least one worker has died with its windows."""
    rng = np.random.default_rng(seed)
    for attempt in range(10):
        stop = threading.Event()
        killer = threading.Thread(target=killing, args=(spark, stop, rng))
        killer.start()
        try:
            done = recover_stream(spark, query(log), directory / str(attempt))
        finally:
            stop.set()
            killer.join()
        if done.outages:
            return done
    raise RuntimeError("ten streams and no worker died: the killer does not hit")


class SlowMemory(Memory):
    """Long enough at each block to be hit."""

    def take(self, block):
        time.sleep(0.1)
        return super().take(block)


class Slow(Worker):
    def memory(self, shift, due):
        return SlowMemory(**vars(super().memory(shift, due)))


@pytest.fixture
def working(monkeypatch):
    """Let workers of another class work."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield lambda kind: monkeypatch.setattr(approximately_once, "Worker", kind)
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("seed", range(TRIALS))
def test_workers_killed_at_random(spark, log, tmp_path, working, seed):
    working(Slow)
    done = struck_stream(spark, log, tmp_path, seed)
    check(done, log)


@pytest.mark.parametrize("first", [[], [Outage(1, 4000, 4400)]])
def test_a_worker_dies_after_the_driver_did(spark, log, tmp_path, monkeypatch, first):
    """The driver dies between the sink's write and Spark's commit; in the re-run a worker dies."""
    write = WindowSink.write

    def write_and_die(sink, *rows):
        write(sink, *rows)
        raise RuntimeError("the driver is gone")

    with monkeypatch.context() as patched, pytest.raises(Exception, match="the driver is gone"):
        patched.setattr(WindowSink, "write", write_and_die)
        recover_stream(spark, query(log), tmp_path, first)
    before = WindowSink(tmp_path / "sink.sqlite").windows()
    done = recover_stream(spark, query(log), tmp_path, [Outage(0, 6000, 6500)])
    check(done, log)
    merged = before.merge(done.windows, on=["start", "key"], suffixes=("", "_after"))
    assert len(merged) == len(before)
    assert (merged["value"] == merged["value_after"]).all()
    assert done.windows["estimated"].sum() == before["estimated"].sum() == 18 * len(first)


class Forgetful(Worker):
    """A broken control: its substitute passes half-filled windows off as whole."""

    def memory(self, shift, due):
        needed = due.start * self.windows.slide
        hidden = np.zeros((max(0, shift["begin"] - needed), self.keys))
        return SlowMemory(self.windows, needed, due.start, hidden)


def test_a_worker_that_hides_its_loss_is_caught(spark, log, tmp_path, working):
    working(Forgetful)
    done = struck_stream(spark, log, tmp_path, seed=0)
    with pytest.raises(AssertionError):
        check(done, log)
