"""Spark's own cluster on this machine, from the installed package, and `aft cluster`."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import click
import pyspark

from aftlib.core.checks import require_number
from aftlib.spark.java import UNOPTIMIZED, java_home

HOST = "127.0.0.1"
STARTS_S = 600.0
STOPS_S = 15.0

# Variables of this environment that the daemons, executors and their Python get: no
# PYTHONPATH, because the library is shipped, and no credentials.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "XDG_CACHE_HOME")
_SETTINGS = """\
spark.authenticate true
spark.network.crypto.enabled true
spark.master.rest.enabled false
spark.ui.killEnabled false
spark.worker.cleanup.enabled true
"""
# A daemon runs until its pipe to this process closes, so SIGKILL of this process ends it, too.
_LEASH = '"$@" </dev/null & echo "daemon $!"; read -r _; kill $! 2>/dev/null; wait $!'


@dataclass(frozen=True)
class Daemon:
    """A master or worker: the shell that watches over it, its process id and its log."""

    shell: subprocess.Popen[bytes]
    pid: int
    log: Path


class LocalCluster:
    """Spark's master and workers on the loopback interface, until the ``with`` block ends.

    Each of the `workers` starts one executor, which uses the worker's whole `memory` and runs
    `cores` tasks at once. Only processes that know `secret` may send work; session() reads it from
    ``AFT_CLUSTER_SECRET``. Messages are encrypted. ValueError when a number is below 1,
    RuntimeError when a daemon does not start.
    """

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        require_number("workers", workers, least=1, whole=True)
        require_number("cores", cores, least=1, whole=True)
        self.secret = secrets.token_hex(32)
        self._folder = tempfile.TemporaryDirectory(
            prefix="aft-cluster-", ignore_cleanup_errors=True
        )
        self.folder, self.workers = Path(self._folder.name), list[Daemon]()
        self._shells: list[subprocess.Popen[bytes]] = []
        try:
            (self.folder / "spark.conf").write_text(_SETTINGS)
            self.master = self._start("master", "master.Master")
            self.url = self._wait_for_log(self.master, r"Starting Spark master at (spark://\S+)")[0]
            size = ("--cores", f"{cores}", "--memory", memory)
            for number in range(workers):
                place = self.folder / f"worker-{number}"
                place.mkdir()
                arguments = (*size, "--work-dir", f"{place}", self.url)
                self.workers.append(self._start(place.name, "worker.Worker", *arguments))
            self._wait_for_log(self.master, r"(Registering worker)", workers)
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which `session` uses this cluster."""
        return {"AFT_MASTER": self.url, "AFT_CLUSTER_SECRET": self.secret}

    def close(self) -> None:
        """End all processes of the cluster."""
        for shell in reversed(self._shells):
            with suppress(BrokenPipeError):
                cast("IO[bytes]", shell.stdin).close()
        for shell in self._shells:
            try:
                shell.wait(STOPS_S)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()
        self._folder.cleanup()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self, name: str, daemon: str, *arguments: str) -> Daemon:
        home, log = Path(pyspark.__file__).parent, self.folder / f"{name}.log"
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        own = {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": UNOPTIMIZED,
            "_SPARK_AUTH_SECRET": self.secret,
        }
        java = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}"]
        ports = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        settings = ["--properties-file", str(self.folder / "spark.conf")]
        with log.open("wb") as file:
            shell = subprocess.Popen(
                ["sh", "-c", _LEASH, "sh", *java, *ports, *settings, *arguments],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=passed | own,
                start_new_session=True,
            )
        self._shells.append(shell)
        started = Daemon(shell, 0, log)
        return Daemon(shell, int(self._wait_for_log(started, r"^daemon (\d+)$")[0]), log)

    @staticmethod
    def _wait_for_log(daemon: Daemon, wanted: str, times: int = 1) -> list[str]:
        """Wait until a daemon logged `wanted` `times` times; return the text of its group."""
        deadline = time.monotonic() + STARTS_S
        while daemon.shell.poll() is None and time.monotonic() < deadline:
            matches = re.findall(wanted, daemon.log.read_text(errors="replace"), re.MULTILINE)
            if len(matches) >= times:
                return matches
            time.sleep(0.05)
        tail = daemon.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(
            f"{daemon.log.stem} of the cluster did not start within {STARTS_S:g} s: {tail}"
        )


@click.command("cluster")
@click.argument("workers", type=click.IntRange(min=1), default=2)
@click.argument("cores", type=click.IntRange(min=1), default=1)
def command(workers: int, cores: int) -> None:
    """Start Spark's own cluster on this machine, until Ctrl-C.

    The cluster has WORKERS workers (2) with CORES cores each (1). The command prints how to use it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with LocalCluster(workers, cores) as cluster:
            variables = cluster.folder / "environment"  # in a folder that only this user can read
            lines = (f"export {name}={value}\n" for name, value in cluster.environment.items())
            variables.write_text("".join(lines))
            click.echo(f"{workers} workers of {cluster.url}. To use them, run in another shell:")
            click.echo(f"  . {variables}")
            click.echo("Ctrl-C ends them.")
            with suppress(KeyboardInterrupt):
                while True:
                    signal.pause()
    except (OSError, RuntimeError) as error:  # no Java, or one that does not start
        raise click.ClickException(str(error)) from error
