"""Targets of `make`, in a copy of the project whose programs only print their arguments."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import aftlib

ROOT = Path(__file__).parents[1]
SETTINGS = Path("venv/share/jupyter/lab/settings/overrides.json")


@pytest.fixture
def project(tmp_path):
    """A copy of the files that the targets read; `jupyter` prints its arguments."""
    for name in ("Makefile", ".gitignore", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    (tmp_path / "aftlib").mkdir()
    shutil.copy(ROOT / "aftlib" / "__init__.py", tmp_path / "aftlib")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    program = tmp_path / "venv" / "bin" / "jupyter"
    program.write_text('#!/bin/sh\necho "jupyter $*"\n')
    program.chmod(0o755)
    return tmp_path


def make(project, target):
    command = ["make", "-o", "setup", "bin=venv/bin", target]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=500)


def git(project, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    command = ["git", *identity, *words]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)


def test_lab_opens_copies_and_keeps_those_that_were_changed(project):
    done = make(project, "lab")
    assert done.returncode == 0, done.stderr
    assert "jupyter lab --notebook-dir=scratch" in done.stdout
    names = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert sorted(path.name for path in (project / "scratch").iterdir()) == names
    settings = json.loads((project / SETTINGS).read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert settings["@jupyterlab/notebook-extension:tracker"]["scrollPastEnd"] is False

    changed = project / "scratch" / names[0]
    changed.write_text("mine")
    make(project, "lab")
    assert changed.read_text() == "mine"
    assert (project / "notebooks" / names[0]).read_bytes() == (
        ROOT / "notebooks" / names[0]
    ).read_bytes()


def test_what_lab_writes_is_ignored(project):
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "all")
    make(project, "lab")
    assert "scratch" not in git(project, "status", "--porcelain").stdout


def test_labs_settings_are_known_to_jupyterlab():
    import jupyterlab

    app = Path(jupyterlab.__file__).parents[4] / "share" / "jupyter" / "lab" / "schemas"
    if not app.exists():
        pytest.skip("JupyterLab's schemas are elsewhere")
    for plugin, values in json.loads(
        (ROOT / "notebooks" / "lab_settings.json").read_text()
    ).items():
        extension, _, name = plugin.partition(":")
        schema = json.loads((app / extension / f"{name}.json").read_text())
        assert values.keys() <= schema["properties"].keys()


def test_a_release_wants_all_committed_and_a_date(project):
    git(project, "init")
    git(project, "add", ".")
    assert "release: commit all changes first" in make(project, "dated").stderr
    git(project, "commit", "-m", "all")
    wanted = f"CHANGELOG.md has no date for {aftlib.__version__}"
    undated = (project / "CHANGELOG.md").read_text()
    heading = next(line for line in undated.splitlines() if line.startswith("## "))
    (project / "CHANGELOG.md").write_text(undated.replace(heading, f"## [{aftlib.__version__}]"))
    git(project, "commit", "-am", "no date", "--allow-empty")
    assert wanted in make(project, "dated").stderr
    dated = f"## [{aftlib.__version__}] - 2026-01-31"
    (project / "CHANGELOG.md").write_text(undated.replace(heading, dated))
    git(project, "commit", "-am", "a date", "--allow-empty")
    assert make(project, "dated").returncode == 0


def test_help_lists_every_target(project):
    listed = make(project, "help").stdout
    for target in ("docs", "lab", "lock", "lock-check", "release", "check"):
        assert f"make {target} " in listed


def test_the_environment_without_java_keeps_all_other_programs():
    script = 'command -v java; command -v make && echo "home: [${JAVA_HOME-}]"'
    done = subprocess.run(
        [ROOT / ".ci" / "without-java", "sh", "-c", script],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "JAVA_HOME": "/opt/java"},
        capture_output=True, text=True, check=True, timeout=500,
    )  # fmt: skip
    program, home = done.stdout.splitlines()
    assert program.endswith("/make")
    assert home == "home: []"
