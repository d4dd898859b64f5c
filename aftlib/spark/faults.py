"""Fault injection: processes are killed or paused at a point of their work.

A schedule is a tuple of `Fault`; an `Injector` injects them, in the target itself or from outside.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

TICK_S = 0.002


@dataclass(frozen=True)
class Fault:
    """One fault: its kind, its target process, and the step of this process at which it hits.

    `kind` is a method of the injector, such as "kill" or "pause". `target`
    names a process by its role, and its number where there are several, such as ``worker-3``,
    ``server-0``, ``driver``, ``primary``. `step` counts the target's progress: steps, tuples,
    results or micro-batches; `point` names the place in its work, if there are several.
    """

    kind: str = "kill"
    target: str = "driver"
    step: int = 0
    point: str = ""
    lasts_s: float = 0.0  # of a pause; a pause of 0 lasts until somebody ends it
    event: int = 0  # faults of one event have the same number


@dataclass(frozen=True)
class Injector:
    """Injects each fault of a schedule once: into the process that first comes to its point.

    A marker file in `directory` is written before the fault is injected; because of this file,
    later processes at the same point are not hit. A kind without a method is a ValueError.
    """

    directory: Path
    schedule: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        for fault in self.schedule:
            if fault.kind.startswith("_") or not callable(getattr(type(self), fault.kind, None)):
                raise ValueError(
                    f"kind must name a method of {type(self).__name__} such as 'kill' or 'pause', "
                    f"got {fault!r}"
                )

    def marker(self, fault: Fault) -> Path:
        """Marker file of a fault."""
        about = (fault.kind, fault.target, fault.point, str(fault.step))
        return self.directory / f"fault-{'-'.join(filter(None, about))}.json"

    def injected(self, fault: Fault) -> dict[str, int] | None:
        """Return ``pid`` and ``reached`` of the process that a fault hit; None if it hit none."""
        marker = self.marker(fault)
        return json.loads(marker.read_text()) if marker.exists() else None

    @property
    def count(self) -> int:
        """Number of injected faults of the schedule; several faults at one point count once."""
        return sum(marker.exists() for marker in {*map(self.marker, self.schedule)})

    def part(self, target: str, steps: range) -> Injector:
        """Return an injector for the faults of one target at some steps."""
        own = (f for f in self.schedule if f.target == target and f.step in steps)
        return replace(self, schedule=tuple(own))

    def reach(self, target: str, step: int = 0, point: str = "") -> None:
        """Inject the due faults into this process, a target that has come to a step or point."""
        for fault in self.schedule:
            there = (fault.target, fault.point) == (target, point) and step >= fault.step
            if there and not self.marker(fault).exists():
                self.inject(fault, os.getpid(), step)

    def inject(self, fault: Fault, pid: int, reached: int = 0) -> None:
        """Write the marker file, then inject a fault into a process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = self.directory / f".{os.getpid()}-{threading.get_ident()}"
        draft.write_text(json.dumps({"pid": pid, "reached": reached}))
        draft.replace(self.marker(fault))  # whole or absent: others poll it
        getattr(self, fault.kind)(fault, pid)

    def kill(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Send SIGKILL, which nothing can catch."""
        os.kill(pid, signal.SIGKILL)

    def pause(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Stop the whole process, heartbeats included; `resuming` lets it go on."""
        os.kill(pid, signal.SIGSTOP)

    @contextmanager
    def resuming(self) -> Iterator[None]:
        """Resume each paused process after its time, and all of them when the block ends."""
        over = threading.Event()

        def watch() -> None:
            pauses = {f for f in self.schedule if f.kind == "pause" and f.lasts_s > 0}
            while True:
                is_over = over.is_set()  # read first, so that a pause just before the end is found
                waiting = {fault for fault in pauses if self.marker(fault).exists()}
                if is_over and not waiting:
                    return
                for fault in waiting:
                    marker = self.marker(fault)
                    if time.time() - marker.stat().st_mtime >= fault.lasts_s:
                        with suppress(ProcessLookupError):
                            os.kill(json.loads(marker.read_text())["pid"], signal.SIGCONT)
                        pauses.remove(fault)
                time.sleep(TICK_S)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
