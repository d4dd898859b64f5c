"""Targets of `make`, in a copy of the project whose programs only print their arguments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def project(tmp_path):
    """A copy of the files that the targets read."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    (tmp_path / "aftlib").mkdir()
    (tmp_path / "aftlib" / "kernel.py").write_text("from aftlib.core.compiling import jit\n")
    return tmp_path


def make(project, *arguments, **environment):
    command = ["make", *arguments]
    environment = os.environ | environment
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=500
    )


def targets():
    """The targets of the Makefile."""
    return {*re.search(r"^\.PHONY: (.*) \$", (ROOT / "Makefile").read_text(), re.M)[1].split()}


def test_a_missing_interpreter_is_named_with_the_fix(project):
    done = make(project, "setup", "PYTHON=/no/python3.99")
    assert done.returncode != 0
    assert "no Python 3.11 or newer with its venv module among: /no/python3.99" in done.stderr
    assert "make setup PYTHON=/path/to/python3.12" in done.stderr


def test_an_active_conda_environment_lends_its_python_first(project):
    active = make(project, "--dry-run", "setup", CONDA_PREFIX="/conda/envs/aftlib").stdout
    assert "for candidate in /conda/envs/aftlib/bin/python python3.14 " in active
    assert (
        "for candidate in python3.14 "
        in make(project, "--dry-run", "setup", CONDA_PREFIX="").stdout
    )


def test_reproduce_needs_no_tools_of_tests(project):
    planned = make(project, "--dry-run", "reproduce").stdout
    assert "aft reproduce --profile quick" in planned and "-r requirements/run.lock" in planned
    assert "-r requirements/dev.lock" not in planned
    assert "-r requirements/dev.lock" in make(project, "--dry-run", "test").stdout


def test_help_lists_every_target(project):
    listed = make(project, "help").stdout
    assert [target for target in targets() if f"make {target} " not in listed] == []


def test_ci_runs_rules_pages_and_tests_once_and_some_tests_that_take_minutes():
    script = re.sub(r"^\s*#.*", "", (ROOT / ".ci" / "run").read_text(), flags=re.M)
    called = " ".join(re.findall(r"\bmake ((?:--\S+ )*[a-z ]+)", script))
    named = [word for word in called.split() if not word.startswith("--")]
    assert sorted(named) == ["docs", "long", "rules", "test"]
    (files,) = re.findall(r'make long ARGS="(.*)"', script)
    assert all("pytest.mark.long" in (ROOT / file).read_text() for file in files.split())


def test_the_makefile_needs_no_tool_that_edits_text():
    assert re.search(r"\b(awk|sed|perl)\b", (ROOT / "Makefile").read_text()) is None


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
