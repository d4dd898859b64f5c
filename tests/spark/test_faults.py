"""Faults: who looks for their notes finds them whole, and nobody is left standing still."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

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
    struck = []
    monkeypatch.setattr(faults, "TICK_S", 0.1)
    monkeypatch.setattr(os, "kill", lambda *call: struck.append(call))
    with woken(tmp_path, 0.01):
        time.sleep(0.02)  # it is not looking just now
        Fault(tmp_path, "late", signal=signal.SIGSTOP).passes("late")
    assert struck == [(os.getpid(), signal.SIGSTOP), (os.getpid(), signal.SIGCONT)]
