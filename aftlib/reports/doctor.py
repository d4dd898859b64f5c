"""What this machine brings for a run, and for each thing that is missing the way out."""

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

PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "scipy", "plotly", "papermill", "nbconvert")
OLDEST_PYTHON = (3, 11)
ENOUGH_MEMORY = 4.0  # GiB: the JVM's 2, as much again for the Python workers and the notebook
ENOUGH_DISK = 5.0  # GiB


@dataclass(frozen=True)
class Check:
    """One finding about the machine.

    Attributes
    ----------
    name
        What was looked at.
    value
        What was found, ready to print.
    ok
        False only where a run would fail or suffer.
    way_out
        What to do about it; empty where there is nothing to do.
    """

    name: str
    value: str
    ok: bool
    way_out: str = ""


def diagnose() -> list[Check]:
    """Return every check, in the order to print them in. Starts no Spark; takes under a second."""
    return [
        _python(),
        *(_package(name) for name in PACKAGES),
        _java(),
        _memory(),
        _cores(),
        _master(),
        _disk(),
        _browser(),
    ]


def _check(name: str, value: str, ok: bool, way_out: str) -> Check:
    """Return a `Check` that only carries its way out if it is needed."""
    return Check(name, value, ok, "" if ok else way_out)


def _python() -> Check:
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return _check(
        "Python",
        f"{platform.python_version()} ({sys.executable})",
        sys.version_info >= OLDEST_PYTHON,
        f"install Python {wanted} or newer, then `make setup PYTHON=/path/to/python{wanted}`",
    )


def _package(name: str) -> Check:
    way_out = "run `make setup`, or `pip install --require-hashes -r requirements.lock`"
    try:
        return _check(name, version(name), True, way_out)
    except PackageNotFoundError:
        return _check(name, "not installed", False, way_out)


def _java() -> Check:
    from aftlib.spark.java import find_java

    try:
        java = find_java()
    except FileNotFoundError as error:
        return Check("Java", "none usable", False, str(error))
    return Check("Java", f"{java.version} from {java.origin} ({java.home})", True)


def _memory() -> Check:
    total = min(_memory_limits()) / 2**30
    return _check(
        "memory",
        f"{total:.1f} GiB",
        total >= ENOUGH_MEMORY,
        f"with less than {ENOUGH_MEMORY:.0f} GiB set AFT_DRIVER_MEMORY=1g and run one notebook "
        "at a time (`aft reproduce --jobs 1`)",
    )


def _memory_limits() -> Iterator[int]:
    """Yield the machine's memory, and the container's part of it if there is a limit, in bytes."""
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file() and (limit := container.read_text().strip()) != "max":
        yield int(limit)


def _cores() -> Check:
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return Check("cores", str(cores), True)


def _master() -> Check:
    from aftlib.spark.session import master

    origin = "AFT_MASTER" if os.environ.get("AFT_MASTER") else "the default; AFT_MASTER changes it"
    return Check("Spark master", f"{master()} ({origin})", True)


def _disk() -> Check:
    try:
        place = data_dir()
    except FileNotFoundError as error:
        return Check("disk", "no data directory", False, str(error))
    free = shutil.disk_usage(_existing(place)).free / 2**30
    return _check(
        "disk",
        f"{free:.0f} GiB free for {place}",
        free >= ENOUGH_DISK,
        f"free {ENOUGH_DISK:.0f} GiB there (everything in data/ can be deleted: it is made anew)",
    )


def _existing(path: Path) -> Path:
    """Return `path` or its nearest parent that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def _browser() -> Check:
    from aftlib.reports.browser import find_browser

    name = "browser"
    try:
        found = find_browser()
    except FileNotFoundError as error:
        return Check(name, "none", False, str(error))
    return Check(name, found or "none (only the pictures of reports/README.md want one)", True)
