"""pyproject.toml is the one list of packages; the lock, conda's file and the imports agree."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from aftlib.spark.java import OLDEST_JAVA
from tests import postgres

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {path.stem: path.read_text() for path in (ROOT / "requirements").glob("*.lock")}
LOCK = LOCKS["dev"]


def constraints(lines):
    """{canonical name: the constraint, in one spelling} of lines such as `numpy>=2.3,<3`."""
    wanted = map(Requirement, lines)
    return {canonicalize_name(want.name): str(want.specifier) for want in wanted}


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
    groups = [Requirement(line) for line in [*REQUIRED, *TOOLS]]
    assert {canonicalize_name(want.name) for want in groups} - pins().keys() == set()
    text = (ROOT / "environment.yml").read_text()
    assert "pip install --no-deps --editable ." in text


def imported():
    """First parts of every absolute import of the library that is not Python's own."""
    modules = set()
    for path in (ROOT / "aftlib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(node.module)
    return {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"aftlib"}


@pytest.mark.parametrize("line", [*REQUIRED, *TOOLS])
def test_lock_pins_each_dependency_within_its_constraint(line):
    want = Requirement(line)
    versions = pins()[canonicalize_name(want.name)]
    assert all(want.specifier.contains(version) for version in versions)


def test_extras_add_up():
    assert constraints(PROJECT["project"]["dependencies"]).keys() == {"numpy", "pandas", "scipy"}
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
    assert pins(LOCKS["setup"]).keys() == constraints(groups["setup"]).keys()
    assert run.keys() & constraints(groups["dev"]).keys() == set()


def test_the_lock_has_what_its_packages_need_on_this_machine():
    """So pip also accepts it without `--no-deps`, as conda calls it."""
    lines = re.findall(r"^([\w.-]+==.*?) \\$", LOCK, re.MULTILINE)
    wanted = [want for want in map(Requirement, lines) if not want.marker or want.marker.evaluate()]
    pinned = {canonicalize_name(want.name) for want in wanted}
    missing = []
    for want in wanted:
        with contextlib.suppress(PackageNotFoundError):  # of a part that is not installed
            needed = map(Requirement, distribution(want.name).requires or [])
            missing += [
                f"{want.name} needs {need.name}"
                for need in needed
                if not need.marker or need.marker.evaluate({"extra": ""})
                if canonicalize_name(need.name) not in pinned
            ]
    assert missing == []


def test_everything_imported_is_a_dependency():
    wanted = constraints(REQUIRED)
    distributions = packages_distributions()
    missing = {
        name
        for name in imported()
        if not any(canonicalize_name(d) in wanted for d in distributions.get(name, ()))
    }
    assert missing == set()


@pytest.fixture
def root_without_useradd(monkeypatch):
    monkeypatch.delenv("AFT_POSTGRES_URL", raising=False)
    monkeypatch.setattr(postgres.os, "geteuid", lambda: 0)
    monkeypatch.setattr(postgres, "has_user", lambda name: False)
    monkeypatch.setattr(postgres.shutil, "which", lambda name: None)
    return monkeypatch


def test_tests_of_postgres_are_skipped_where_it_cannot_start(root_without_useradd):
    with pytest.raises(pytest.skip.Exception, match="no `useradd` on PATH"), postgres.any_server():
        pass
    root_without_useradd.setenv("AFT_POSTGRES_URL", "postgresql://elsewhere")
    with postgres.any_server() as url:
        assert url == "postgresql://elsewhere"


@pytest.mark.parametrize("change", ["geteuid", "has_user", "which"])
def test_postgres_starts_if_a_user_is_there_or_can_be_made(root_without_useradd, change):
    module = {"geteuid": postgres.os, "has_user": postgres, "which": postgres.shutil}[change]
    root_without_useradd.setattr(module, change, lambda *_: 1000)
    assert postgres.why_no_server() == ""


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
