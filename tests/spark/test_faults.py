"""Faults: each is injected once, after its marker."""

from __future__ import annotations

import os
import signal

import pytest

from aftlib.spark.faults import Fault, Injector, TaskStopped
from tests.refusals import refused

test_an_unknown_kind_is_refused_when_a_fault_is_made = refused(
    Fault,
    ("kil", "kind must be one of kill, stop, got 'kil'"),
    ("reach", "kind must be one of"),
    ("", "kind must be one of"),
)


@pytest.fixture
def signals(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "kill", lambda *call: calls.append(call))
    return calls


def test_a_marker_is_there_before_the_fault_is_injected(tmp_path, monkeypatch):
    fault, events = Fault("kill", "worker-1", 5), []
    injector = Injector(tmp_path / "faults", (fault,))
    monkeypatch.setattr(os, "kill", lambda *call: events.append((call, injector.injected(fault))))
    assert not injector.injected(fault)
    injector.reach("worker-1", 7)
    assert events == [((os.getpid(), signal.SIGKILL), True)]


def test_a_fault_hits_the_first_process_at_its_point_only(tmp_path, signals):
    schedule = Fault("kill", "server-0", 3, "merged"), Fault("kill", "worker-1", 2)
    injector = Injector(tmp_path, schedule)
    for target, step, point in (
        ("server-0", 2, "merged"), ("server-1", 3, "merged"), ("server-0", 3, "read"),
        ("worker-1", 1, ""), ("worker-1", 9, "read"),
    ):  # fmt: skip
        injector.reach(target, step, point)
    assert signals == [] and not any(map(injector.injected, schedule))
    for _ in range(2):
        injector.reach("server-0", 4, "merged")
        Injector(tmp_path, schedule).reach("worker-1", 2)
    assert signals == 2 * [(os.getpid(), signal.SIGKILL)]


def test_a_stopped_task_ends_by_an_error_once(tmp_path):
    injector = Injector(tmp_path, (Fault("stop", "task-0-1", 3, "read"),))
    with pytest.raises(TaskStopped, match="task-0-1 was ended on purpose"):
        injector.reach("task-0-1", 3, "read")
    injector.reach("task-0-1", 4, "read")
