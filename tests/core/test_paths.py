"""The project's folders, fresh folders, and the real sensors that come with it."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from aftlib.core import paths
from aftlib.core.paths import project_root

SHAPES = {
    "beijing_pm25": (35_064, 12),
    "chicago_ridership": (5_698, 20),
    "irish_wind": (6_574, 12),
    "simbench_load": (35_136, 27),
}
DIGESTS = {
    "beijing_pm25": "f3f132eacdfac43dbf048e692836b1708cc0675bb658ac46c16d29dd37d41774",
    "chicago_ridership": "3273922f98694dba746c99063bdc59eeecd11ef4afec703a16eafb09d961bff2",
    "irish_wind": "43a1a031e3710f8fd218c6e3ed4b8fcd802ee599f5d513a20268037efdccbab8",
    "simbench_load": "70b971333721ce79071b2b79be5921e3dfd5da84427eda9ad6eda4ae8ea3ddcc",
}
PACKAGE_HOME = Path(paths.__file__).resolve().parents[2]


def make_project(root: Path) -> Path:
    (root / "notebooks").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    return root


def test_the_root_is_named_or_above_the_working_directory_or_above_the_package(
    tmp_path, monkeypatch
):
    home = make_project(tmp_path / "home")
    (home / "deep" / "deeper").mkdir(parents=True)
    monkeypatch.delenv("AFT_HOME", raising=False)
    monkeypatch.chdir(home / "deep" / "deeper")
    assert project_root() == home
    monkeypatch.chdir(tmp_path)
    assert project_root() == PACKAGE_HOME
    monkeypatch.setenv("AFT_HOME", str(home))
    assert project_root() == home
    monkeypatch.setenv("AFT_HOME", str(home / "deep"))
    assert paths.data_dir() == home / "data"


def test_a_root_without_a_project_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("AFT_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no project folder .* set AFT_HOME"):
        project_root()
    monkeypatch.delenv("AFT_HOME")
    monkeypatch.setattr(paths, "MARKERS", ("no such marker",))
    with pytest.raises(FileNotFoundError, match="no project folder .* set AFT_HOME"):
        project_root()


def test_a_fresh_folder_is_another_one_each_time():
    folders = paths.FreshFolders()
    fresh = [folders / "six", folders / "six", folders / "cost"]
    assert len({*fresh}) == 3 and not any(path.exists() for path in fresh)
    assert [path.name.partition("-")[0] for path in fresh] == ["six", "six", "cost"]
    assert (folders / "six").parent.is_dir()


def test_a_fresh_folder_is_removed_when_its_process_ends_and_not_when_a_fork_does(tmp_path):
    script = """
import os, sys
from aftlib.core.paths import FreshFolders
path = FreshFolders() / "six"
path.mkdir()
if os.fork() == 0:
    sys.exit()
os.wait()
print(path.exists())
"""
    command = [sys.executable, "-c", script]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "True\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", paths.DATA_SETS)
def test_real_sensors_are_those_that_the_readme_of_data_describes(name):
    rows, sensors = SHAPES[name]
    table = pd.read_parquet(paths.data_set(name))
    steps = pd.DatetimeIndex(table.index).to_series().diff().dropna()
    readme = (paths.data_dir() / "README.md").read_text("utf-8")
    assert hashlib.sha256(paths.data_set(name).read_bytes()).hexdigest() == DIGESTS[name]
    assert table.shape == (rows, sensors)
    assert (steps == steps.iloc[0]).all()
    assert f"| `{name}.parquet` | {sensors} " in readme
    assert f"× {rows:,}" in readme


def test_all_real_sensors_are_small():
    assert sum(paths.data_set(name).stat().st_size for name in paths.DATA_SETS) < 6_000_000


def test_an_unknown_set_of_real_sensors_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"name must be one of .*irish_wind.*got 'wind'"):
        paths.data_set("wind")
