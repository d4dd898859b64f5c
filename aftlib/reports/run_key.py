"""The key of a run: a hash of everything that its results depend on.

That is the library's source, the lock file with the installed versions, the notebook's cells, its
parameters, and the contents of the files that parameters and cells name.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat

from aftlib.core.paths import project_root

PACKAGE = Path(__file__).resolve().parents[1]
LOCK = "requirements.lock"
PACKAGES = ("numpy", "pandas", "scipy", "numba", "pyarrow", "pyspark", "plotly")
SETTINGS = ("AFT_MASTER",)  # of the environment: where Spark runs
_NOT_SOURCE = {"templates", "__pycache__"}  # how pages look; what Python and numba compiled


def run_key(content: nbformat.NotebookNode, values: Mapping[str, Any]) -> str:
    """Return the key of a run of the notebook `content` with the parameters `values`.

    Files that a cell names by a relative path, and Python files that it may import, count where
    they lie in the working directory, in which kernels run.
    """
    cells = [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in content.cells]
    code = [cell.source for cell in content.cells if cell.cell_type == "code"]
    data = [*Path.cwd().glob("*.py"), *_named_files(code), *values.values()]
    settings = [os.environ.get(name) or None for name in SETTINGS]
    lock = content_hashes(project_root() / LOCK)
    parts = (cells, values, library_hash(), lock, versions(), content_hashes(data), settings)
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def library_hash(package: Path = PACKAGE) -> str:
    """Return the hash of the library's modules and of the tables beside them."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if not _NOT_SOURCE & {*name.parts} and path.is_file():
            state = path.stat()
            digest.update(f"{name} {_content(path, state.st_mtime_ns, state.st_size)}\n".encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of Python and of `PACKAGES`; "none" for one that is not installed."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def content_hashes(value: Any) -> list[str]:
    """Return the hashes of the contents of the files and folders that `value` names.

    `value` is a parameter's, plain, a list or a mapping; what names no file gives nothing. A folder
    counts with everything in it, also through links.
    """
    if isinstance(value, Mapping):
        return content_hashes([*value.values()])
    if isinstance(value, list | tuple):
        return [digest for part in value for digest in content_hashes(part)]
    if not isinstance(value, str | os.PathLike) or not 0 < len(os.fspath(value)) < 4096:
        return []
    path = Path(value)
    inside = glob.glob("**", root_dir=path, recursive=True, include_hidden=True)
    files = sorted(path / name for name in inside) if path.is_dir() else [path]
    states = {part: part.stat() for part in files if part.is_file()}
    return [
        f"{part.relative_to(path)} {_content(part, state.st_mtime_ns, state.st_size)}"
        for part, state in states.items()
    ]


def _named_files(code: Iterable[str]) -> list[Path]:
    """Return the files that cells name in a text or a magic; a folder would change with runs."""
    words = {word for cell in code for word in [*re.split(r"[\"'\n]", cell), *cell.split()]}
    short = (word for word in sorted(words) if 0 < len(word) < 1000 and "\0" not in word)
    return [Path(word) for word in short if os.path.isfile(word)]


@lru_cache(maxsize=4096)
def _content(path: Path, *state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
