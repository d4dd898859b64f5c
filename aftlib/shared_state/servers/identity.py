"""What a job's folder was begun with: its state stands for that, and for nothing else."""

from __future__ import annotations

import json
import uuid
from typing import Any

from aftlib.core.paths import atomic_file
from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.stores.opening import claim
from aftlib.shared_state.stores.tables import StateTable

IDENTITY = "job.json"


def keep_to(job: Job) -> None:
    """Note in the job's folder what it is, or refuse it if another one began there.

    Raises
    ------
    ValueError
        When the log, its delay, the windows, the aggregate, the kind of the servers' own stores,
        the servers or keys_apart differ.
    """
    job.directory.mkdir(parents=True, exist_ok=True)
    path, now = job.directory / IDENTITY, identity(job)
    if not path.exists():
        with atomic_file(path) as scratch:
            scratch.write_text(json.dumps(now | {"id": uuid.uuid4().hex}, default=str))
    before = json.loads(path.read_text())
    differ = [name for name in now if before.get(name) != now[name]]
    if differ:
        said = "; ".join(f"{name} was {before.get(name)!r}, is {now[name]!r}" for name in differ)
        raise ValueError(
            f"job in {str(job.directory)!r} was begun as another one ({said}): its state stands "
            "for what it was begun with; go on with that, or choose a new directory and schema"
        )


def keep_table_to(table: StateTable, job: Job) -> None:
    """Note in the global store which job's folder it belongs to, or refuse that of another.

    Raises
    ------
    ValueError
    """
    claim(table, f"job {json.loads((job.directory / IDENTITY).read_text())['id']}")


def identity(job: Job) -> dict[str, Any]:
    """What the state of a job depends on, as JSON has it."""
    return {
        "log": getattr(job.source, "identity", None),  # sources of no files need not have one
        "partitions": job.source.partitions,
        "width": job.windows.width,
        "slide": job.windows.slide,
        "aggregate": job.aggregate,
        "own": job.own,
        "servers": job.servers,
        "keys_apart": job.keys_apart,
    }
