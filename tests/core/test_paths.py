from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from aftlib.core import paths
from aftlib.core.paths import (
    atomic_directory,
    atomic_file,
    project_root,
    require_writable,
    write_whole,
)

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
WRITER = """
import sys, time
from pathlib import Path
from aftlib.core import paths
with getattr(paths, sys.argv[1])(Path(sys.argv[2])) as path:
    part = path / "part" if sys.argv[1] == "atomic_directory" else path
    part.write_text("half")
    print("half written", flush=True)
    time.sleep(600)
"""


def make_project(root: Path) -> Path:
    (root / "notebooks").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    return root


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if ".partial-" in p.name]


def start_writer(kind: str, target: Path) -> subprocess.Popen[str]:
    """Start a process that holds `target` half written, and wait until it does."""
    command = [sys.executable, "-c", WRITER, kind, str(target)]
    env = os.environ | {"PYTHONPATH": str(PACKAGE_HOME)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None and process.stdout.readline() == "half written\n"
    return process


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


def test_a_folder_is_created_writable_or_named_with_the_fix(tmp_path):
    assert require_writable(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PermissionError, match=r"directory '.*file' \(File exists\).*AFT_HOME"):
        require_writable(tmp_path / "file")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder where even root cannot write")
def test_require_writable_tries_rather_than_asks():
    with pytest.raises(PermissionError, match="cannot write into the directory '/proc'"):
        require_writable("/proc")


def write(path: Path, text: str) -> None:
    """Write into a file, or into a file of a folder that is created again."""
    if path.is_dir():
        path.rmdir()
        (path / "year=1").mkdir(parents=True)
        path = path / "year=1" / "part-0"
    path.write_text(text)


BOTH = pytest.mark.parametrize("make", [atomic_file, atomic_directory])


@BOTH
def test_a_target_appears_whole(tmp_path, make):
    target = tmp_path / "a.json"
    with make(target) as path:
        assert path.name == "a.json"
        write(path, "new")
        assert not target.exists()
    written = target / "year=1" / "part-0" if target.is_dir() else target
    assert written.read_text() == "new"
    assert leftovers(tmp_path) == []


@BOTH
def test_an_error_or_an_interrupt_leaves_nothing(tmp_path, make):
    with pytest.raises(KeyboardInterrupt), make(tmp_path / "a") as path:
        write(path, "half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_as_a_whole_or_stays(tmp_path):
    target = write_whole(tmp_path / "new" / "text.txt", "ε ≤ 1\n")
    with target.open() as reader:
        with pytest.raises(UnicodeEncodeError):
            write_whole(target, "half of it \ud800")
        assert target.read_bytes() == "ε ≤ 1\n".encode()
        write_whole(target, "new")
        assert reader.read() == "ε ≤ 1\n"  # an open reader still has the whole old file
    assert target.read_text() == "new"
    assert leftovers(target.parent) == []


@BOTH
def test_writing_nothing_is_an_error(tmp_path, make):
    with pytest.raises(FileNotFoundError), make(tmp_path / "a") as p:
        if p.exists():
            p.rmdir()
    assert list(tmp_path.iterdir()) == []


def test_directory_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "set").mkdir()
    with (
        pytest.raises(FileExistsError, match="is already there: use it, or remove"),
        atomic_directory(tmp_path / "set"),
    ):
        pass


def test_of_two_writers_the_first_to_finish_stays(tmp_path):
    with atomic_directory(tmp_path / "set") as slow:
        (slow / "part").write_text("slow")
        with atomic_directory(tmp_path / "set") as fast:
            (fast / "part").write_text("fast")
    assert (tmp_path / "set" / "part").read_text() == "fast"
    assert leftovers(tmp_path) == []


def test_rename_errors_of_other_kinds_are_not_swallowed(tmp_path, monkeypatch):
    def refuse(self, target):
        raise OSError("disk on fire")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="disk on fire"), atomic_directory(tmp_path / "set"):
        pass


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["atomic_file", "atomic_directory"])
def test_a_killed_writer_leaves_nothing_that_is_trusted(tmp_path, kind):
    target = tmp_path / "data [1]"  # brackets: names are not patterns
    process = start_writer(kind, target)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not target.exists()
    assert len(leftovers(tmp_path)) == 1
    with getattr(paths, kind)(target) as path:
        (path / "part" if path.is_dir() else path).write_text("whole")
    assert (target / "part" if target.is_dir() else target).read_text() == "whole"
    assert len(leftovers(tmp_path)) == 1  # of the killed writer: nobody reads it


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
