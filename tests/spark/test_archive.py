"""Archives of classes: used where they fit and are whole, and made by a real JVM."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from aftlib.spark import archive
from aftlib.spark.archive import archive_options, archives, make
from aftlib.spark.java import find_java, java_home, wrapped


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A Java for which an archive of Spark's classes was kept."""
    monkeypatch.setattr(archive, "home", lambda: tmp_path)
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\n')
    java.chmod(0o755)
    kept(java, tmp_path / "draft")
    return java


def kept(java, draft, name=archive.SPARK):
    draft.write_bytes(b"classes")
    archive._keep(name, java, draft)


def test_nothing_made_nothing_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "home", lambda: tmp_path / "none")
    assert archive_options(Path(sys.executable)) == []


def test_the_wrapper_starts_java_with_its_archives_the_javas_own_first(java, tmp_path):
    kept(java, tmp_path / "draft", archive.BASE)
    run = subprocess.run(
        [wrapped(java, archive_options(java)) / "bin" / "java", "-version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    base, spark = archives(java)
    assert base.name.startswith(archive.BASE) and spark.name.startswith(archive.SPARK)
    assert f"[-XX:SharedArchiveFile={base}:{spark}]" in run.stdout.splitlines()


def test_a_cut_archive_and_that_of_another_java_are_left_out(java, tmp_path):
    (path,) = archives(java)
    path.write_bytes(b"class")
    assert archives(java) == []
    path.write_bytes(b"classes")
    assert archives(java) == [path]
    os.utime(java, ns=(1, 1))
    archive._key.cache_clear()
    assert archives(java) == []


def test_none_is_made_beside_a_session(spark, java):
    with pytest.raises(ValueError, match="a session is running.*stop it first"):
        make(java)
    assert len(archives(java)) == 1


def test_spark_takes_its_classes_from_what_the_set_up_made(tmp_path):
    if not archives(find_java().home / "bin" / "java"):
        pytest.skip("`make setup` makes the archive: python -m aftlib.spark.archive")
    loaded = tmp_path / "loaded"
    subprocess.run(
        [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--version"],
        env=os.environ
        | {
            "JAVA_HOME": str(java_home()),
            "SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={loaded}",
        },
        capture_output=True, check=True,
    )  # fmt: skip
    mapped = [
        line for line in loaded.read_text().splitlines() if "shared objects file (top)" in line
    ]
    assert sum("org.apache.spark." in line for line in mapped) > 100


@pytest.mark.slow
def test_a_java_without_an_archive_of_its_own_classes_gets_both(tmp_path):
    script = (
        "import sys; from pathlib import Path; from aftlib.spark import archive, java\n"
        "archive.home = lambda: Path(sys.argv[1])\n"
        "archive.rehearse = lambda *_: None\n"
        "print(*(p.name for p in archive.make(java.find_java().home / 'bin' / 'java')))"
    )
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if not tool.name.startswith("java"):
            (tools / tool.name).symlink_to(tool)
    plain = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "made")],
        env=plain | {"PATH": str(tools)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [name.split("-")[0] for name in run.stdout.split()] == [archive.BASE, archive.SPARK]
