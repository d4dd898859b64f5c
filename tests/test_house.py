"""The rules of the house, read from the imports: which room may know which."""

import ast
from pathlib import Path

import pytest

import aftlib

HOUSE = Path(aftlib.__file__).parent
ROOMS = [
    "approximately_once",
    "checkpoint_planning",
    "exponential_histogram",
    "shared_state",
    "upstream_backup",
]
MAY_IMPORT = {"core": set(), "spark": {"core"}, "guard": {"core"}, "reports": {"core", "spark"}} | {
    room: {"core", "spark", "reports"} for room in ROOMS
}
ON_SPARK = {"pipeline", "operator", "parallel", "source", "strategies", "driver"}


def imported(path):
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it leads"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_of(names):
    return {name.split(".")[1] for name in names if name.startswith("aftlib.")}


FILES = sorted(path.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py"))


def test_every_folder_is_a_known_room():
    assert {file.split("/")[0] for file in FILES} == {"__init__.py", *MAY_IMPORT}


@pytest.mark.parametrize("file", [file for file in FILES if file != "__init__.py"])
def test_a_room_knows_only_what_lies_below_it(file):
    room = file.split("/")[0]
    assert rooms_of(imported(HOUSE / file)) <= MAY_IMPORT[room] | {room}
