"""Running notebooks by papermill, in kernels of this very interpreter, and storing the runs."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from aftlib.core.paths import atomic_directory, atomic_file, project_root, require_writable
from aftlib.reports import data_out
from aftlib.reports.html import write_report
from aftlib.reports.notebook import Notebook, versions
from aftlib.reports.runs import KEY_LENGTH, RECORD, TABLES, Executed, Run, runs_dir, stored_run

OnCell = Callable[[int, int, str], None]
"""Called with the number of cells done, the number of all cells, and the current heading."""

START_S = 600
"""Longest wait for a kernel to answer; a busy machine can need more than papermill's minute."""

_ERROR_MARK = "papermill-error-cell-tag"
_live: set[_Kernel] = set()
_stops = 0  # how often `stop_all` was called


class _Kernel(AsyncKernelManager):
    """Starts this interpreter, whatever kernels are installed, and can be stopped from outside.

    Output outside of cells goes to the `log_file` of the subclass that `_run` makes, and
    `stops_before` is the number of stops before that run.
    """

    log_file: Path
    stops_before: int

    def __init__(self, **options: Any) -> None:
        # Sockets in the file system: jobs cannot collide on a port, and the path is short enough.
        self._folder = tempfile.TemporaryDirectory(prefix="aft-")
        file = os.path.join(self._folder.name, "kernel.json")
        super().__init__(transport="ipc", connection_file=file, **options)

    @property
    def kernel_spec(self) -> KernelSpec:
        package_home = str(Path(__file__).resolve().parents[2])
        search = [package_home, *filter(None, [os.environ.get("PYTHONPATH")])]
        launch = [sys.executable, "-m", "ipykernel_launcher", "--HistoryManager.enabled=False"]
        launch += ["--ext", data_out.__name__]  # captures the frames that are shown
        return KernelSpec(
            argv=[*launch, "-f", "{connection_file}"],
            display_name="Python",
            language="python",
            env={
                "AFT_HOME": str(project_root()),
                "JPY_SESSION_NAME": "",  # not open, even if started from an open notebook
                "PLOTLY_RENDERER": "plotly_mimetype",
                "PYTHONPATH": os.pathsep.join(search),
                "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore::FutureWarning"),
            },
        )

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        _live.add(self)
        with self.log_file.open("ab") as log:
            await super().start_kernel(stdout=log, stderr=log, **options)
        if _stops != self.stops_before:
            self.kill()

    async def cleanup_resources(  # type: ignore[override]
        self, restart: bool = False
    ) -> None:
        await super().cleanup_resources(restart=restart)
        if not restart:
            _live.discard(self)
            self._folder.cleanup()

    def kill(self) -> None:
        """Kill the kernel with all that it started, such as Spark's Java."""
        pid = getattr(self.provisioner, "pid", None)
        if pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


def execute(
    notebook: Notebook,
    parameters: Mapping[str, Any],
    target: Path,
    profile: str = "",
    on_cell: OnCell | None = None,
    tables: Path | None = None,
) -> Executed:
    """Run `notebook` with checked `parameters` and save it, with its record, as `target`.

    If the run succeeds and `tables` is given, the notebook's frames are stored in that folder. A
    notebook that fails is saved too, up to and with its error. A run that `stop_all` stopped raises
    KeyboardInterrupt and saves nothing: `target` stays as it was. If code or data change during the
    run, it gets a key that no other run has, because the version that it used is unknown.
    """
    started, stops = time.monotonic(), _stops
    record: dict[str, Any] = {
        "name": notebook.name,
        "profile": profile,
        "section": notebook.section,
        "parameters": notebook.values(parameters),
        "given": dict(parameters),
        "changed": notebook.changed(parameters, profile),
        "key": notebook.key(parameters),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        **commit(),
        "machine": machine(),
    }
    with atomic_file(target) as scratch:
        content = copy.deepcopy(notebook.content)
        if tables is not None:
            content.cells.append(data_out.capture_cell(tables))
        error = _run(content, parameters, scratch, on_cell)
        if _stops != stops:
            raise KeyboardInterrupt
        try:
            key = notebook.key(parameters)
        except OSError:  # a module is gone
            key = ""
        if key != record["key"]:
            record["key"] = hashlib.sha256(f"{record['key']} {key}".encode()).hexdigest()
        record |= {"error": error, "seconds": round(time.monotonic() - started, 1)}
        content = nbformat.read(scratch, 4) if scratch.exists() else content
        # Remove papermill's marks, which would be shown as cells and name paths of this machine.
        ours = {_ERROR_MARK, data_out.CAPTURE}
        content.cells = [c for c in content.cells if not ours & {*c.metadata.get("tags", [])}]
        content.metadata.pop("papermill", None)
        content.metadata["aft"] = record
        nbformat.write(content, scratch)
    return Executed.read(target)


