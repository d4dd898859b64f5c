"""Fault injection: processes are killed, or tasks stopped, at a point of their work.

A schedule is a tuple of `Fault`; an `Injector` injects them in the target itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aftlib.core.checks import require_choice


class TaskStopped(RuntimeError):
    """An injected failure of a task's thread."""


def kill_process(target: str) -> None:
    """Send SIGKILL to this process, which nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop_task(target: str) -> None:
    """End the calling thread by an error."""
    raise TaskStopped(f"{target} was ended on purpose")


#: What a fault of each kind does to its target.
KINDS: dict[str, Callable[[str], None]] = {"kill": kill_process, "stop": stop_task}


@dataclass(frozen=True)
class Fault:
    """One fault: its kind, its target, and the step of the target from which on it hits.

    `kind` is one of `KINDS`. `target` names a process or a task by its role, and its number where
    there are several, such as ``server-0`` or ``driver``. `step` counts the target's progress:
    steps, tuples or micro-batches; a target that passes it without a report is hit at its next
    one. `point` names the place in its work, if there are several.

    ValueError for a kind that does not exist.
    """

    kind: str = "kill"
    target: str = "driver"
    step: int = 0
    point: str = ""

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, KINDS)


@dataclass(frozen=True)
class Injector:
    """Injects each fault of a schedule once: into the target that first comes to its point.

    A marker file in `directory` is written before the fault is injected; because of this file,
    later processes at the same point are not hit.
    """

    directory: Path
    schedule: tuple[Fault, ...] = ()

    def marker(self, fault: Fault) -> Path:
        """Marker file of a fault."""
        about = (fault.kind, fault.target, fault.point, str(fault.step))
        return self.directory / f"fault-{'-'.join(filter(None, about))}"

    def injected(self, fault: Fault) -> bool:
        """Whether a fault has been injected."""
        return self.marker(fault).exists()

    def reach(self, target: str, step: int = 0, point: str = "") -> None:
        """Inject the due faults into this process, a target that has come to a step or point."""
        for fault in self.schedule:
            there = (fault.target, fault.point) == (target, point) and step >= fault.step
            if there and not self.injected(fault):
                self.directory.mkdir(parents=True, exist_ok=True)
                self.marker(fault).touch()
                KINDS[fault.kind](fault.target)
