"""Start Spark's Python processes on this machine.

In a local session Spark forks the workers of tasks from a daemon (``spark.python.daemon.module``),
which loads their common imports. A micro-batch in which a worker is killed takes 0.65 s with this
daemon, 1.3 s without it.

Spark starts any other process, such as the one that plans the micro-batches of a streaming source,
by itself, and waits 10 s for its connection and 10 s for its secret. No property changes these
limits. On a busy machine the imports alone may take longer, so such a process connects and sends
the secret first, and imports afterwards.
"""

import os
import runpy
import shlex
import socket
import sys
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path

MODULES = (
    *("numpy", "scipy.linalg", "scipy.special", "pandas", "pyarrow.compute", "numba"),
    *("pyspark.worker", "pyspark.sql.pandas.serializers"),
)
"""Imports that the tasks of all packages need."""

_PORT = "PYTHON_WORKER_FACTORY_PORT"
_LAUNCHER = """\
#!/bin/sh
[ -z "${port}" ] || set -- -m aftlib.spark.workers "$@"
exec {python} "$@"
"""


def launcher(folder: Path) -> Path:
    """Write a program into `folder` that starts this Python, by `connect_first` if Spark waits.

    It is named after its contents and appears by one rename, like the wrapper of Java.
    """
    from aftlib.core.paths import atomic_file

    script = _LAUNCHER.format(port=_PORT, python=shlex.quote(sys.executable))
    program = folder / f"python-{sha256(script.encode()).hexdigest()[:16]}"
    if not program.is_file():
        with atomic_file(program) as draft:
            draft.write_text(script)
            draft.chmod(0o755)
    return program


def connect_first(module: str) -> None:
    """Connect to the JVM and authenticate as `SocketAuthHelper` expects it, then run the module."""
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, int(os.environ[_PORT])))
    file = connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", 65536)))
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    file.write(len(secret).to_bytes(4, "big") + secret)
    file.flush()
    reply = file.read(int.from_bytes(file.read(4), "big"))
    if reply != b"ok":
        raise ConnectionError(f"the JVM must answer the secret by b'ok', got {reply!r}")

    import pyspark.util

    pyspark.util.local_connect_and_auth = lambda *_: (file, connection)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_daemon() -> None:
    """Load the workers' imports, then fork them whenever Spark orders one."""
    # Arrow's allocator would start a thread here, and a process with threads should not fork.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in MODULES:
        with suppress(ImportError):  # not all extras are installed
            import_module(name)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    if _PORT in os.environ:
        connect_first(sys.argv[-1])
    else:
        run_daemon()
