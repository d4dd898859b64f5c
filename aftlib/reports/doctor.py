"""Parts of this machine that a run needs, and the fix for each one that is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aftlib.core.paths import data_dir
from aftlib.reports.export import find_browser
from aftlib.spark.java import find_java

PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "scipy", "plotly", "papermill", "nbconvert")
OLDEST_PYTHON = (3, 11)
ENOUGH_MEMORY = 4.0  # GiB: the JVM's 2, as much again for the Python workers and the notebook
ENOUGH_DISK = 5.0  # GiB


@dataclass(frozen=True)
class Check:
    """One finding about the machine."""

    name: str  # of the part that was checked
    value: str  # ready to print
    ok: bool = True  # False only where a run would fail or suffer
    fix: str = ""  # an instruction if it is not ok


def diagnose() -> list[Check]:
    """Return every check, in the order to print them in. Starts no Spark; takes under a second."""
    return [*_software(), *_machine()]


def _software() -> Iterator[Check]:
    wanted = ".".join(map(str, OLDEST_PYTHON))
    yield Check(
        "Python",
        f"{platform.python_version()} ({sys.executable})",
        sys.version_info >= OLDEST_PYTHON,
        f"install Python {wanted} or newer, then `make setup PYTHON=/path/to/python{wanted}`",
    )
    for name in PACKAGES:
        try:
            yield Check(name, version(name))
        except PackageNotFoundError:
            fix = "run `make setup`, or `pip install --require-hashes -r requirements.lock`"
            yield Check(name, "not installed", False, fix)
    try:
        java = find_java()
        yield Check("Java", f"{java.version} from {java.origin} ({java.home})")
    except FileNotFoundError as error:
        yield Check("Java", "none usable", False, str(error))


def _machine() -> Iterator[Check]:
    memory = min(memory_limits()) / 2**30
    yield Check(
        "memory",
        f"{memory:.1f} GiB",
        memory >= ENOUGH_MEMORY,
        f"with less than {ENOUGH_MEMORY:.0f} GiB run one notebook at a time "
        "(`aft reproduce --jobs 1`)",
    )
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    yield Check("cores", str(len(affinity(0)) if affinity else os.cpu_count() or 1))

    try:
        from aftlib.spark.session import master
    except ModuleNotFoundError:
        pass  # pyspark, reported above
    else:
        named = os.environ.get("AFT_MASTER")
        origin = "AFT_MASTER" if named else "the default; AFT_MASTER changes it"
        yield Check("Spark master", f"{master()} ({origin})")

    try:
        place = data_dir()
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        free = shutil.disk_usage(there).free / 2**30
        yield Check(
            "disk",
            f"{free:.0f} GiB free for {place}",
            free >= ENOUGH_DISK,
            f"free {ENOUGH_DISK:.0f} GiB there (data/ can be deleted: it is generated again)",
        )
    except FileNotFoundError as error:
        yield Check("disk", "no data directory", False, str(error))
    try:
        wanted_by = "only the pictures of reports/README.md need one"
        yield Check("browser", find_browser() or f"none ({wanted_by})")
    except FileNotFoundError as error:
        yield Check("browser", "none", False, str(error))


def memory_limits() -> Iterator[int]:
    """Yield the machine's memory and, if there is one, the container's limit, in bytes."""
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file() and (limit := container.read_text().strip()) != "max":
        yield int(limit)
