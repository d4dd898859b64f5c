"""Fault injection: a worker's Python process kills itself for real at a step of the log."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from aftlib.recovery import Outage


def strike(outage: Outage, notes: Path) -> None:
    """End this process by SIGKILL, which nothing can catch; a note of the process stays behind."""
    note = _note(notes, outage)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"pid": os.getpid()}))
    os.kill(os.getpid(), signal.SIGKILL)


def dead_pid(outage: Outage, notes: Path) -> int | None:
    """Process that `strike` ended for this outage; None when another hand killed it."""
    note = _note(notes, outage)
    return json.loads(note.read_text())["pid"] if note.exists() else None


def _note(notes: Path, outage: Outage) -> Path:
    return notes / f"strike-{outage.worker}-{outage.failure}.json"
