"""What is said of the package is the same everywhere, and the wheel holds all that it needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import aftlib

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_version_is_the_same_everywhere():
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "aftlib.__version__"}
    assert CITATION["version"] == aftlib.__version__
    newest = next(line for line in (ROOT / "CHANGELOG.md").open() if line.startswith("## "))
    assert newest.split()[1] == aftlib.__version__


def test_a_citation_names_what_the_package_names():
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert CITATION["message"] and CITATION["abstract"]
    assert CITATION["title"] == (ROOT / "README.md").read_text().splitlines()[0].removeprefix("# ")
    for name in ("license", "authors", "keywords"):
        assert CITATION[name] == PROJECT[name]


@pytest.mark.slow
def test_the_wheel_holds_what_is_not_python_too(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "aftlib", tmp_path / "aftlib", ignore=left_out)
    files = [path for path in (tmp_path / "aftlib").rglob("*") if path.is_file()]
    wanted = {path.relative_to(tmp_path).as_posix() for path in files}
    assert "aftlib/py.typed" in wanted
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", tmp_path, tmp_path], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"aftlib-{aftlib.__version__}-")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert wanted - packed == set()
