"""Faults: markers are whole, each fault is injected once, and no process stays paused."""

from __future__ import annotations

import math
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from aftlib.spark import faults
from aftlib.spark.faults import Fault, Injector


@pytest.fixture
def signals(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "kill", lambda *call: calls.append(call))
    return calls


def test_a_marker_is_whole_or_absent_and_there_before_the_fault_is_injected(tmp_path, monkeypatch):
    fault, write, events = Fault("kill", "worker-1", 5), Path.write_text, []
    injector = Injector(tmp_path / "faults", (fault,))

    def in_two_parts(path, text):
        write(path, text[:5])
        events.append(injector.injected(fault))
        write(path, text)

    monkeypatch.setattr(Path, "write_text", in_two_parts)
    monkeypatch.setattr(os, "kill", lambda *call: events.append((call, injector.injected(fault))))
    injector.reach("worker-1", 7)
    whole = {"pid": os.getpid(), "reached": 7}
    assert events == [None, ((os.getpid(), signal.SIGKILL), whole)]


def test_a_fault_hits_the_first_process_at_its_point_only(tmp_path, signals):
    schedule = Fault("kill", "server-0", 3, "merged"), Fault("pause", "worker-1", 2)
    injector = Injector(tmp_path, schedule)
    for target, step, point in (
        ("server-0", 2, "merged"), ("server-1", 3, "merged"), ("server-0", 3, "read"),
        ("worker-1", 1, ""), ("worker-1", 9, "read"),
    ):  # fmt: skip
        injector.reach(target, step, point)
    assert (signals, injector.count) == ([], 0)
    for _ in range(2):
        injector.reach("server-0", 4, "merged")
        Injector(tmp_path, schedule).reach("worker-1", 2)
    assert [number for _, number in signals] == [signal.SIGKILL, signal.SIGSTOP]
    assert injector.count == 2
    assert injector.part("worker-1", range(2, 3)).schedule == schedule[1:]
    assert injector.part("worker-1", range(2)).schedule == ()


@pytest.mark.parametrize("kind", ["melt", "_kill", "__init__", "directory"])
def test_an_unknown_kind_is_refused(kind, tmp_path):
    with pytest.raises(ValueError, match=f"kind must name a method of Injector .*'{kind}'"):
        Injector(tmp_path, (Fault(kind),))


def test_a_process_paused_just_before_the_end_is_resumed(tmp_path, monkeypatch, signals):
    """The fault is injected while the watcher looks whether the block has ended."""
    injector = Injector(tmp_path, (Fault("pause", "late", lasts_s=0.01), Fault("pause", "ever")))

    class LateEvent:
        def is_set(self):
            injector.reach("late")
            injector.reach("ever")  # a pause of 0 s is not ended here
            return True

        def set(self):
            pass

    own = SimpleNamespace(Thread=threading.Thread, Event=LateEvent, get_ident=threading.get_ident)
    monkeypatch.setattr(faults, "time", SimpleNamespace(time=lambda: math.inf, sleep=len))
    monkeypatch.setattr(faults, "TICK_S", "")
    monkeypatch.setattr(faults, "threading", own)
    with injector.resuming():
        pass
    assert [number for _, number in signals] == [signal.SIGSTOP, signal.SIGSTOP, signal.SIGCONT]
