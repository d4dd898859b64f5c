"""What a job's folder was begun with: its state stands for that, and for nothing else."""

from __future__ import annotations

import json
from typing import Any

from aftlib.paths import atomic_file
from aftlib.sharing.job import Job

IDENTITY = "job.json"


def keep_to(job: Job) -> None:
    """Note in the job's folder what it is, or refuse it if another one began there.

    Raises
    ------
    ValueError
        When the log, its delay, the windows, the aggregate, the servers or keys_apart differ.
    """
    job.directory.mkdir(parents=True, exist_ok=True)
    path, now = job.directory / IDENTITY, identity(job)
    if not path.exists():
        with atomic_file(path) as scratch:
            scratch.write_text(json.dumps(now))
    before = json.loads(path.read_text())
    differ = [name for name in now if before.get(name) != now[name]]
    if differ:
        said = "; ".join(f"{name} was {before.get(name)!r}, is {now[name]!r}" for name in differ)
        raise ValueError(
            f"job in {str(job.directory)!r} was begun as another one ({said}): its state stands "
            "for what it was begun with; go on with that, or choose a new directory and schema"
        )


def identity(job: Job) -> dict[str, Any]:
    """What the state of a job depends on, as JSON has it."""
    return {
        "log": getattr(job.source, "identity", None),  # sources of no files need not have one
        "partitions": job.source.partitions,
        "width": job.windows.width,
        "slide": job.windows.slide,
        "aggregate": job.aggregate,
        "servers": job.servers,
        "keys_apart": job.keys_apart,
    }
