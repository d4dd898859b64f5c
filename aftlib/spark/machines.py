"""What the machines of a cluster share: a folder with its locks, or all, because they are one."""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from aftlib.spark.sweep import by_number

_SHARED: set[tuple[str, Path]] = set()
"""Application and folder of what was found to be shared."""
_OTHERS: dict[str, set[str]] = {}
"""Hosts that are other machines, by application."""
_SCHEMA = "machine string, host string, trouble string"


def require_shared(spark: SparkSession, *folders: Path | str) -> None:
    """Refuse a folder that not all machines of the cluster share; a local master has one only.

    Looked at from tasks, once an application: they must read what the driver wrote there, write
    beside it, and find the driver's lock held. Folders are made when missing; those in a folder
    that is known to be shared are not looked at again. ValueError with what is amiss, and where.
    """
    if is_local(spark):
        return
    temporary = Path(tempfile.gettempdir()).resolve()
    for folder in (Path(folder).resolve() for folder in folders):
        place = temporary if folder.is_relative_to(temporary) else folder
        known = {at for app, at in _SHARED if app == spark.sparkContext.applicationId}
        if known & {place, *place.parents}:
            continue
        for _, host, trouble in look_from_tasks(spark, place):
            if trouble:
                raise ValueError(
                    f"folder must be one that all machines of {spark.sparkContext.master} share, "
                    f"got {str(place)!r}, which {host} {trouble}: name a folder on shared storage "
                    "with locks, such as NFS 4, and for temporary ones set TMPDIR to one"
                )
        _SHARED.add((spark.sparkContext.applicationId, place))


def other_machines(spark: SparkSession) -> set[str]:
    """Hosts of tasks that ran on another machine than this process, looked at once."""
    if is_local(spark):
        return set()
    application = spark.sparkContext.applicationId
    if application not in _OTHERS:
        found = look_from_tasks(spark, Path(tempfile.gettempdir()))
        _OTHERS[application] = {host for machine, host, _ in found if machine != this_machine()}
    return _OTHERS[application]


def look_from_tasks(spark: SparkSession, folder: Path) -> list[tuple[str, str, str]]:
    """Machine, host and trouble with a folder, if any, as tasks on all executors see it.

    There are twice as many tasks as the cluster runs at once, for each executor to get some.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tasks, token = 2 * spark.sparkContext.defaultParallelism, secrets.token_hex(16)
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".aft-shared-") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(token)
        file.flush()
        os.fsync(file.fileno())
        path = Path(file.name)

        def look(index: int) -> Iterator[pa.RecordBatch]:
            row = this_machine(), platform.node(), trouble_with(path, token, index)
            names = ["machine", "host", "trouble"]
            yield pa.RecordBatch.from_arrays([[each] for each in row], names=names)

        return [tuple(row) for row in by_number(spark, tasks, look, _SCHEMA).collect()]


def trouble_with(path: Path, token: str, index: int) -> str:
    """What hinders the work beside a file that another process holds locked; nothing if well."""
    mine = path.with_name(f"{path.name}-{index}")
    try:
        if path.read_text() != token:
            return "sees with something else in it"
        mine.write_text(token)
        mine.unlink()
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return "sees, but without the driver's lock"
    except BlockingIOError:
        return ""
    except OSError as error:
        with suppress(OSError):
            mine.unlink()
        return f"cannot read and write ({error.strerror})"


def this_machine() -> str:
    """A name that no other machine has: of its running kernel where that says one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else platform.node()


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run in this machine's one process of Spark."""
    return str(spark.sparkContext.master).startswith("local")
