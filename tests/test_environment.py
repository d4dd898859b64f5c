"""pyproject.toml is the one list of packages; the lock, conda's file and the imports agree."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()


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


def conda():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    *packages, pip = listed
    return constraints(line for line in [*packages, *pip["pip"]] if line not in ("pip", "make"))


def pins():
    """{canonical name: versions} of the lock; two versions are for different machines."""
    versions_of = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE):
        versions_of.setdefault(canonicalize_name(name), []).append(version)
    return versions_of


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


def test_conda_lists_what_pyproject_lists():
    listed = conda()
    python = SpecifierSet(listed.pop("python"))
    assert listed == constraints([*REQUIRED, *TOOLS])
    classified = re.findall(r"Python :: (3\.\d+)", str(PROJECT["project"]["classifiers"]))
    assert [f"3.{minor}" for minor in range(30) if f"3.{minor}" in python] == classified


def test_conda_leaves_the_project_to_pip_without_dependencies():
    text = (ROOT / "environment.yml").read_text()
    assert "#   pip install --no-deps --no-build-isolation --editable ." in text
    assert "make" in yaml.safe_load(text)["dependencies"]


@pytest.mark.parametrize("line", [*REQUIRED, *TOOLS])
def test_lock_pins_each_dependency_within_its_constraint(line):
    want = Requirement(line)
    versions = pins()[canonicalize_name(want.name)]
    assert all(want.specifier.contains(version) for version in versions)


def test_extras_add_up():
    assert constraints(PROJECT["project"]["dependencies"]).keys() == {"numpy", "pandas", "scipy"}
    (everything,) = EXTRAS["all"]
    assert set(re.findall(r"\w+", everything)) - {"aftlib"} == EXTRAS.keys() - {"all"}


def test_lock_has_hashes_and_no_address():
    entries = re.split(r"^(?=\S)", LOCK, flags=re.MULTILINE)
    packages = [entry for entry in entries if re.match(r"[\w.-]+==", entry)]
    assert len(packages) > 100
    assert [entry for entry in packages if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK
    assert "--index" not in LOCK


def test_everything_imported_is_a_dependency():
    wanted = constraints(REQUIRED)
    distributions = packages_distributions()
    missing = {
        name
        for name in imported()
        if not any(canonicalize_name(d) in wanted for d in distributions.get(name, ()))
    }
    assert missing == set()
