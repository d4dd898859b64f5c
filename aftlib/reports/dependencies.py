"""What a notebook's results depend on, found without running it: modules, packages, data.

The key of a result is made of this, so that a result counts as long as nothing of it changed.
"""

from __future__ import annotations

import ast
import glob
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
# Only how results are shown, not what they are; verdicts and figures are in the notebook itself.
_PRESENTATION = ("reports/", "core/paths.py")
_RESULTS = ("reports/claims.py", "reports/style.py")
_OWN = re.compile(rf"{PACKAGE.name}(\.\w+)+(:\w+)?$", re.ASCII)
_NO_DATA = {".py", ".pyc", ".typed"}
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class Closure:
    """All that a notebook's code imports, directly and through what it imports."""

    files: tuple[Path, ...]  # modules of this project, and others that lie beside
    packages: tuple[str, ...]  # top-level names of the others, without the standard library
    named: tuple[Path, ...] = ()  # files that cells, or modules beside, name in a text or a magic


def closure(sources: Iterable[str], package: Path = PACKAGE, beside: Path | None = None) -> Closure:
    """Return what `sources`, the code of a notebook's cells, import.

    `package` is the folder of this library. Modules of one's own are followed too: those in the
    folder `beside`, by default the working directory, on PYTHONPATH, or installed to be edited. An
    import inside of a function counts, and so do the ``__init__`` files of the packages on the way,
    except the library's own: of its names only those that are imported are followed. What cannot be
    parsed imports nothing: it fails when it is run.
    """
    beside = Path.cwd() if beside is None else beside
    public = _imports((package / "__init__.py").read_text(encoding="utf-8"))
    pending: list[str] = []
    files: set[Path] = set()
    named: set[Path] = set()
    packages, seen = set(), set()

    def own(source: str, within: tuple[str, ...] = ()) -> None:
        taken = public if _takes_all(source, package.name) else ()
        pending.extend([*_imports(source, within), *taken])
        named.update(named_files(source, beside))

    for source in sources:
        own(source)
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        top, *rest = name.split(".")
        home, found = package.parent, _modules(package, rest)
        if top != package.name:
            tried = [(folder, _modules(folder, [top, *rest])) for folder in homes(top, beside)]
            home, found = next((pair for pair in tried if pair[1]), (beside, []))
            if not found and top not in sys.stdlib_module_names:
                packages.add(top)
        elif rest and not found:  # a public name: only its module is followed
            pending += [module for module in public if module.split(".")[-1] == rest[0]]
        for path in found:
            inside = path.relative_to(package).as_posix() if path.is_relative_to(package) else ""
            if path not in files and (inside in _RESULTS or not inside.startswith(_PRESENTATION)):
                files.add(path)
                if inside:
                    pending += _imports(path.read_text(encoding="utf-8"))
                else:
                    own(source_in(path), path.relative_to(home).parts[:-1])
    return Closure(tuple(sorted(files)), tuple(sorted(packages)), tuple(sorted(named)))


def homes(top: str, beside: Path) -> list[Path]:
    """Return the folders where a module `top` of one's own may lie, the first first.

    A package that was installed has its version instead, unless it was installed to be edited.
    """
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    found = [beside, *(Path(path).resolve() for path in paths)]
    try:
        spec = None if top in sys.stdlib_module_names else find_spec(top)
    except (ImportError, ValueError):  # one without a file
        spec = None
    if spec and spec.origin and spec.has_location:
        home = Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]
        found += [] if _INSTALLED & {*home.parts} else [home]
    return found


