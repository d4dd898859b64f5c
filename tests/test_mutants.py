"""Mutants differ as reported, and one that no test notices survives."""

from pathlib import Path

import pytest

from tests import mutants, test_public_names

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


def test_every_kind_of_change_is_applied_once_and_undone():
    pairs = {(before, after) for _, before, after, _ in mutants.changes(CODE)}
    assert {
        ("value < low", "value <= low"), ("low == 3", "low != 3"), ("2", "3"), ("3", "4"),
        ("max(value, low) + 2", "max(value, low) - 2"), ("max(value, low)", "min(value, low)"),
        ("value < low and (not low == 3)", "value < low or not low == 3"), ("-1", "+1"),
    } <= pairs  # fmt: skip
    assert not any("'a'" in before or "TYPE" in before or before == "y" for before, _ in pairs
                   if not before.startswith("if value"))  # fmt: skip
    texts = [text for *_, text in mutants.changes(CODE)]
    assert len({*texts}) == len(texts)


def project(folder, code, tests):
    """A project whose only package has one module and one file of tests."""
    for name, text in {
        "aftlib/__init__.py": "",
        "aftlib/package/__init__.py": "",
        "aftlib/package/sums.py": code,
        "tests/package/test_sums.py": "import pytest\nfrom aftlib.package import sums\n" + tests,
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['spark', 'crash', 'slow']\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


DOUBLED = "def doubled(x):\n    return x + x\n"


def test_what_no_test_notices_survives(tmp_path):
    code = DOUBLED + "\ndef unused(x):\n    return -x\n"
    root = project(tmp_path, code, "def test_it():\n    assert sums.doubled(2) == 4\n")
    assert mutants.tests_of("package", root) == ["tests/package"]
    count, alive = mutants.survivors("package", root, 60, seed=0)
    assert (count, alive) == (2, ["aftlib/package/sums.py:5: -x  →  +x"])


def test_tests_that_fail_by_themselves_judge_nothing(tmp_path):
    root = project(tmp_path, DOUBLED, "def test_it():\n    assert False\n")
    with pytest.raises(SystemExit, match=r"(?s)fail without any mutant:.*test_it: .*assert False"):
        mutants.survivors("package", root, 60, seed=0)


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        # the first test sets the fixture up, and the second checks it
        (
            DOUBLED,
            "@pytest.fixture(scope='module')\ndef four():\n    return sums.doubled(2)\n"
            "def test_type(four):\n    assert type(four) is int\n"
            "def test_value(four):\n    assert four == 4\n",
        ),
        # a mutant changes the name of the test that would notice it
        (
            "FOUR = 2 * 2\n",
            "@pytest.mark.parametrize('four', [sums.FOUR])\n"
            "def test_value(four):\n    assert four == 4\n",
        ),
        # another process executes the line
        (
            DOUBLED,
            "import subprocess, sys\n"
            "CODE = 'import sys; from aftlib.package import sums; sys.exit(sums.doubled(2))'\n"
            "def test_value():\n"
            "    ended = subprocess.run([sys.executable, '-c', CODE])\n"
            "    assert ended.returncode == 4\n",
        ),
    ],
    ids=["fixture", "name", "process"],
)
def test_tests_that_notice_a_mutant_are_run(code, tests, tmp_path):
    count, alive = mutants.survivors("package", project(tmp_path, code, tests), 60, seed=0)
    assert count and not alive


def test_a_mutant_that_never_ends_is_stopped(tmp_path):
    root = project(tmp_path, DOUBLED, "def test_it():\n    while sums.doubled(2):\n        pass\n")
    assert mutants.run_tests(root, ["tests/package"], cpu_seconds=1) == -1


def test_the_copy_has_what_the_tests_read(tmp_path, monkeypatch):
    mutants.copy_project(Path(__file__).parents[1], tmp_path)
    monkeypatch.setattr(test_public_names, "ROOT", tmp_path)
    test_public_names.test_the_readmes_links_lead_somewhere()
