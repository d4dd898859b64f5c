"""A stored result is used again only as long as everything that it depends on is the same."""

from __future__ import annotations

import subprocess

import pytest

from aftlib.command import batch, origin
from aftlib.command.batch import Job


@pytest.fixture
def project(tmp_path, monkeypatch):
    for folder in ("notebooks", "data", "benchmarks/results", "aftlib/templates"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "aftlib" / "templates" / "plan.txt.j2").write_text("The plan")
    (tmp_path / "aftlib" / "measured.csv").write_text("1")
    (tmp_path / "data" / "pm25.parquet").write_text("1")
    (tmp_path / "benchmarks" / "results" / "kills.json").write_text("1")
    (tmp_path / "mine.csv").write_text("1")
    (tmp_path / "notebooks" / "01.ipynb").write_text("{}")
    monkeypatch.setenv("AFT_HOME", str(tmp_path))
    monkeypatch.setattr(origin, "PACKAGE", tmp_path / "aftlib")
    return tmp_path


def key(project, parameters=(), profile="quick"):
    origin.library_hash.cache_clear()
    parameters = {"data": str(project / "mine.csv"), **dict(parameters)}
    return Job(project / "notebooks" / "01.ipynb", parameters, project, profile).key


@pytest.mark.parametrize(
    "file",
    [
        "aftlib/templates/plan.txt.j2",
        "aftlib/measured.csv",
        "data/pm25.parquet",
        "benchmarks/results/kills.json",
        "mine.csv",
        "notebooks/01.ipynb",
    ],
)
def test_a_changed_file_changes_the_key(project, file):
    before = key(project)
    assert key(project) == before
    (project / file).write_text("2")
    assert key(project) != before


def test_profile_parameters_versions_and_master_change_the_key(project, monkeypatch):
    keys = [key(project), key(project, profile="full"), key(project, {"m": 3})]
    monkeypatch.setattr(batch, "read_versions", lambda: {"Python": "3.99"})
    keys.append(key(project))
    monkeypatch.setenv("AFT_MASTER", "local[1]")
    keys.append(key(project))
    assert len(set(keys)) == len(keys)


def test_the_commit_is_marked_where_tracked_files_have_changed_since(project):
    """Reports do not count: a run writes them."""
    assert origin.read_commit() == ""
    git = ["git", "-C", str(project), "-c", "user.name=n", "-c", "user.email=e@x"]
    (project / "reports").mkdir()
    (project / "reports" / "README.md").write_text("a")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(git + command, check=True)
    commit = origin.read_commit()
    assert len(commit) == 8 and "+" not in commit
    (project / "reports" / "README.md").write_text("b")
    assert origin.read_commit() == commit
    (project / "mine.csv").write_text("b")
    assert origin.read_commit() == commit + "+"


def test_the_machine_is_described_without_its_name(monkeypatch):
    monkeypatch.setattr(origin.platform, "node", lambda: "secret-host")
    described = origin.describe_machine()
    assert "cores, " in described and described.split("cores, ")[1]
    assert "secret-host" not in described
