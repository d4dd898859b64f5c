"""Fixtures of the report tests: a fresh tiny project, and one whose notebooks have been run."""

from __future__ import annotations

import pytest

from aftlib.reports import browser, reproduce
from tests.tiny_project import make_project, only_tiny_claims


@pytest.fixture(autouse=True)
def tiny_claims(monkeypatch):
    """Keep the tests apart from what the project's own claims come out as."""
    only_tiny_claims(monkeypatch)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Make a fresh project of two notebooks, one of which fails."""
    root = make_project(tmp_path / "home {x}")  # papermill would read braces as a pattern
    monkeypatch.setenv("AFT_HOME", str(root))
    return root


@pytest.fixture(scope="session")
def done(tmp_path_factory):
    """Both notebooks really run once, under the smoke profile, and concluded with a README."""
    root = make_project(tmp_path_factory.mktemp("done") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFT_HOME", str(root))
        only_tiny_claims(patch)
        jobs = reproduce.plan("smoke", [], {})
        for job in jobs:
            reproduce.perform(job)
        patch.setattr(browser.shutil, "which", lambda name: None)
        patch.delenv("AFT_BROWSER", raising=False)
        outcome = reproduce.conclude(jobs, readme=True)
    return root / "reports", outcome