def _run(
    content: nbformat.NotebookNode,
    parameters: Mapping[str, Any],
    target: Path,
    on_cell: OnCell | None,
) -> str | None:
    """Run by papermill into `target`; return the error's text, None when all went well."""
    log, heading, started_cells = target.with_suffix(".log"), "", list[nbformat.NotebookNode]()
    cells = [
        cell for cell in content.cells if data_out.CAPTURE not in cell.metadata.get("tags", [])
    ]

    def report(cell: nbformat.NotebookNode, cell_index: int) -> None:
        nonlocal heading
        started_cells.append(cell)
        if cell.cell_type == "markdown" and cell.source.startswith("#"):
            heading = cell.source.splitlines()[0].lstrip("# ")
        if on_cell is not None:
            on_cell(min(cell_index, len(cells)), len(cells), heading)

    # Papermill warns of `name: str | None`, checked already, and of a crash, which we report.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    try:
        papermill.execute_notebook(
            content,
            str(target).replace("{", "{{").replace("}", "}}"),  # it formats the path
            parameters=dict(parameters),
            kernel_name="python3",
            language="python",
            progress_bar=False,
            start_timeout=START_S,
            request_save_on_cell_execute=False,  # .02 to .2 s each, while the kernel waits
            kernel_manager_class=type(
                "Kernel", (_Kernel,), {"log_file": log, "stops_before": _stops}
            ),
            on_cell_start=report,
        )
    except papermill.PapermillExecutionError as error:
        return f"{error.ename}: {error.evalue}"
    except Exception as error:  # the kernel crashed, was out of memory, or never started
        if started_cells:
            content.cells = started_cells
            nbformat.write(content, target)
        last_lines = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
        return "\n".join([f"{type(error).__name__}: {error}", *last_lines])
    return None


def stop_all() -> None:
    """Kill every running kernel; their `execute` then raises KeyboardInterrupt."""
    global _stops
    _stops += 1
    for kernel in list(_live):
        kernel.kill()


def run_once(
    notebook: Notebook, parameters: Mapping[str, Any], on_cell: OnCell | None = None
) -> Executed:
    """Return the stored run of `notebook` with checked `parameters`; without one, run it.

    A run that failed is stored too, until the next try.
    """
    if stored := stored_run(notebook, parameters):
        return stored.executed()
    return run_and_store(notebook, parameters, on_cell=on_cell)


def run_and_store(
    notebook: Notebook,
    parameters: Mapping[str, Any],
    profile: str = "",
    on_cell: OnCell | None = None,
    target: Path | None = None,
) -> Executed:
    """Run `notebook` and store the run; return it, copied to `target` if that is given."""
    require_writable(runs_dir())
    with tempfile.TemporaryDirectory(prefix="aft-") as scratch:
        tables, path = Path(scratch) / TABLES, Path(scratch) / f"{notebook.name}.ipynb"
        executed = execute(notebook, parameters, path, profile, on_cell, tables)
        stored = store(executed, tables)
        return executed.copied(target) if target else stored.executed()


def store(executed: Executed, tables: Path) -> Run:
    """Put a run into the store, unless the store has a successful run of the same key.

    Remains of a removed run, such as a folder without its record, are replaced.
    """
    record, name = executed.record, executed.record["name"]
    run = Run(runs_dir() / name / record["key"][:KEY_LENGTH])
    if run.exists() and not run.record["error"]:
        return run
    if run.folder.exists():
        shutil.rmtree(run.folder)
    claims = [settled.model_dump(mode="json") for settled in executed.settled]
    with atomic_directory(run.folder) as folder:
        shutil.copyfile(executed.path, folder / f"{name}.ipynb")
        if tables.is_dir():
            shutil.copytree(tables, folder / TABLES)
        write_report(executed, folder / f"{name}.html", root="../../../")
        record = {**record, "error": executed.error, "claims": claims}
        text = json.dumps(record, ensure_ascii=False, indent=1, default=str)
        (folder / RECORD).write_text(text + "\n", encoding="utf-8")
    return Run(run.folder)


def commit() -> dict[str, Any]:
    """Return the project's commit, and whether files differ from it; None without git."""
    git = ["git", "-C", str(project_root())]
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, "check": True}
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], **how)
        status = subprocess.run([*git, "status", "--porcelain"], **how)
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    return {"commit": head.stdout.strip(), "dirty": bool(status.stdout.strip())}


def machine() -> dict[str, Any]:
    """Return the machine's properties without its name, because reports are shared."""
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
