"""Notebooks in batch: run by papermill, each once per library, notebook and parameters."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from pydantic import ValidationError

from aftlib.command.documents import DOCUMENTS, Document
from aftlib.command.origin import (
    describe_machine,
    inputs_hash,
    library_hash,
    read_commit,
    read_versions,
)
from aftlib.core.paths import project_root
from aftlib.core.storage import atomic_file
from aftlib.notebook.claims import not_run
from aftlib.notebook.scorecard import MIME, ClaimRecord

#: Notebooks at a time that measure no times; two sessions of Spark fit into 8 GB.
SIDE_BY_SIDE = 2
#: Longest wait for a kernel to answer; a busy machine can need more than papermill's minute.
START_S = 600


@dataclass(frozen=True)
class Job:
    """One notebook to run: checked parameters by name, and the file of its executed copy.

    `timed` says whether its claims rest on measured times, which work beside it would change.
    """

    notebook: Path
    parameters: dict[str, Any]
    target: Path
    profile: str = ""
    timed: bool = True

    @property
    def name(self) -> str:
        """The notebook's name without ``.ipynb``."""
        return self.notebook.stem

    @property
    def key(self) -> str:
        """Hash of what the results depend on.

        That is the library, the notebook, packages, input files, parameters with their profile,
        and Spark's master.
        """
        parts = {
            "library": library_hash(),
            "notebook": self.notebook.read_text(encoding="utf-8"),
            "versions": read_versions(),
            "inputs": inputs_hash(self.parameters),
            "parameters": self.parameters,
            "profile": self.profile,
            "master": os.environ.get("AFT_MASTER", ""),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Executed:
    """An executed notebook with the record of its run."""

    path: Path
    content: nbformat.NotebookNode

    @classmethod
    def read(cls, path: Path) -> Executed | None:
        """Return the executed notebook at `path`; None where there is none."""
        if not path.is_file():
            return None
        content = nbformat.read(path, as_version=4)
        return cls(path, content) if "aft" in content.metadata else None

    @property
    def record(self) -> dict[str, Any]:
        """Name, profile, parameters, key, start, seconds, commit, machine, versions and error."""
        return self.content.metadata["aft"]

    @property
    def error(self) -> str | None:
        """The error that ended the run; None when there was none."""
        return self.record["error"]

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The data of each output, by MIME type."""
        outputs = [output for cell in self.content.cells for output in cell.get("outputs", [])]
        return [output.get("data", {}) for output in outputs]

    @property
    def claims(self) -> list[ClaimRecord]:
        """The verdicts of the run's scorecards, the last one of each claim.

        The list is empty after a failure, or if another version of the library stored them in a
        form of its own.
        """
        if self.error:
            return []
        lines = (line for data in self.outputs for line in data.get(MIME, []))
        about = (self.record["name"], self.record["profile"])
        try:
            records = {line["id"]: ClaimRecord(**line).with_run(*about) for line in lines}
        except ValidationError:
            return []
        return list(records.values())


def find_notebook(wanted: str) -> tuple[Path, Document | None]:
    """Return the notebook called `wanted`: a number, a name, a document's id, or a file's path.

    ValueError when there is none.
    """
    text = wanted.removesuffix(".ipynb").lower()
    for document in DOCUMENTS:
        number = document.notebook.partition("_")[0]
        if text in (document.notebook, number, number.lstrip("0"), document.id.lower()):
            return project_root() / "notebooks" / f"{document.notebook}.ipynb", document
    if Path(wanted).is_file():
        return Path(wanted).resolve(), None
    names = ", ".join(f"{document.notebook} ({document.id})" for document in DOCUMENTS)
    raise ValueError(f"notebook must be a file or one of {names}, got {wanted!r}: name one of them")


def plan_jobs(
    folder: Path, profile: str, only: Sequence[str], given: Mapping[str, str]
) -> list[Job]:
    """Return the jobs of a reproduction into `folder`; all parameters are checked before any run.

    `only` names documents or their notebooks, all by default. ValueError for another notebook, or
    a parameter that none of them has.
    """
    wanted = [find_notebook(name)[1] for name in only]
    if None in wanted:
        raise ValueError(f"only must name documents, got {only[wanted.index(None)]!r}: use aft run")
    chosen = [document for document in DOCUMENTS if not only or document in wanted]
    known = {name for document in chosen for name in document.parameters.model_fields}
    if unknown := sorted(given.keys() - known):
        raise ValueError(
            f"no chosen notebook has a parameter {unknown[0]!r}: name one of "
            f"{', '.join(sorted(known))}"
        )
    jobs = []
    for document in chosen:
        model = document.parameters
        file = f"{document.notebook}.ipynb"
        own = {name: text for name, text in given.items() if name in model.model_fields}
        parameters = model.profile(profile) | model.parse(own)
        model(**parameters)
        timed = any(claim.timed for claim in document.claims)
        notebook = project_root() / "notebooks" / file
        jobs.append(Job(notebook, parameters, folder / file, profile, timed))
    return jobs


def run_jobs(
    jobs: Sequence[Job], processes: int | None, fresh: bool, announce: Callable[[str], object]
) -> Iterator[Executed]:
    """Run the notebooks, `processes` at a time, and yield each when it is done.

    With None those that are not `timed` come first, `SIDE_BY_SIDE`, and then the others alone. A
    notebook whose result is there already is not run again, unless `fresh`.
    """
    if processes is None:
        untimed = [job for job in jobs if not job.timed]
        if untimed:
            yield from run_jobs(untimed, min(SIDE_BY_SIDE, len(untimed)), fresh, announce)
        jobs = [job for job in jobs if job.timed]
        processes = 1

    def perform(job: Job) -> Executed:
        earlier = None if fresh else Executed.read(job.target)
        if earlier and not earlier.error and earlier.record["key"] == job.key:
            announce(f"{job.name}: done already")
            return earlier
        announce(f"{job.name}: running")
        return run_job(job, progress=processes == 1)

    with ThreadPoolExecutor(processes) as pool:
        for future in as_completed([pool.submit(perform, job) for job in jobs]):
            yield future.result()


class LocalKernel(AsyncKernelManager):
    """A kernel that listens on sockets in a short-named folder instead of ports."""

    def __init__(self, **options: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aft-")
        file = str(Path(self._folder.name, "kernel.json"))
        super().__init__(**options | {"transport": "ipc", "connection_file": file})

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        """Start the kernel with settings in its own environment; this process keeps its own."""
        inherited = options.pop("env", None) or os.environ
        environment = {
            "PYTHONWARNINGS": "ignore::FutureWarning",
            **inherited,
            "PLOTLY_RENDERER": "plotly_mimetype",
        }
        await super().start_kernel(env=environment, **options)


def run_job(job: Job, progress: bool = False) -> Executed:
    """Run a notebook in a kernel of this interpreter and save it, with its record, as the target.

    A notebook that fails is saved too, up to and with its error.
    """
    job.target.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "name": job.name,
        "profile": job.profile,
        "parameters": job.parameters,
        "key": job.key,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": read_commit(),
        "machine": describe_machine(),
        "versions": read_versions(),
        "error": None,
    }
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # it warns of annotated parameters
    started = time.monotonic()
    with atomic_file(job.target) as scratch:
        try:
            papermill.execute_notebook(
                str(job.notebook),
                str(scratch),
                parameters=job.parameters,
                kernel_name="python3",
                language="python",
                progress_bar=progress,
                start_timeout=START_S,
                kernel_manager_class=LocalKernel,
                # it is interrupted before it ends, and on a busy machine prints that as an error
                extra_arguments=["--IPKernelApp.log_level=CRITICAL"],
            )
        except papermill.PapermillExecutionError as error:
            record["error"] = f"{error.ename}: {error.evalue}"
        except DeadKernelError as error:  # killed, or out of memory
            record["error"] = f"the kernel died: {error}"
        content = nbformat.read(scratch, as_version=4)
        marks = {"papermill-error-cell-tag"}  # a cell that names paths of this machine
        content.cells = [c for c in content.cells if not marks & {*c.metadata.get("tags", [])}]
        content.metadata.pop("papermill", None)
        record["seconds"] = round(time.monotonic() - started, 1)
        content.metadata["aft"] = record
        nbformat.write(content, scratch)
    return Executed(job.target, content)


def collect_claims(reports: Mapping[str, Executed]) -> list[ClaimRecord]:
    """Return a record for each claim of the project, from the reports by notebook's name."""
    records = []
    for document in DOCUMENTS:
        report = reports.get(document.notebook)
        by_id = {record.id: record for record in report.claims} if report else {}
        for claim in document.claims:
            missing = ClaimRecord.of(claim, not_run("its notebook has not run"))
            records.append(by_id.get(claim.id, missing.with_run(document.notebook)))
    return records


def read_reports(folder: Path) -> dict[str, Executed]:
    """Return the executed notebooks in `folder` by the notebook's name, in order."""
    read = {d.notebook: Executed.read(folder / f"{d.notebook}.ipynb") for d in DOCUMENTS}
    return {name: executed for name, executed in read.items() if executed}
