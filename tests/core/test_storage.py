"""What is stored appears whole or not at all: files, folders, rows of SQLite, packed arrays."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from aftlib.core import storage
from aftlib.core.storage import (
    CURRENT,
    atomic_directory,
    atomic_file,
    locked,
    new_version,
    open_database,
    pack_arrays,
    require_writable,
    transaction,
    unpack_arrays,
    write_whole,
)

PACKAGE_HOME = Path(storage.__file__).resolve().parents[2]
WRITER = """
import sys, time
from pathlib import Path
from aftlib.core import storage
with getattr(storage, sys.argv[1])(Path(sys.argv[2])) as path:
    part = path / "part" if sys.argv[1] == "atomic_directory" else path
    part.write_text("half")
    print("half written", flush=True)
    time.sleep(600)
"""


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if ".partial-" in p.name]


def start_writer(kind: str, target: Path) -> subprocess.Popen[str]:
    """Start a process that holds `target` half written, and wait until it does."""
    command = [sys.executable, "-c", WRITER, kind, str(target)]
    env = os.environ | {"PYTHONPATH": str(PACKAGE_HOME)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None and process.stdout.readline() == "half written\n"
    return process


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
@pytest.mark.parametrize("problem", [KeyboardInterrupt, FileNotFoundError])
def test_an_interrupt_or_nothing_written_is_an_error_and_leaves_nothing(tmp_path, make, problem):
    def write_half():
        with make(tmp_path / "a") as path:
            if problem is KeyboardInterrupt:
                write(path, "half")
                raise KeyboardInterrupt
            shutil.rmtree(path, ignore_errors=True)

    with pytest.raises(problem):
        write_half()
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
    with getattr(storage, kind)(target) as path:
        (path / "part" if path.is_dir() else path).write_text("whole")
    assert (target / "part" if target.is_dir() else target).read_text() == "whole"
    assert len(leftovers(tmp_path)) == 1  # of the killed writer: nobody reads it


def opened(path, **how):
    connection = open_database(path, **how)
    connection.execute("CREATE TABLE IF NOT EXISTS facts (fact TEXT NOT NULL)")
    return connection


def facts(connection):
    return [row[0] for row in connection.execute("SELECT fact FROM facts")]


def test_a_file_that_is_held_is_not_called_damaged(tmp_path):
    with closing(sqlite3.connect(tmp_path / "s", check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(ValueError, match=r"that no other process holds.*database is locked"):
            open_database(tmp_path / "s", timeout_s=0.05)
        holder.rollback()
        with closing(opened(tmp_path / "s")) as connection:
            assert facts(connection) == []


def test_what_is_no_such_file_is_refused_and_not_touched(tmp_path):
    (tmp_path / "text").write_text("no database " * 100)
    before = (tmp_path / "text").read_bytes()
    with pytest.raises(ValueError, match=r"path must name a SQLite file.*is not a database"):
        open_database(tmp_path / "text")
    assert (tmp_path / "text").read_bytes() == before
    with pytest.raises(ValueError, match=r"path must name a SQLite file.*unable to"):
        open_database(tmp_path / "missing" / "s")


def test_a_transaction_is_all_or_nothing(tmp_path):
    with closing(opened(tmp_path / "s")) as connection:
        with pytest.raises(sqlite3.IntegrityError), transaction(connection, "write to"):
            connection.executemany("INSERT INTO facts VALUES (?)", [("half",), (None,)])
        assert facts(connection) == []
        with closing(opened(tmp_path / "s", timeout_s=0.05)) as other:
            with transaction(connection, "write to"):
                connection.execute("INSERT INTO facts VALUES ('whole')")
                wanted = pytest.raises(TimeoutError, match=r"could not change .*/s'.*end the p")
                with wanted, transaction(other, "change"):
                    pass
            assert facts(other) == ["whole"]


@pytest.mark.parametrize("synced", [False, True])
def test_a_marker_need_not_be_synced(tmp_path, synced):
    with closing(opened(tmp_path / "s", synced=synced)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 1 + synced


def test_a_full_disk_is_named_and_leaves_what_was(tmp_path):
    with closing(opened(tmp_path / "s")) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        wanted = pytest.raises(OSError, match=r"could not add facts to .*full.*earlier commits")
        with wanted, transaction(connection, "add facts to"):
            connection.execute("INSERT INTO facts VALUES (?)", ["x" * 100_000])
        assert facts(connection) == []


def come_in(path, queue):
    try:
        with locked(path):
            queue.put("in")
    except TimeoutError as error:
        queue.put(str(error))


def test_one_driver_works_in_a_directory(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with locked(tmp_path):
        other = context.Process(target=come_in, args=(tmp_path, queue))
        other.start()
        refusal = queue.get()
        other.join()
    assert "is held by another driver" in refusal
    come_in(tmp_path, queue)
    assert queue.get() == "in"


def test_arrays_come_back_from_their_bytes():
    arrays = {"a.b": np.array([[1.5, np.nan]]), "number": np.array(3)}
    data = pack_arrays(**arrays)
    copies = unpack_arrays(data)
    assert copies.keys() == arrays.keys()
    assert all(np.array_equal(copies[n], arrays[n], equal_nan=True) for n in arrays)
    assert pack_arrays(**copies) == data
    with pytest.raises(ValueError, match="allow_pickle=False"):
        pack_arrays(bad=np.array([object()]))


CHANGES = ("open", "os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir", "shutil.rmtree")
"""Audit events of Python before it changes, or opens, a file."""


def write_version(directory, text, make=new_version, kill_at=None):
    """Write a version of two files in a child process; return whether it was killed.

    It kills itself before its change of files with the number `kill_at`.
    """
    child = os.fork()
    if child == 0:
        events = iter(range(1, 10**6))

        def kill(event, arguments):
            if event in CHANGES and next(events) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        try:
            with make(directory) as scratch:
                for part in ("first", "second"):
                    (scratch / part).write_text(text)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def read_version(directory):
    return [(directory / CURRENT / part).read_text() for part in ("first", "second")]


@contextmanager
def in_place(directory):
    """A broken control: it writes into the folder that others read."""
    current = directory / CURRENT
    shutil.rmtree(current.resolve())
    current.resolve().mkdir()
    yield current


@pytest.mark.parametrize("named", ["whole", "relative", "through a link"])
def test_a_version_that_is_killed_at_any_step_leaves_the_one_before_or_the_new_one(
    named, tmp_path, monkeypatch
):
    """And the next call writes the new one; a call that writes in place is caught."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    place = {"whole": tmp_path, "relative": Path("real"), "through a link": tmp_path / "link"}
    states = []
    for step in range(1, 100):
        directory = place[named] / str(step)
        write_version(directory, "old")
        killed = write_version(directory, "new", kill_at=step)
        states.append("".join(read_version(directory)))
        write_version(directory, "new")
        assert read_version(directory) == ["new", "new"]
        assert len([*directory.glob("*version-*")]) <= 2
        if not killed:
            break
    assert len(states) > 10 and states[0] == "oldold" and states[-1] == "newnew"
    assert {*states} == {"oldold", "newnew"}

    broken = 0
    for step in range(1, 10):
        directory = tmp_path / f"control-{step}"
        write_version(directory, "old")
        write_version(directory, "new", in_place, kill_at=step)
        try:
            broken += read_version(directory) not in (["old", "old"], ["new", "new"])
        except FileNotFoundError:
            broken += 1
    assert broken > 2


def test_readers_of_a_version_keep_it_while_the_next_one_is_written(tmp_path):
    write_version(tmp_path / "v", "first")
    opened = (tmp_path / "v" / CURRENT).resolve()
    write_version(tmp_path / "v", "second")
    assert (opened / "first").read_text() == "first" != read_version(tmp_path / "v")[0]
    write_version(tmp_path / "v", "third")
    assert not opened.exists()


def test_a_folder_of_somebody_else_gets_no_versions(tmp_path):
    (tmp_path / "part-0.parquet").touch()
    problem = r"have nothing but versions, got .* 'part-0.parquet': choose"
    with pytest.raises(ValueError, match=problem), new_version(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["part-0.parquet"]
