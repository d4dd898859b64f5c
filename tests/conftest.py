"""Shared by the tests: one Spark session, and the settings of hypothesis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from aftlib.spark.session import session
from tests.postgres import Schema, any_server, fresh_schema

UNOPTIMIZED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM whose work is too short for optimized code to pay."""

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
# A test's JVM ends before optimizing its code pays off; that of a driver to be killed, too.
os.environ.setdefault("SPARK_SUBMIT_OPTS", UNOPTIMIZED)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    running = session("aftlib tests")
    running.conf.set("spark.sql.shuffle.partitions", "2")  # a task costs more than the tests' rows
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


LONGEST = [
    "spark/test_cluster",
    "guard/test_stream",
    "guard/test_guard",
    "crash/test_shared_state",
    "crash/test_any_stream",
    "reports/test_cli",
    "sensor_plans/test_plan",
    "sensor_plans/test_claims",
    "crash/test_approximately_once",
    "crash/test_partial_replay",
    "exponential_histogram/test_operator",
    "guard/test_processor",
    "properties/test_guard_accounts",
    "exponential_histogram/test_laws",
    "upstream_backup/test_experiments",
    "sensor_plans/test_command",
]
"""Files whose tests take longest, in a measured order; `pytest --durations=200` shows them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the session, and begin with the slowest files.

    A file runs in one process, so a long one that starts late leaves the others idle at the end.
    """
    folder = Path(__file__).parent
    turns = {folder / f"{name}.py": turn for turn, name in enumerate(LONGEST)}
    waiting = set()
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.get_closest_marker("spark") or item.get_closest_marker("crash"):
            waiting.add(item.path)
    late = len(turns)
    items.sort(key=lambda item: turns.get(item.path, late + (item.path not in waiting)))
