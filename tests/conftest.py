"""What the tests share: one Spark session, and how hard hypothesis tries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from aftlib.spark.java import UNOPTIMIZED
from aftlib.spark.session import session
from tests.postgres import Schema, any_server, fresh_schema

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
# A test's JVM ends before it pays to optimize what it runs; that of a driver to be killed, too.
os.environ.setdefault("SPARK_SUBMIT_OPTS", UNOPTIMIZED)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    running = session("aftlib tests")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with any_server() as url:
        yield url


@pytest.fixture
def schema(postgres_url: str) -> Iterator[Schema]:
    with fresh_schema(postgres_url) as schema:
        yield schema


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session, and begin with the files that take long.

    Spark works and kills are waited for, so files of either kind come in turns: side by side they
    take less time than one after the other.
    """
    marks: dict[Path, set[str]] = {item.path: set() for item in items}
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        marks[item.path] |= {mark.name for mark in item.iter_markers()}
    spark = [path for path, found in marks.items() if "spark" in found]
    kills = [path for path, found in marks.items() if "crash" in found and path not in spark]
    turn = {path: i / len(kind) for kind in (spark, kills) for i, path in enumerate(kind)}
    items.sort(key=lambda item: turn.get(item.path, 1.0))
