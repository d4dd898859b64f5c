"""Reproduction: choose notebooks and parameters, run or reuse each, then write all pages."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aftlib.core.paths import reports_dir, require_writable
from aftlib.reports.execute import OnCell, run_and_store, run_once
from aftlib.reports.html import write_documents, write_report
from aftlib.reports.index import draw_pictures, write_index, write_readme
from aftlib.reports.notebook import Notebook, all_notebooks, find_notebook, profile_parameters
from aftlib.reports.parameter_cell import listing
from aftlib.reports.runs import Executed, all_runs, gather, read_reports, stored_run, write_claims
from aftlib.workbench.scorecard import ClaimRecord, unexpected

_FRONT_PAGES = threading.Lock()  # held to write the files that all jobs share


@dataclass(frozen=True)
class Job:
    """One notebook to run, with checked parameters; `reusable` if its last run is still valid."""

    notebook: Notebook
    parameters: dict[str, Any]
    profile: str
    reusable: bool = False


@dataclass(frozen=True)
class Outcome:
    """Result of a reproduction: pages, claims, and the reasons why it is no success.

    `claims` are all claims, `chosen` those of the chosen notebooks, and `surprises` those of the
    chosen ones whose verdict differs from the recorded one.
    """

    index: Path
    claims: list[ClaimRecord]
    chosen: list[ClaimRecord]
    failed: list[Executed]
    surprises: list[ClaimRecord]
    problems: list[str]

    def success(self, strict: bool = False) -> bool:
        """Return whether every chosen notebook ran and no verdict contradicts its record.

        If `strict`, every verdict must be the recorded one, even if it depends on a measured time.
        """
        surprises = self.surprises if strict else [c for c in self.surprises if c.contradicts]
        return not self.failed and not surprises


def plan(
    profile: str, only: Sequence[str], overrides: Mapping[str, Any], fresh: bool = False
) -> list[Job]:
    """Return the jobs of a reproduction, in order; all parameters are checked before anything runs.

    The jobs run the notebooks that `only` names, or all. ValueError for an unknown profile or
    notebook, a value of the wrong type, or a parameter that no notebook has: the message lists the
    known ones.
    """
    known = all_notebooks()
    if not known:
        raise ValueError("the project has no notebooks (notebooks/NN_name.ipynb)")
    wanted = {find_notebook(name).name for name in only}
    chosen = [notebook for notebook in known if not only or notebook.name in wanted]
    for name in overrides:
        if not any(name in notebook.parameters for notebook in chosen):
            lists = [f"{n.name}: {listing(n.parameters.values())}" for n in chosen]
            raise ValueError(f"no chosen notebook has a parameter {name!r}; " + "\n".join(lists))

    jobs = []
    for notebook in chosen:
        mine = {name: value for name, value in overrides.items() if name in notebook.parameters}
        parameters = profile_parameters(profile, notebook) | notebook.check(mine)
        notebook.check_values(parameters)
        reusable = not fresh and _last(notebook, parameters) is not None
        jobs.append(Job(notebook, parameters, profile, reusable))
    return jobs


def _last(notebook: Notebook, parameters: Mapping[str, Any]) -> Executed | None:
    """Return the run that already has the notebook's result: its report, else a stored run."""
    executed = Executed.find(reports_dir() / f"{notebook.name}.ipynb")
    if executed and not executed.error and executed.record["key"] == notebook.key(parameters):
        return executed
    run = stored_run(notebook, parameters)
    return run.executed() if run else None


def perform(job: Job, on_cell: OnCell | None = None) -> Executed:
    """Run the job's notebook, or use its last run if that is still valid, and write its report.

    Index and ``claims.json`` are written again, so that the report can be opened at once. The store
    keeps the first run of a key; a later one, forced by `fresh`, is only written as the report.
    """
    folder = require_writable(reports_dir())
    target = folder / f"{job.notebook.name}.ipynb"
    last = _last(job.notebook, job.parameters) if job.reusable else None
    if last is not None:
        changed = job.notebook.changed(job.parameters, job.profile)
        executed = last.copied(target).relabelled(job.profile, changed)
    else:
        executed = run_and_store(job.notebook, job.parameters, job.profile, on_cell, target)
    write_report(executed, target.with_suffix(".html"))
    conclude([job])
    return executed


def conclude(jobs: Sequence[Job], readme: bool = False) -> Outcome:
    """Write index and ``claims.json`` of all reports, and with `readme` the README."""
    with _FRONT_PAGES:
        return _conclude(jobs, readme)


def _conclude(jobs: Sequence[Job], readme: bool) -> Outcome:
    folder, notebooks = reports_dir(), all_notebooks()
    reports = read_reports(folder, notebooks)
    claims = gather(notebooks, reports)
    write_claims(claims, folder / "claims.json")
    write_documents(folder / "documents")
    index = write_index(notebooks, reports, claims, all_runs(), folder / "index.html")
    problems = []
    if readme:
        problems = draw_pictures(reports, folder)
        write_readme(reports, claims, folder / "README.md")
    names = {job.notebook.name for job in jobs}
    failed = [executed for name, executed in reports.items() if name in names and executed.error]
    chosen = [claim for claim in claims if claim.notebook in names]
    return Outcome(index, claims, chosen, failed, unexpected(chosen), problems)


def run_alone(
    notebook: Notebook,
    overrides: Mapping[str, Any],
    on_cell: OnCell | None = None,
    profile: str = "",
) -> Executed:
    """Run one notebook with the user's parameters, unless the same run is stored already.

    Other parameters than those in `overrides` have the value of `profile`, or the notebook's
    default. The run goes into the store of runs and into the index, but not into ``claims.json``.
    ValueError for an unknown profile, or parameters that do not fit.
    """
    own = profile_parameters(profile, notebook) if profile else {}
    parameters = own | notebook.check(overrides)
    notebook.check_values(parameters)
    executed = run_once(notebook, parameters, on_cell)
    conclude([])
    return executed