def named_files(source: str, beside: Path) -> list[Path]:
    """Return the files that code of one's own names: by path, or modules to be imported by name.

    It names them in a text or in the words of a magic. A folder is none: one that all is written to
    would change with each run.
    """
    texts = [
        node.value
        for tree in parsed(source)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    texts += [
        w for line in source.splitlines() if line.lstrip()[:1] in ("%", "!") for w in line.split()
    ]
    short = [text for text in texts if 0 < len(text) < 1000 and "\0" not in text]
    paths = [beside / way for text in short for way in (text, text.replace(".", "/") + ".py")]
    return [path for path in paths if os.path.isfile(path)]


def source_in(path: Path) -> str:
    """Return the code of one's own file in its encoding, nothing where that is broken."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, UnicodeDecodeError):  # it fails when it is run
        return ""


def _modules(folder: Path, parts: list[str]) -> list[Path]:
    """Return the files that importing `parts` of the package at `folder` runs, but its own."""
    found = []
    for part in parts:
        found += [folder / f"{part}.py", folder / part / "__init__.py"]
        folder = folder / part
    return [path for path in found if path.is_file()]


@lru_cache(maxsize=4096)  # several notebooks import the same modules
def _imports(source: str, within: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return each module that `source`, of the package `within`, imports, and what may be one."""
    found = []
    for node in (node for tree in parsed(source) for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = within[: len(within) + 1 - node.level] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)] if module else []
        elif isinstance(node, ast.Constant) and _OWN.match(str(node.value)):
            found.append(str(node.value).partition(":")[0])  # to be run or imported by its name
    return tuple(found)


def _takes_all(source: str, package: str) -> bool:
    """Whether `source` has the library itself by a name, and so any of its public names."""
    for node in (node for tree in parsed(source) for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            bound = [a.name if a.asname else a.name.partition(".")[0] for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            bound = [package for alias in node.names if alias.name == "*"]
        else:
            continue
        if package in bound:
            return True
    return False


def parsed(source: str) -> list[ast.Module]:
    """Return the code of a cell as a tree, without its magics; nothing when it is no Python."""
    lines = source.splitlines()
    plain = "\n".join("pass" if line.lstrip()[:1] in ("%", "!") else line for line in lines)
    try:
        return [ast.parse(plain)]
    except SyntaxError:
        return []


def code_hash(files: Iterable[Path], root: Path = PACKAGE) -> str:
    """Return the hash of what the Python `files` do: neither comments nor docstrings count."""
    digest = hashlib.sha256()
    for path in sorted(files):
        status = path.stat()
        digest.update(f"{os.path.relpath(path, root)}\0".encode())
        digest.update(_meaning(path, status.st_mtime_ns, status.st_size))
    return digest.hexdigest()


@cache
def _meaning(path: Path, *state: int) -> bytes:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # no Python: it fails when it is run
        return hashlib.sha256(path.read_bytes()).digest()
    for node in ast.walk(tree):
        match getattr(node, "body", None):
            case [ast.Expr(ast.Constant(str())), *rest]:
                node.body = rest  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).digest()


def package_data(files: Iterable[Path]) -> list[Path]:
    """Return what lies beside the modules `files` and below, such as tables, and is no Python."""
    folders = {path.parent for path in files if path.is_relative_to(PACKAGE)} - {PACKAGE}
    folders = {folder for folder in folders if folder.name != "reports"}
    below = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    data = {path for path in below if path.suffix not in _NO_DATA}
    return sorted(path for path in data if "__pycache__" not in path.parts)


@lru_cache(maxsize=1)
def _distributions(*state: tuple[str, int | None]) -> Mapping[str, list[str]]:
    """Return what distributions bring each package, as long as the folders' `state` is the same."""
    return importlib.metadata.packages_distributions()


def _changed(folder: str) -> int | None:
    """Return when something was last put into `folder`; None where there is none."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return None


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of the distributions that bring the given packages.

    A package that is not installed is "none", so that installing it counts.
    """
    brought = _distributions(*((folder, _changed(folder)) for folder in sys.path))
    names = {name for package in packages for name in brought.get(package, [package])}
    found = {"Python": platform.python_version()}
    for name in sorted(names, key=str.lower):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def content_hashes(value: Any) -> list[str]:
    """Return the hashes of the contents of the files and folders that `value` names.

    `value` is a parameter's, plain, a list or a mapping; what names no file gives nothing. A folder
    counts with all that is in it, also by links.
    """
    if isinstance(value, Mapping):
        return content_hashes([*value.values()])
    if isinstance(value, list | tuple):
        return [found for part in value for found in content_hashes(part)]
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


@lru_cache(maxsize=4096)
def _content(path: Path, *state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
