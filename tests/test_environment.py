"""pyproject.toml is the one list of packages; the lock, conda's file and the imports agree."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from aftlib.spark.java import OLDEST_JAVA
from tests.test_layout import FILES, imported

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {path.stem: path.read_text() for path in (ROOT / "requirements").glob("*.lock")}
LOCK = LOCKS["dev"]


def names(lines):
    """The packages of lines such as `numpy>=2.3,<3`."""
    return {canonicalize_name(Requirement(line).name) for line in lines}


EXTRAS = PROJECT["project"]["optional-dependencies"]
REQUIRED = [
    line
    for line in [*PROJECT["project"]["dependencies"], *itertools.chain(*EXTRAS.values())]
    if not line.startswith("aftlib[")
]
TOOLS = [*itertools.chain(*PROJECT["dependency-groups"].values())]


def pins(lock=LOCK):
    """{canonical name: versions} of a lock; two versions are for different machines."""
    versions_of = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE):
        versions_of.setdefault(canonicalize_name(name), []).append(version)
    return versions_of


def conda():
    """{package: constraint} of conda's file, and the lines that it gives to pip."""
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (lines,) = [entry["pip"] for entry in listed if isinstance(entry, dict)]
    named = [re.match(r"([\w.-]+)(.*)", entry) for entry in listed if isinstance(entry, str)]
    return {match[1]: match[2] for match in named}, lines


def test_conda_brings_a_python_that_the_project_is_tested_with():
    packages, _ = conda()
    tested = re.findall(r":: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    major, last = map(int, tested[-1].split("."))
    bounds = f"{PROJECT['project']['requires-python']},<{major}.{last + 1}"
    assert SpecifierSet(packages["python"]) == SpecifierSet(bounds)


def test_conda_brings_a_java_like_that_of_the_lock():
    """Of Java packages only the major version counts; Spark 4 runs on 17 and 21."""
    packages, _ = conda()
    assert packages["openjdk"].lstrip("=") in ("17", "21")
    assert int(packages["openjdk"].lstrip("=")) >= OLDEST_JAVA


def test_conda_leaves_the_packages_to_the_lock():
    packages, lines = conda()
    assert packages.keys() == {"python", "openjdk", "make", "pip"}
    assert lines == ["-r requirements/dev.lock"]
    text = (ROOT / "environment.yml").read_text()
    assert "pip install --no-deps --editable ." in text


@pytest.mark.parametrize("line", [*REQUIRED, *TOOLS])
def test_lock_pins_each_dependency_within_its_constraint(line):
    want = Requirement(line)
    versions = pins()[canonicalize_name(want.name)]
    assert all(want.specifier.contains(version) for version in versions)


def test_extras_add_up():
    assert names(PROJECT["project"]["dependencies"]) == {"numpy", "pandas", "scipy"}
    (everything,) = EXTRAS["all"]
    assert set(re.findall(r"\w+", everything)) - {"aftlib"} == EXTRAS.keys() - {"all"}


@pytest.mark.parametrize("name", ["setup", "run", "dev"])
def test_a_lock_has_hashes_and_no_address(name):
    entries = re.split(r"^(?=\S)", LOCKS[name], flags=re.MULTILINE)
    packages = [entry for entry in entries if re.match(r"[\w.-]+==", entry)]
    assert packages
    assert [entry for entry in packages if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCKS[name]
    assert "--index" not in LOCKS[name]


def test_what_runs_and_what_sets_up_is_part_of_the_whole_lock():
    everything = pins()
    run = pins(LOCKS["run"])
    assert len(run) <= 100 < len(everything)
    for part in (run, pins(LOCKS["setup"])):
        assert {name: everything[name] for name in part} == part
    groups = PROJECT["dependency-groups"]
    assert pins(LOCKS["setup"]).keys() == names(groups["setup"])
    assert run.keys() & names(groups["dev"]) == set()


def test_the_lock_has_what_its_packages_need_on_this_machine():
    """All that is installed comes from it; so pip accepts it without `--no-deps`, too."""
    check = [sys.executable, "-m", "pip", "check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_everything_imported_is_a_dependency():
    modules = {name.split(".")[0] for file in FILES for name in imported(file)}
    distributions = packages_distributions()
    wanted = names(REQUIRED)
    missing = {
        name
        for name in modules - {"aftlib", *sys.stdlib_module_names}
        if not any(canonicalize_name(d) in wanted for d in distributions.get(name, ()))
    }
    assert missing == set()


def test_git_ignores_what_the_commands_write():
    written = ["plan.json", "plan.ipynb", "plan.html", "plotly.min.js", "data/plan.html"]
    written += [f"reports/{name}" for name in ("index.html", "claims.json", "own/x.html")]
    kept = ["reports/README.md", "reports/full.json", "reports/full/index.html"]
    kept += ["data/beijing_pm25.parquet", "docs/plan.json"]
    git = ["git", "-C", str(ROOT), "check-ignore", "--no-index"]
    done = subprocess.run([*git, *written, *kept], capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("this folder is no checkout of git")
    assert done.stdout.split() == written
