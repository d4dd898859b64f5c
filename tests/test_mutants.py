"""Mutants are what they say, and one that no test notices is found."""

from types import SimpleNamespace

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


def test_nothing_compiled_of_another_mutant_is_taken_for_one(tmp_path, monkeypatch):
    """A mutated kernel went unnoticed in those that call it: numba keeps them as they were."""
    for name, text in (
        ("kernels.py", "@jit()\ndef f(x):\n    return x + 1\n"),
        ("a.py", "A = 1\n"),
    ):
        (tmp_path / "aftlib/package").mkdir(parents=True, exist_ok=True)
        (tmp_path / "aftlib/package" / name).write_text(text)
    seen = []

    def run(command, env, **how):
        files = sorted((tmp_path / "aftlib/package").iterdir())
        seen.append((env["NUMBA_CACHE_DIR"], [int(f.stat().st_mtime) for f in files]))
        return SimpleNamespace(returncode=0)

    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(mutants.subprocess, "run", run)
    tried, alive = mutants.survivors("package", tmp_path, 60, seed=0)
    assert tried == len(alive) == 3
    folders, times = zip(*seen[1:], strict=True)
    assert len({*folders}) == 3  # one for each of the kernels', and that of all others
    assert seen[0][0] in folders
    assert sorted(min(changed) for changed in times) == [0, 1, 2]
