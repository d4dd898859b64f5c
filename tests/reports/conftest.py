"""Fixtures of the report tests: a fresh tiny project, and one whose notebooks have been run."""

from __future__ import annotations

import nbformat
import pytest

from aftlib.reports import browser, reproduce, run_key
from aftlib.reports import execute as execution
from aftlib.reports.claims import MIME
from aftlib.reports.runs import Executed
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
    monkeypatch.setattr(run_key, "library_hash", lambda: "the library")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Make a fresh project of two notebooks, one of which fails."""
    root = make_project(tmp_path / "home {x}")  # papermill would read braces as a pattern
    monkeypatch.setenv("AFT_HOME", str(root))
    return root


@pytest.fixture
def quick(home, monkeypatch):
    """A notebook with a seed, executed by hand: m = 9 fails, D1-1 holds where m is odd."""
    write_notebook(home / "notebooks" / "01_approximately_once.ipynb", SEEDED)
    ran = []

    def execute(notebook, parameters, target, profile="", on_cell=None, tables=None):
        values = notebook.values(parameters)
        ran.append(dict(parameters))
        m = values["m"]
        found = settled("D1-1", m / 10, m % 2 == 1, (0, m))
        cells = [*SEEDED, shows({MIME: [found.model_dump(mode="json")]})]
        made = executed(
            cells,
            name=notebook.name,
            profile=profile,
            parameters=values,
            given=dict(parameters),
            changed=notebook.changed(parameters, profile),
            key=notebook.key(parameters),
            error="ValueError: nine" if m == 9 else None,
            seconds=60.0,
        )
        if on_cell:
            on_cell(0, 1, "")
        nbformat.write(made.content, target)
        return Executed.read(target)

    monkeypatch.setattr(execution, "execute", execute)
    return ran


@pytest.fixture(scope="session")
def done(tmp_path_factory):
    """Both notebooks really run once, under the smoke profile, and concluded with a README."""
    root = make_project(tmp_path_factory.mktemp("done") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFT_HOME", str(root))
        patch.setattr(run_key, "library_hash", lambda: "the library")
        only_tiny_claims(patch)
        jobs = reproduce.plan("smoke", [], {})
        for job in jobs:
            reproduce.perform(job)
        patch.setattr(browser.shutil, "which", lambda name: None)
        patch.delenv("AFT_BROWSER", raising=False)
        outcome = reproduce.conclude(jobs, readme=True)
    return root / "reports", outcome
