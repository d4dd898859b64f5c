"""What the tasks of a run leave in its folder: a note of every try, and times of the last one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import TaskContext

from aftlib.core.paths import atomic_file
from aftlib.shared_state.strategies.merging import Task
from aftlib.shared_state.stream.stretch import Stretch, by_partition, kept, reject_table

LEFT = ("task-*.json", "part-*.json", "try-*.json", "checkpoint-*", "result-*", "mail-*")


def require_fresh(directory: Path) -> None:
    """Refuse a folder that holds another run's notes, which would count as this one's.

    Raises
    ------
    ValueError
    """
    left = next((path.name for pattern in LEFT for path in directory.glob(pattern)), None)
    if left is not None:
        raise ValueError(
            f"directory must be without another run's notes, got {str(directory)!r}, which holds "
            f"{left}: give every run a folder of its own, or remove them"
        )


def require_shared(directory: object, master: str) -> None:
    """Refuse to let the tasks of other machines leave notes where only this one looks.

    Raises
    ------
    ValueError
    """
    if directory is None and not master.startswith("local"):
        raise ValueError(
            f"directory must be given where Spark runs on {master!r}, got None: name a folder "
            "that all its machines share"
        )


@contextmanager
def rejects_kept(task: Task, directory: Path) -> Iterator[None]:
    """Keep the malformed lines also of a try that they stop."""
    try:
        yield
    except (ValueError, OverflowError):
        for stretch in task.take()[1]:
            stretch.keep(directory)
        raise


def attempt() -> int:
    """Number of this try of the running Spark task; 0 outside of one."""
    context = TaskContext.get()
    return context.attemptNumber() if context else 0


def note_try(directory: Path, task: int, number: int, **found: Any) -> None:
    """Say how far try `number` of a task has come; a later note of the same try replaces it."""
    noted = {"task": task, "attempt": number, **found}
    (directory / f"try-{task}-{number}.json").write_text(json.dumps(noted))


def tries(directory: Path) -> list[dict]:
    """Last note of every try."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob("try-*.json"))]


def note_task(
    directory: Path,
    index: int,
    task: Task,
    began: float,
    stretches: list[Stretch],
    merge_s: float = 0.0,
) -> None:
    """Leave the times of a task that is through, and what it read."""
    for stretch in stretches:
        stretch.keep(directory)
    times = {"began": began, "ended": time.time(), **task.seconds}
    noted = {"task": index, "tuples": task.tuples, **times}
    with atomic_file(directory / f"task-{index:05d}.json") as scratch:
        scratch.write_text(json.dumps(noted | {"merge": merge_s}))


def reports(directory: Path, begin: float) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Partitions, tasks and malformed lines of a run that began at a time."""
    stretches = kept(directory)
    noted = [json.loads(path.read_text()) for path in sorted(directory.glob("task-*.json"))]
    tasks = pd.DataFrame(noted)
    tasks[["began", "ended"]] -= begin
    return by_partition(stretches), tasks, reject_table(stretches)
