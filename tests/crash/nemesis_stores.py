"""Resources that a nemesis takes from a job: its stores, and the free space of its disk."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.crash.sharing_driver import job_in

if TYPE_CHECKING:
    from tests.crash.nemesis import SharedJob


class Files:
    """A store that is files in a job's folder: to be copied, rolled back, deleted."""

    def __init__(self, place: Callable[[], Path], pattern: str) -> None:
        self._place, self._pattern = place, pattern

    def there(self) -> list[Path]:
        """The files and folders of the store."""
        return sorted(self._place().glob(self._pattern))

    def copy(self) -> dict[Path, bytes]:
        """Contents of all its files."""
        paths = [p for top in self.there() for p in ([top] if top.is_file() else top.rglob("*"))]
        return {path: path.read_bytes() for path in paths if path.is_file()}

    def delete(self) -> None:
        """Delete its files."""
        for path in self.there():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def restore(self, copy: dict[Path, bytes]) -> None:
        """Put a copy in its place."""
        self.delete()
        for path, content in copy.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def lose_journal(self) -> None:
        """Delete the write-ahead log only."""
        for path in self.copy():
            if path.name.endswith(("-wal", "-shm", ".log")):
                path.unlink()


class Schema:
    """The same for a schema of a PostgreSQL; its copies are rows."""

    def __init__(self, job: SharedJob) -> None:
        self._job = job

    def _connected(self) -> Any:
        import psycopg

        return psycopg.connect(self._job.server.url, autocommit=True)

    def copy(self) -> dict[str, list[tuple]]:
        """Rows of its tables; none when it is not there."""
        tables: dict[str, list[tuple]] = {}
        with self._connected() as connection:
            there = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
            for (table,) in connection.execute(there, [self._job.settings.schema]).fetchall():
                rows = connection.execute(f"TABLE {self._job.settings.schema}.{table}".encode())
                tables[table] = sorted(rows.fetchall())
        return tables

    def delete(self) -> None:
        """Drop the schema."""
        with self._connected() as connection:
            connection.execute(
                f"DROP SCHEMA IF EXISTS {self._job.settings.schema} CASCADE".encode()
            )

    def restore(self, copy: dict[str, list[tuple]]) -> None:
        """Put a copy in its place."""
        old, new = self._job.settings.schema, f"new_{time.time_ns()}"
        if copy:
            settings = replace(self._job.settings, schema=new)
            job_in(self._job.directory, settings).open_shared().close()  # creates the tables
        with self._connected() as connection, connection.transaction():
            for table, rows in copy.items():
                connection.execute(f"TRUNCATE {new}.{table}".encode())
                for row in rows:
                    marks = ", ".join(["%s"] * len(row))
                    connection.execute(f"INSERT INTO {new}.{table} VALUES ({marks})".encode(), row)
            connection.execute(f"DROP SCHEMA IF EXISTS {old} CASCADE".encode())
            if copy:
                connection.execute(f"ALTER SCHEMA {new} RENAME TO {old}".encode())

    def cut_off(self) -> None:
        """End all connections."""
        with self._connected() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                "pid != pg_backend_pid() AND backend_type = 'client backend'"
            )


class Disk:
    """The disk that a job works on: small where this user may mount one."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True)
        self.place = place
        mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "nemesis", str(place)]
        self.mounted = (
            bool(shutil.which("mount"))
            and not subprocess.run(mount, capture_output=True, check=False).returncode
        )

    def fill(self, pids: Iterable[int]) -> None:
        """Fill the disk, or, on a shared disk, let no file of these processes grow."""
        if self.mounted:
            with suppress(OSError), (self.place / "ballast").open("ab", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        else:
            self._limit(pids, 1024)

    def free(self, pids: Iterable[int] = ()) -> None:
        """Free the space again."""
        (self.place / "ballast").unlink(missing_ok=True)
        if not self.mounted:
            self._limit(pids, resource.RLIM_INFINITY)

    def _limit(self, pids: Iterable[int], size: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def remove(self) -> None:
        """Unmount it."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.place)], check=True)
