"""Executed notebooks, and the store of runs: a folder per run, named by its key, never overwritten.

``reports/runs/<notebook>/<key>/`` holds the executed notebook, its report, ``run.json`` and
``tables/``. There is no database: the folders are the store.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from aftlib.core.paths import atomic_file, reports_dir, write_whole
from aftlib.reports.data_out import TABLE, read_csv, shown_in, table_csv
from aftlib.reports.documents import DOCUMENTS, all_claims
from aftlib.reports.notebook import Notebook, find_notebook, read_notebook, summary_of, title_of
from aftlib.workbench.claims import nothing
from aftlib.workbench.scorecard import MIME, ClaimRecord

if TYPE_CHECKING:
    import pandas as pd

RECORD, TABLES = "run.json", "tables"
KEY_LENGTH = 12  # digits of the key that name a folder
FIELDS = {"parameters", "changed", "profile", "claims", "error", "started", "seconds"}
"""Fields that every record has; any other missing field is shown as missing."""


@dataclass(frozen=True)
class Executed:
    """A notebook with its outputs and the record that `execute` put into its metadata."""

    path: Path
    content: nbformat.NotebookNode

    @classmethod
    def read(cls, path: Path) -> Executed:
        """Return the notebook at `path`; ValueError when this project has not executed it."""
        content = read_notebook(path)
        if "aft" not in content.metadata:
            raise ValueError(f"{str(path)!r} has no record of a run: run it by `aft run`")
        return cls(path, content)

    @classmethod
    def find(cls, path: Path) -> Executed | None:
        """Return the executed notebook at `path`, None if this project has executed none there."""
        try:
            return cls.read(path)
        except ValueError:
            return None

    @property
    def name(self) -> str:
        """The report's name, which is the name of its file."""
        return self.path.stem

    @property
    def record(self) -> dict[str, Any]:
        """The record of `execute`: name, profile, parameters, key, times, versions, error."""
        return self.content.metadata["aft"]

    @property
    def title(self) -> str:
        """The notebook's first heading."""
        return title_of(self.content, self.name)

    @property
    def summary(self) -> str:
        """The notebook's first paragraph, Markdown."""
        return summary_of(self.content)

    @property
    def profile(self) -> str:
        """The profile of the run, empty for `aft run`."""
        return self.record["profile"]

    @property
    def changed(self) -> dict[str, Any]:
        """The parameters, with their values, that are not the profile's own."""
        return self.record.get("changed", {})

    @property
    def error(self) -> str | None:
        """The error that ended the run, None when there was none."""
        return self.record["error"] or self._scorecards[1]

    @property
    def settled(self) -> list[ClaimRecord]:
        """The claims that the run's scorecards settle, with the last verdict; none on failure."""
        return [] if self.error else self._scorecards[0]

    @cached_property
    def _scorecards(self) -> tuple[list[ClaimRecord], str | None]:
        """The claims settled, or why they cannot be read, such as claims of another version."""
        outputs = [output for cell in self.content.cells for output in cell.get("outputs", [])]
        lines = [line for output in outputs for line in output.get("data", {}).get(MIME, [])]
        try:
            return list({line["id"]: ClaimRecord(**line) for line in lines}.values()), None
        except (TypeError, ValueError, KeyError) as error:
            return [], f"scorecard not readable: {error}"

    def copied(self, target: Path) -> Executed:
        """Copy the run to the file `target`, and return it as that file."""
        if target != self.path:
            with atomic_file(target) as scratch:
                shutil.copyfile(self.path, scratch)
        return Executed(target, self.content)

    def relabelled(self, profile: str, changed: dict[str, Any]) -> Executed:
        """Label the run, also in its file, as one of `profile`, and return it.

        The profile must have the values of the run.
        """
        if (profile, changed) != (self.profile, self.record.get("changed")):
            self.record.update(profile=profile, changed=changed)
            with atomic_file(self.path) as scratch:
                nbformat.write(self.content, scratch)
        return self

    def is_current(self, notebook: Notebook) -> bool:
        """Whether `notebook` and the library are unchanged since this run."""
        return self.record["key"] == notebook.key(self.record["given"])


def read_reports(folder: Path, notebooks: Sequence[Notebook]) -> dict[str, Executed]:
    """Return the executed form of each of `notebooks` that `folder` holds, by name."""
    names = [notebook.name for notebook in notebooks]
    return {name: ran for name in names if (ran := Executed.find(folder / f"{name}.ipynb"))}


