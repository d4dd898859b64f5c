"""Mutants are what they say, and one that no test notices is found."""

import pytest

from tests import mutants

CODE = '''
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from x import y

def clipped(value: float, low: float = -1) -> float:
    """At least `low`."""
    if value < low and not low == 3:
        raise ValueError("a" + "b")
    return max(value, low) + 2
'''


def test_every_kind_of_change_is_made_once_and_undone():
    found = {(before, after) for _, before, after, _ in mutants.changes(CODE)}
    assert {
        ("value < low", "value <= low"), ("low == 3", "low != 3"), ("2", "3"), ("3", "4"),
        ("max(value, low) + 2", "max(value, low) - 2"), ("max(value, low)", "min(value, low)"),
        ("value < low and (not low == 3)", "value < low or not low == 3"), ("-1", "+1"),
    } <= found  # fmt: skip
    assert not any("'a'" in before or "TYPE" in before or before == "y" for before, _ in found
                   if not before.startswith("if value"))  # fmt: skip
    texts = [text for *_, text in mutants.changes(CODE)]
    assert len({*texts}) == len(texts)


def test_what_no_test_notices_survives(tmp_path, capsys):
    for name, text in {
        "aftlib/__init__.py": "",
        "aftlib/package/__init__.py": "",
        "aftlib/package/sums.py": "def doubled(x):\n    return x + x\n\n"
        "def unused(x):\n    return -x\n",
        "tests/package/test_sums.py": "from aftlib.package.sums import doubled\n"
        "def test_it():\n    assert doubled(2) == 4\n",
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['spark', 'crash', 'slow']\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert mutants.tests_of("package", tmp_path) == ["tests/package"]
    tried, alive = mutants.survivors("package", tmp_path, 60, seed=0)
    assert (tried, alive) == (2, ["aftlib/package/sums.py:5: -x  →  +x"])
    (tmp_path / "tests/package/test_sums.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(SystemExit, match="the tests of package fail without any mutant"):
        mutants.survivors("package", tmp_path, 60, seed=0)
