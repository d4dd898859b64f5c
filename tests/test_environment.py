"""pyproject.toml is the one list of packages; the lock and the imports agree."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
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
    run = LOCK[: LOCK.index("# tools\n")]
    assert len(re.findall(r"^[\w.-]+==", run, re.MULTILINE)) <= 100 < len(packages)
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
