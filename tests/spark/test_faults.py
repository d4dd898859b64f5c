"""Faults: who looks for their notes finds them whole, and nobody is left standing still."""

from __future__ import annotations

import math
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

from aftlib.spark import faults
from aftlib.spark.faults import Fault, woken


def test_a_note_is_whole_or_not_there(tmp_path, monkeypatch):
    fault, write, seen = Fault(tmp_path / "notes", "here"), Path.write_text, []

    def in_two_parts(path, text):
        write(path, text[:5])
        seen.append(fault.fallen)
        write(path, text)

    monkeypatch.setattr(Path, "write_text", in_two_parts)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    fault.passes("here", 7)
    assert seen == [None]
    assert fault.fallen == {"pid": os.getpid(), "reached": 7}


def test_who_is_stopped_just_before_the_end_is_woken(tmp_path, monkeypatch):
    """The watcher looks, finds nothing and sleeps until the block has ended."""
    signals, sleeping, ended = [], threading.Event(), threading.Event()

    def sleep(_):
        sleeping.set()
        ended.wait()

    clock = SimpleNamespace(time=lambda: math.inf, sleep=sleep)
    own = SimpleNamespace(Thread=threading.Thread, Event=lambda: ended)
    monkeypatch.setattr(faults, "time", clock)
    monkeypatch.setattr(faults, "threading", own)
    monkeypatch.setattr(os, "kill", lambda *call: signals.append(call))
    with woken(tmp_path, 0.01):
        sleeping.wait()
        Fault(tmp_path, "late", signal=signal.SIGSTOP).passes("late")
    assert signals == [(os.getpid(), signal.SIGSTOP), (os.getpid(), signal.SIGCONT)]
