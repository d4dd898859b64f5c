"""Fault injection: a worker's Python process kills itself for real at a step of the log."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Strike:
    """Kill the Python process of a task once, when it has gone through so many tuples.

    Attributes
    ----------
    task : int
    after : int
        Tuples.
    notes : Path
        Folder of the note that stays behind, and by which a second try is spared.
    """

    task: int
    after: int
    notes: Path

    @property
    def note(self) -> Path:
        """File that says which process died, and how many tuples it had gone through."""
        return self.notes / f"struck-{self.task}.json"

    def at(self, task: int, tuples: int) -> None:
        """End this process by SIGKILL if it is its turn."""
        if task == self.task and tuples >= self.after and not self.note.exists():
            self.note.write_text(json.dumps({"pid": os.getpid(), "tuples": tuples}))
            os.kill(os.getpid(), signal.SIGKILL)