def gather(notebooks: Sequence[Notebook], reports: Mapping[str, Executed]) -> list[ClaimRecord]:
    """Return every known claim, in order, with the finding of its document's notebook.

    The verdict is "not run", with the reason as its note, if the notebook was not run, failed, or
    settled nothing about the claim. It is also "not run" if the run is older than the code; the old
    verdict then is `earlier`.
    """
    known = {notebook.name: notebook for notebook in notebooks}
    current = {name: run.is_current(known[name]) for name, run in reports.items() if name in known}
    gathered = []
    for id, claim in all_claims().items():
        name = DOCUMENTS[claim.document].notebook
        executed = reports.get(name) if name in known else None
        settled = next((s for s in executed.settled if s.id == id), None) if executed else None
        if executed and settled:
            record = settled.with_run(name, executed.profile, executed.changed)
            gathered.append(record if current[name] else record.outdated())
            continue

        if executed is None:
            why = "Its notebook has not been run."
        elif executed.error:
            why = "Its notebook failed."
        elif not current[name]:
            why = "Its last run is older than the code."
        else:
            why = "Its notebook does not settle it."
        record = ClaimRecord.of(claim, nothing(why))
        gathered.append(record.with_run(name, executed.profile if executed else ""))
    return gathered


def write_claims(claims: Sequence[ClaimRecord], target: Path) -> Path:
    """Write `claims` as the JSON list that other tools read, and return its path."""
    lines = [claim.model_dump(mode="json") for claim in claims]
    text = json.dumps(lines, ensure_ascii=False, indent=1, allow_nan=False)
    return write_whole(target, text + "\n")


@dataclass(frozen=True)
class Run:
    """A stored run."""

    folder: Path

    @property
    def notebook(self) -> str:
        """The name of the notebook that was run."""
        return self.folder.parent.name

    @property
    def name(self) -> str:
        """The run's name on the command line: notebook and key."""
        return f"{self.notebook}/{self.folder.name}"

    @property
    def page(self) -> Path:
        """The file of the run's report."""
        return self.folder / f"{self.notebook}.html"

    @cached_property
    def record(self) -> dict[str, Any]:
        """Content of ``run.json``."""
        return json.loads((self.folder / RECORD).read_text(encoding="utf-8"))

    @property
    def verdicts(self) -> dict[str, str]:
        """The run's verdicts by claim."""
        return {claim["id"]: claim["verdict"] for claim in self.record["claims"]}

    def exists(self) -> bool:
        """Whether the run has a record that is readable, complete and of this version."""
        try:
            return isinstance(self.record, dict) and self.record.keys() >= FIELDS
        except (OSError, ValueError):
            return False

    def executed(self) -> Executed:
        """Return the run's executed notebook."""
        return Executed.read(self.folder / f"{self.notebook}.ipynb")

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the run's frames: those stored under a variable's name, then others it shows."""
        paths = sorted((self.folder / TABLES).glob("*.csv"))
        texts = {path.stem: path.read_text(encoding="utf-8") for path in paths}
        for shown in shown_in(self.executed().content):
            if TABLE in shown.data and table_csv(shown.data) not in texts.values():
                texts[f"Table {shown.number}"] = table_csv(shown.data)
        return {name: read_csv(text) for name, text in texts.items()}


def runs_dir() -> Path:
    """Return the folder of all stored runs (it may not exist)."""
    return reports_dir() / "runs"


def file_stem(parts: Sequence[str]) -> str:
    """Return `parts` as the name of a page; a name too long for a file is cut and ends in a hash.

    >>> file_stem(["a", "b"]), len(file_stem(["a" * 300, "b"]))
    ('a-b', 113)
    """
    name = "-".join(parts)
    digest = hashlib.sha256(name.encode()).hexdigest()[:KEY_LENGTH]
    return name if len(name.encode()) <= 150 else f"{parts[0][:100]}-{digest}"


def stored_run(
    notebook: Notebook, parameters: Mapping[str, Any], failed: bool = False
) -> Run | None:
    """Return the stored run of `notebook` with `parameters` and today's code, if there is one.

    A failed run is returned only if `failed`.
    """
    run = Run(runs_dir() / notebook.name / notebook.key(parameters)[:KEY_LENGTH])
    return run if run.exists() and (failed or not run.record["error"]) else None


def all_runs() -> list[Run]:
    """Return every stored run with a readable record, the newest first."""
    runs = [Run(folder) for folder in run_folders()]
    runs = [run for run in runs if run.exists()]
    return sorted(runs, key=lambda run: (run.record["started"], run.name), reverse=True)


def run_folders() -> list[Path]:
    """Return the folder of each run, also of runs with a broken record."""
    folders = (path.parent for path in runs_dir().glob(f"*/*/{RECORD}"))
    return sorted(folder for folder in folders if not folder.name.startswith("."))


def find_run(wanted: str) -> Run:
    """Return the run called `wanted`: the beginning of its key or of NOTEBOOK/KEY, or a notebook.

    A notebook stands for its newest run of all its sections, or else of one section. ``last``
    stands for the run that began last. ValueError when there is none, or several.
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
    newest.sort(key=lambda run: bool(run.record.get("section")))
    keyed = [
        run
        for run in runs
        if run.folder.name.startswith(key) and (not slash or run.notebook == named)
    ]
    matches = newest[:1] or (keyed if key and (slash or not known) else [])
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(run.name for run in matches)
        raise ValueError(f"run {wanted!r} may be any of {names}: give more of the key")
    if not runs:
        raise ValueError(f"no run {wanted!r}, because none is stored yet: `aft run 02` stores one")
    raise ValueError(f"no run {wanted!r}: `aft runs` lists the {len(runs)} that are stored")
