"""The key of a run changes with everything that its result depends on, and with nothing else."""

from __future__ import annotations

import shutil

import pytest
from nbformat.v4 import new_code_cell

from aftlib.reports import notebook
from aftlib.reports.notebook import Notebook
from tests.tiny_project import write_notebook

LIBRARY_HASH = notebook.library_hash  # the others' tests replace it
CELLS = [
    new_code_cell("m = 4\ndata = ''", metadata={"tags": ["parameters"]}),
    new_code_cell("import mine\nopen('read.csv')\n%run other.txt"),
]


@pytest.fixture
def key(home, tmp_path, monkeypatch):
    """The key of a run in a working directory of its own, computed anew by each call."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(notebook.PACKAGE, tmp_path / "library", ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(notebook, "library_hash", lambda: LIBRARY_HASH(tmp_path / "library"))
    path = write_notebook(tmp_path / "own.ipynb", CELLS)
    return lambda **given: Notebook(path).key(given)


@pytest.mark.parametrize(
    "changed",
    [
        *("library/core/windows.py", "library/upstream_backup/ns3/traffic.csv"),
        *("read.csv", "other.txt", "mine.py"),
    ],
)
def test_a_changed_file_changes_the_key(key, tmp_path, changed):
    path = tmp_path / changed
    path.parent.mkdir(exist_ok=True)
    path.touch()
    before = key()
    assert key() == before
    path.write_text("# changed")
    assert key() != before


@pytest.mark.parametrize("changed", ["library/reports/templates/report.css", "not_named.csv"])
def test_files_that_no_result_depends_on_leave_the_key(key, tmp_path, changed):
    before = key()
    (tmp_path / changed).write_text("changed")
    (tmp_path / "library" / "core" / "__pycache__").mkdir(exist_ok=True)
    (tmp_path / "library" / "core" / "__pycache__" / "loops.nbi").touch()
    assert key() == before


def test_parameters_cells_lock_versions_and_spark_master_change_the_key(
    key, home, tmp_path, monkeypatch
):
    keys = [key(), key(m=5)]
    assert key(m=4) == keys[0]  # the default, spelled out
    write_notebook(tmp_path / "own.ipynb", CELLS[:1])
    keys.append(key())
    (home / "requirements.lock").write_text("numpy==2.3.0")
    keys.append(key())
    with monkeypatch.context() as patch:
        patch.setattr(notebook, "versions", lambda: {"numpy": "99"})
        keys.append(key())
    monkeypatch.setenv("AFT_MASTER", "spark://host:7077")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_contents_of_data_count_also_in_folders_and_lists(key, tmp_path):
    (tmp_path / "log").mkdir()
    for name in ("log/a", "b"):
        (tmp_path / name).write_text("1")
    data = [{"files": [str(tmp_path / "log"), str(tmp_path / "b")]}, 3, "no file", ""]
    keys = [key(data=data)]
    for name in ("log/a", "b"):
        (tmp_path / name).write_text("2")
        keys.append(key(data=data))
    (tmp_path / "linked").symlink_to(tmp_path / "log")
    before = key(data=str(tmp_path))
    (tmp_path / "log" / "a").write_text("3")
    assert len(set(keys)) == 3 and key(data=str(tmp_path)) != before


def test_a_package_that_is_not_installed_is_recorded_as_none(monkeypatch):
    monkeypatch.setattr(notebook, "PACKAGES", ("no_such_package",))
    assert notebook.versions()["no_such_package"] == "none"
