"""The tasks of a cluster check which folders its machines share."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from aftlib.spark import sweep as sweep_module
from aftlib.spark.sweep import (
    find_trouble,
    look_from_tasks,
    other_machines,
    require_shared,
    this_machine,
)

CLUSTER = SimpleNamespace(
    sparkContext=SimpleNamespace(master="spark://head:7077", applicationId="a-1")
)


def test_troubles_with_a_folder_that_should_be_shared_and_have_locks(tmp_path):
    held, free = tmp_path / "held", tmp_path / "free"
    held.write_text("token")
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert find_trouble(held, "token", 0) == ""
        assert list(tmp_path.iterdir()) == [held]
        assert find_trouble(held, "other", 0) == "sees with something else in it"
    assert "No such file" in find_trouble(tmp_path / "missing", "token", 0)
    free.write_text("token")
    assert find_trouble(free, "token", 0) == "sees, but without the driver's lock"


def test_tasks_look(spark, tmp_path):
    rows = look_from_tasks(spark, tmp_path / "new")
    assert {(machine, trouble) for machine, _, trouble in rows} == {(this_machine(), "")}
    assert len(rows) == 2 * spark.sparkContext.defaultParallelism
    assert not list((tmp_path / "new").iterdir())


def test_a_local_master_shares_all(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_module, "look_from_tasks", None)
    require_shared(spark, tmp_path)
    assert other_machines(spark) == set()


def test_a_folder_that_a_machine_does_not_see_is_refused(monkeypatch):
    looked = []

    def look(spark, folder):
        looked.append(folder)
        return [("one", "m1", ""), ("two", "m2", "cannot read and write (No such file)")]

    monkeypatch.setattr(sweep_module, "look_from_tasks", look)
    match = "folder must be one that all machines of spark://head:7077 share, got '/data', which m2"
    with pytest.raises(ValueError, match=match):
        require_shared(CLUSTER, "/data")
    with pytest.raises(ValueError, match="m2 cannot read .*; for temporary folders set TMPDIR"):
        require_shared(CLUSTER, Path(tempfile.gettempdir()) / "scratch")
    assert looked == [Path("/data"), Path(tempfile.gettempdir()).resolve()]
    monkeypatch.setattr(sweep_module, "this_machine", lambda: "one")
    assert other_machines(CLUSTER) == {"m2"}


def test_a_folder_is_looked_at_once(monkeypatch):
    looked = []
    monkeypatch.setattr(sweep_module, "look_from_tasks", lambda spark, at: looked.append(at) or [])
    require_shared(CLUSTER, "/shared", "/shared/below", "/shared")
    assert looked == [Path("/shared")]
