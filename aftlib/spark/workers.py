"""Start Spark's Python processes on this machine.

This module is a library for `session`, and also the program that Spark starts: see `launcher`.

In a local session Spark forks the workers of tasks from a daemon (``spark.python.daemon.module``),
which loads their common imports. They exchange data with the JVM by Unix sockets: by TCP each task
waits tens of milliseconds for a delayed acknowledgement. Twelve empty tasks take 0.08 s on two
cores, with Spark's own daemon and TCP 0.37 s.

Spark starts any other process, such as the one that plans the micro-batches of a streaming source,
by itself, and waits 10 s for its connection. No property changes this limit. On a busy machine the
imports alone may take longer, so such a process connects first, and imports afterwards.

Both replace private parts of pyspark, `daemon.worker` and `util.local_connect_and_auth`, which
pyspark 4.0 to 4.3 have. In 4.0 Unix sockets are missing; there it all goes by TCP.
"""

import atexit
import gc
import os
import runpy
import shlex
import shutil
import socket
import sys
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TextIO

MODULES = (
    *("numpy", "scipy.linalg", "scipy.special", "pandas", "pyarrow.compute", "numba"),
    *("pyspark.worker", "pyspark.sql.pandas.serializers"),
)
"""Imports that the tasks of all packages need."""

_PATH = "PYTHON_WORKER_FACTORY_SOCK_PATH"
# Spark puts archives with its own modules in front of Python's path. They are installed here
# anyway, and each process would take about 0.5 s to compile them.
_LAUNCHER = """\
#!/bin/sh
[ -z "${path}" ] || set -- -m aftlib.spark.workers "$@"
set -f; IFS=:; kept=
for entry in $PYTHONPATH; do
  case $entry in {spark}/*) ;; *) kept=$kept${{kept:+:}}$entry ;; esac
done
PYTHONPATH=$kept exec {python} "$@"
"""


def launcher(folder: Path) -> Path:
    """Write a program into `folder` that starts this Python.

    For a process whose connection Spark awaits it runs `connect_first`. The processes import the
    installed pyspark, not the one in Spark's archives. The program is named after its contents and
    appears by one rename, like the wrapper of Java.
    """
    import pyspark

    from aftlib.spark.java import write_program

    spark = shlex.quote(str(Path(pyspark.__file__).parent))
    script = _LAUNCHER.format(path=_PATH, spark=spark, python=shlex.quote(sys.executable))
    return write_program(folder / f"python-{sha256(script.encode()).hexdigest()[:16]}", script)


@cache
def socket_folder() -> str:
    """Make a folder, closed to other users, for the Unix sockets of this process."""
    # The path of a socket may have 103 bytes, of which Spark's names take 43.
    place = "/tmp" if len(os.fsencode(tempfile.gettempdir())) > 45 else None
    folder = tempfile.mkdtemp(prefix="aft-", dir=place)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def local_processes() -> dict[str, str]:
    """Return the Spark properties of a session whose Python processes are started as here."""
    return {
        "spark.python.daemon.module": "aftlib.spark.workers",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": socket_folder(),
    }


def connect_first(module: str) -> None:
    """Connect to the JVM by its Unix socket, then run `module`."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ[_PATH])
    file = connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", 65536)))

    import pyspark.util

    pyspark.util.local_connect_and_auth = lambda *_: (file, connection)
    if module.endswith("transform_with_state_driver_worker"):  # it prints its every step
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def is_closed(connection: socket.socket) -> bool:
    """Wait for the next task; return True if the session has ended instead.

    Spark's worker would report the end as a failed task, by a socket that nobody reads any more.
    """
    return not connection.recv(1, socket.MSG_PEEK)


def report_failure(text: str, file: TextIO) -> None:
    """Write what pyspark's daemon prints, but not that Spark no longer waits for an output.

    Spark hangs up when it ends a task early, as it does where a query stops. On a busy machine the
    worker may still be writing then, and pyspark would print the traceback of its broken pipe.
    """
    if not isinstance(sys.exception(), BrokenPipeError):
        file.write(f"{text}\n")


def run_daemon() -> None:
    """Load the workers' imports, then fork them whenever Spark orders one."""
    # Arrow's allocator would start a thread here, and a process with threads should not fork.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in MODULES:
        with suppress(ImportError):  # not all extras are installed
            import_module(name)
    from pyspark import daemon

    work = daemon.worker
    daemon.worker = lambda sock, authenticated: is_closed(sock) or work(sock, authenticated)
    vars(daemon)["print"] = report_failure  # stands before the builtin
    # A worker collects garbage after each task. To look for it among all modules takes 20 ms.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    if _PATH in os.environ:
        connect_first(sys.argv[-1])
    else:
        run_daemon()
