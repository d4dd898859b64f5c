"""What the tests share: one Spark session, and how hard hypothesis tries."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from aftlib.spark.session import session
from tests.postgres import Schema, any_server, fresh_schema

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


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
    """Mark what uses the session, and begin with what takes long: Spark, then kills."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    items.sort(key=lambda item: [not item.get_closest_marker(m) for m in ("spark", "crash")])
