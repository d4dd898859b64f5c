"""Where results come from: code, packages, inputs, machine."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from aftlib.core.paths import project_root

PACKAGE = Path(__file__).resolve().parents[1]
#: Packages that results may depend on.
PACKAGES = ("numpy", "pandas", "scipy", "numba", "pyarrow", "pyspark", "plotly")
#: Files of the library that results or their texts may depend on.
SUFFIXES = (".py", ".csv", ".json", ".properties", ".j2", ".css")


@cache
def library_hash() -> str:
    """Return the hash of the library's modules, templates and data tables."""
    return hash_files(path for path in PACKAGE.rglob("*") if path.suffix in SUFFIXES)


def find_checkout() -> Path | None:
    """Return the project's folder; None where the library alone is installed."""
    try:
        return project_root()
    except FileNotFoundError:
        return None


def inputs_hash(parameters: Mapping[str, Any]) -> str:
    """Return the hash of the files that notebooks read.

    These are the stored data, the stored measurements of benchmarks, and each file that one of the
    `parameters` names.
    """
    files = [Path(value) for value in parameters.values() if isinstance(value, str) and value]
    if root := find_checkout():
        files += [*root.glob("data/*.parquet"), *root.glob("benchmarks/results/*.json")]
    return hash_files(path for path in files if path.is_file())


def hash_files(paths: Iterable[Path]) -> str:
    """Return the hash of the files' names and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        contents = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.name} {contents}\n".encode())
    return digest.hexdigest()


def read_versions() -> dict[str, str]:
    """Return the versions of Python and of the `PACKAGES`."""
    installed = {one.name: one.version for one in distributions() if one.name in PACKAGES}
    return {"Python": platform.python_version()} | dict(sorted(installed.items()))


def read_commit() -> str:
    """Return the checkout's short commit, with ``+`` if tracked files have changed since.

    Reports do not count, because runs write them. Empty outside a checkout of git.
    """
    commit = _git("rev-parse", "--short=8", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!reports")
    return commit + "+" * bool(commit and changed)


def describe_machine() -> str:
    """Return the number of usable cores and the processor's name, without the host's name."""
    usable = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    return f"{len(usable)} cores, {_processor()}"


def _processor() -> str:
    """Return the processor's name; Linux has it in a file, elsewhere Python's `platform`."""
    table = Path("/proc/cpuinfo")
    if table.is_file():
        for line in table.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    """Return what git prints in the project's folder; empty if there is no git or no checkout."""
    root = find_checkout()
    if root is None:
        return ""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
