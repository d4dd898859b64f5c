"""Sessions of Spark Connect: in a server of this process, or in one started apart.

``python -m tests.connect`` starts a server, prints its address, and stops it by SIGTERM.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from aftlib.spark.java import java_home
from aftlib.spark.session import LISTING, PROPERTIES, PROVIDER, REUSE

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SETTINGS = ("spark.sql.session.timeZone", PROVIDER, REUSE, LISTING)
"""Settings of `session` that a session of Connect needs, too."""


def variables() -> dict[str, str]:
    """Environment variables with which a server and its Python workers start on this machine."""
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }


def connected(remote: str) -> SparkSession:
    """Return a session of Spark Connect: of "local[2]", or of the server at "sc://…"."""
    os.environ.update(variables())
    running = SparkSession.builder.remote(remote).getOrCreate()
    for name in SETTINGS:
        running.conf.set(name, PROPERTIES[name])
    return running


@contextmanager
def server() -> Iterator[str]:
    """Start a server of Spark Connect on the loopback; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = [f"--conf={name}={value}" for name, value in own.items()]
    command = [submit, "--master=local[2]", f"--class={SERVER}", *options, "spark-internal"]
    process = subprocess.Popen(command, env=os.environ | variables(), stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 300
        while not listens(port):
            assert process.poll() is None and time.monotonic() < until, "the server did not start"
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def listens(port: int) -> bool:
    """Whether somebody listens on a port of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with server() as address:
        print(address, flush=True)
        signal.pause()
