"""Fixtures of the report tests: a fresh tiny project, and one whose notebooks have been run."""

from __future__ import annotations

import fcntl
import os

import nbformat
import pytest

from aftlib.reports import execute as execution
from aftlib.reports import export, notebook, reproduce
from aftlib.reports.runs import Executed
from aftlib.workbench.scorecard import MIME
from tests.tiny_project import (
    SEEDED,
    executed,
    make_project,
    only_tiny_claims,
    settled,
    shows,
    write_notebook,
)


@pytest.fixture(autouse=True)
def tiny_claims(monkeypatch):
    """Keep the tests apart from what the project's own claims come out as."""
    only_tiny_claims(monkeypatch)


@pytest.fixture(autouse=True)
def same_library(monkeypatch):
    """Let keys stay the same when somebody edits the library while the tests run."""
    monkeypatch.setattr(notebook, "library_hash", lambda: "the library")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Make a fresh project of two notebooks, one of which fails."""
    root = make_project(tmp_path / "home {x}")  # papermill would read braces as a pattern
    monkeypatch.setenv("AFT_HOME", str(root))
    return root


def execute_by_hand(
    notebook, parameters, target, profile="", on_cell=None, tables=None, *, cells, failing=9
):
    """Stand in for `execute`: the run shows what `cells` makes of the values, m = 9 fails."""
    values = notebook.values(parameters)
    run = executed(
        cells(values),
        name=notebook.name,
        profile=profile,
        section=notebook.section,
        parameters=values,
        given=dict(parameters),
        changed=notebook.changed(parameters, profile),
        key=notebook.key(parameters),
        error="ValueError: nine" if values.get("m") == failing else None,
        seconds=60.0,
    )
    if on_cell:
        on_cell(0, 1, "")
    nbformat.write(run.content, target)
    return Executed.read(target)


@pytest.fixture
def quick(home, monkeypatch):
    """A notebook with a seed, executed by hand: m = 9 fails, D1-1 holds where m is odd."""
    write_notebook(home / "notebooks" / "01_approximately_once.ipynb", SEEDED)
    ran = []

    def cells(values):
        m = values["m"]
        record = settled("D1-1", m / 10, m % 2 == 1, (0, m))
        return [*SEEDED, shows({MIME: [record.model_dump(mode="json")]})]

    def execute(notebook, parameters, target, *options):
        ran.append(dict(parameters))
        return execute_by_hand(notebook, parameters, target, *options, cells=cells)

    monkeypatch.setattr(execution, "execute", execute)
    return ran


@pytest.fixture(scope="session")
def done(tmp_path_factory):
    """Both notebooks executed under the smoke profile, once for all processes of pytest."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    root = folder / "done"
    with (folder / "done.lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = not root.exists()
        root = make_project(root) if first else root
        patch.setenv("AFT_HOME", str(root))
        patch.setattr(notebook, "library_hash", lambda: "the library")
        only_tiny_claims(patch)
        jobs = reproduce.plan("smoke", [], {})
        for job in jobs if first else ():
            reproduce.perform(job)
        patch.setattr(export.shutil, "which", lambda name: None)
        patch.delenv("AFT_BROWSER", raising=False)
        outcome = reproduce.conclude(jobs, readme=True)
    return root / "reports", outcome
