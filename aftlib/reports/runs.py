"""The store of runs: a folder for each, named by what its result depends on, never overwritten.

``reports/runs/<notebook>/<key>/`` holds the executed notebook, its report, ``run.json`` and
``tables/``. There is no database: what the folders hold is all there is.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aftlib.core.paths import atomic_directory, project_root, reports_dir, require_writable
from aftlib.reports.execute import OnCell, execute
from aftlib.reports.executed import Executed
from aftlib.reports.html import write_report
from aftlib.reports.notebook import Notebook, find_notebook
from aftlib.reports.parameter_cell import read_parameters

RECORD, TABLES = "run.json", "tables"
KEY_LENGTH = 12  # digits of the key that name a folder
FIELDS = {"parameters", "changed", "profile", "claims", "error", "started", "seconds"}
"""What a record must have to be that of a run; what else it may lack is told as missing."""


@dataclass(frozen=True)
class Run:
    """A run that is kept in `folder`."""

    folder: Path

    @property
    def notebook(self) -> str:
        """The name of the notebook that was run."""
        return self.folder.parent.name

    @property
    def name(self) -> str:
        """What it is called on the command line: notebook and key."""
        return f"{self.notebook}/{self.folder.name}"

    @property
    def page(self) -> Path:
        """Its report."""
        return self.folder / f"{self.notebook}.html"

    @cached_property
    def record(self) -> dict[str, Any]:
        """What ``run.json`` holds."""
        return json.loads((self.folder / RECORD).read_text(encoding="utf-8"))

    @property
    def verdicts(self) -> dict[str, str]:
        """Its verdicts by claim."""
        return {claim["id"]: claim["verdict"] for claim in self.record["claims"]}

    def exists(self) -> bool:
        """Whether there is such a run: its record can be read, and is neither cut short nor old."""
        try:
            return isinstance(self.record, dict) and self.record.keys() >= FIELDS
        except (OSError, ValueError):
            return False

    def executed(self) -> Executed:
        """Return its executed notebook."""
        return Executed.read(self.folder / f"{self.notebook}.ipynb")


def runs_dir() -> Path:
    """Return the folder of all kept runs (it may not exist)."""
    return reports_dir() / "runs"


def file_stem(parts: Sequence[str]) -> str:
    """Return `parts` as the name of a page: cut, with their hash, where a file's may be no longer.

    >>> file_stem(["a", "b"])
    'a-b'
    """
    name = "-".join(parts)
    digest = hashlib.sha256(name.encode()).hexdigest()[:KEY_LENGTH]
    return name if len(name.encode()) <= 150 else f"{parts[0][:100]}-{digest}"


def kept_run(notebook: Notebook, parameters: Mapping[str, Any]) -> Run | None:
    """Return the kept run of `notebook` with `parameters` as all is now; None if none went well."""
    run = Run(runs_dir() / notebook.name / notebook.key(parameters)[:KEY_LENGTH])
    return run if run.exists() and not run.record["error"] else None


def all_runs() -> list[Run]:
    """Return every kept run, the newest first; without what has no record that can be read."""
    runs = [Run(folder) for folder in run_folders()]
    runs = [run for run in runs if run.exists()]
    return sorted(runs, key=lambda run: (run.record["started"], run.name), reverse=True)


def run_folders() -> list[Path]:
    """Return the folder of each run, also where its record is broken."""
    found = (path.parent for path in runs_dir().glob(f"*/*/{RECORD}"))
    return sorted(folder for folder in found if not folder.name.startswith("."))


def find_run(wanted: str) -> Run:
    """Return the run called `wanted`: the beginning of its key or of NOTEBOOK/KEY, or a notebook.

    A notebook stands for its newest run, and ``last`` for the newest of all. ValueError when there
    is none, or several.
    """
    runs = all_runs()
    if wanted == "last" and runs:
        return runs[0]
    notebook, slash, key = wanted.rpartition("/")
    try:
        named, known = find_notebook(notebook if slash else wanted).name, True
    except ValueError:
        named, known = notebook if slash else wanted, False
    newest = [run for run in runs if run.notebook == named and not slash]
    keyed = [
        run
        for run in runs
        if run.folder.name.startswith(key) and (not slash or run.notebook == named)
    ]
    found = newest[:1] or (keyed if key and (slash or not known) else [])
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(run.name for run in found)
        raise ValueError(f"run {wanted!r} may be any of {names}: give more of the key")
    if not runs:
        raise ValueError(f"no run {wanted!r}, for none is kept yet: `aft run 02` keeps one")
    raise ValueError(f"no run {wanted!r}: `aft runs` lists the {len(runs)} that are kept")


def run_once(
    notebook: Notebook,
    parameters: Mapping[str, Any],
    profile: str = "",
    on_cell: OnCell | None = None,
) -> Run:
    """Run `notebook` with checked `parameters` and keep the run, or return the one that is kept.

    One that failed is kept too, until the next try.
    """
    if (known := kept_run(notebook, parameters)) is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="aft-") as scratch:
        executed = run_aside(notebook, parameters, Path(scratch), profile, on_cell)
        return keep(executed, Path(scratch) / TABLES)


def run_aside(
    notebook: Notebook,
    parameters: Mapping[str, Any],
    folder: Path,
    profile: str = "",
    on_cell: OnCell | None = None,
) -> Executed:
    """Run `notebook` in `folder`, outside of the store, with its tables beside."""
    require_writable(runs_dir())
    target = folder / f"{notebook.name}.ipynb"
    return execute(notebook, parameters, target, profile, on_cell, folder / TABLES)


def keep(executed: Executed, tables: Path) -> Run:
    """Put a run into the store, unless one of the same key is there that went well.

    What is left of a run, such as a folder without its record, makes way.
    """
    record, name = executed.record, executed.record["name"]
    run = Run(runs_dir() / name / record["key"][:KEY_LENGTH])
    if run.exists() and not run.record["error"]:
        return run
    if run.folder.exists():
        shutil.rmtree(run.folder)
    with atomic_directory(run.folder) as folder:
        shutil.copyfile(executed.path, folder / f"{name}.ipynb")
        if tables.is_dir():
            shutil.copytree(tables, folder / TABLES)
        write_report(executed, folder / f"{name}.html", root="../../../")
        text = json.dumps(_told(executed), ensure_ascii=False, indent=1, default=str)
        (folder / RECORD).write_text(text + "\n", encoding="utf-8")
    return Run(run.folder)


def _told(executed: Executed) -> dict[str, Any]:
    """Return what ``run.json`` says of a run."""
    record = executed.record
    defaults = {name: p.default for name, p in read_parameters(executed.content).items()}
    values = record["parameters"]
    return {
        "notebook": record["name"],
        "key": record["key"],
        "profile": record["profile"],
        "changed": {n: v for n, v in values.items() if n not in defaults or v != defaults[n]},
        "seed": values.get("seed"),
        "parameters": values,
        "error": executed.error,
        "claims": [asdict(settled) for settled in executed.settled],
        "started": record["started"],
        "seconds": record["seconds"],
        "versions": record["versions"],
        **commit(),
        "machine": machine(),
    }


def commit() -> dict[str, Any]:
    """Return the commit of the project and whether there were changes on top; None without git."""
    said = []
    for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain")):
        command = ["git", "-C", str(project_root()), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return {"commit": None, "dirty": None}
        if done.returncode:
            return {"commit": None, "dirty": None}
        said.append(done.stdout.strip())
    return {"commit": said[0], "dirty": bool(said[1])}


def machine() -> dict[str, Any]:
    """Return what times depend on; not the machine's name, for reports are passed on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    model = ""
    if (about := Path("/proc/cpuinfo")).is_file():
        lines = about.read_text(errors="replace").splitlines()
        model = next((ln.partition(":")[2].strip() for ln in lines if ln[:10] == "model name"), "")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30, 1),
    }
