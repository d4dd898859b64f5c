"""What the tasks of a strategy leave in its folder: every try, and the times of the last one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd

from aftlib.core.paths import write_whole
from aftlib.shared_state.stream.intake import Intake, noted

LEFT = ("task-*.json", "part-*.json", "try-*.json", "checkpoint-*", "result-*", "mail-*")


def require_fresh(directory: Path) -> None:
    """Refuse, by a ValueError, a folder that holds another run's notes: they would count here."""
    left = next((path.name for pattern in LEFT for path in directory.glob(pattern)), None)
    if left is not None:
        raise ValueError(
            f"directory must be without another run's notes, got {str(directory)!r}, which holds "
            f"{left}: give every run a folder of its own, or remove them"
        )


def note_try(directory: Path, task: int, number: int, **found: Any) -> None:
    """Say how far try `number` of a task has come; a later note of the same try replaces it."""
    noted = {"task": task, "attempt": number, **found}
    (directory / f"try-{task}-{number}.json").write_text(json.dumps(noted))


def tries(directory: Path) -> list[dict]:
    """Last note of every try."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob("try-*.json"))]


def note_task(
    directory: Path, task: int, intake: Intake, began: float, merge_s: float = 0.0
) -> None:
    """Leave the times of a task that is through."""
    times = {"began": began, "ended": time.time(), **intake.seconds, "merge": merge_s}
    found = {"task": task, "tuples": intake.tuples, **times}
    write_whole(directory / f"task-{task:05d}.json", json.dumps(found))


def reports(directory: Path, begin: float) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Partitions, tasks and malformed lines of a run that began at a time."""
    partitions, rejects = noted(directory)
    paths = sorted(directory.glob("task-*.json"))
    tasks = pd.DataFrame([json.loads(path.read_text()) for path in paths])
    tasks[["began", "ended"]] -= begin
    return partitions, tasks, rejects
