"""Fault injection: a process ends itself by a real signal, once, at a point of its work."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TICK_S = 0.002


@dataclass(frozen=True)
class Fault:
    """Signal the process that first comes to a point, and only that one.

    A note of the process stays behind, written before the signal; by it, later processes that pass
    the same point are spared.
    """

    notes: Path  # folder of the note, made when missing
    point: str  # name of the point, such as "task-1"
    after: int = 0  # steps, tuples or batches that the process must have gone through by then
    signal: int = signal.SIGKILL  # which nothing can catch; or SIGSTOP

    @property
    def note(self) -> Path:
        """File that says which process was signalled, and how much it had gone through."""
        return self.notes / f"fault-{self.point}-{self.after}.json"

    @property
    def fallen(self) -> dict[str, int] | None:
        """The note: ``pid`` and ``reached``; None while the fault has not fallen."""
        return json.loads(self.note.read_text()) if self.note.exists() else None

    def passes(self, point: str, reached: int = 0) -> None:
        """Signal this process if it is its turn."""
        if point != self.point or reached < self.after or self.note.exists():
            return
        self.notes.mkdir(parents=True, exist_ok=True)
        draft = self.notes / f".{os.getpid()}"
        draft.write_text(json.dumps({"pid": os.getpid(), "reached": reached}))
        draft.replace(self.note)  # whole or not there: others look for it all the time
        os.kill(os.getpid(), self.signal)


@contextmanager
def woken(notes: Path, after_s: float) -> Iterator[None]:
    """Let what faults have stopped, as their notes in a folder say, go on after some seconds.

    When the block ends, whoever stands still then is woken, too.
    """
    over = threading.Event()

    def watch() -> None:
        awake = set[Path]()
        while True:
            ended = over.is_set()  # asked for first: what falls before the end is seen
            waiting = {*notes.glob("fault-*.json")} - awake
            if ended and not waiting:
                return
            for note in waiting:
                if time.time() - note.stat().st_mtime >= after_s:
                    with suppress(ProcessLookupError):
                        os.kill(json.loads(note.read_text())["pid"], signal.SIGCONT)
                    awake.add(note)
            time.sleep(TICK_S)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
