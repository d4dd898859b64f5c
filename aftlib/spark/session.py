"""The one Spark session of the process, the same on a laptop and on a cluster."""

from __future__ import annotations

import os
import re
import secrets
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

import aftlib
from aftlib.core.paths import atomic_file
from aftlib.spark.java import cache_dir, java_home
from aftlib.spark.workers import launcher, local_processes

DEFAULT_MASTER = "local[*,4]"  # a task may fail three times, because experiments kill workers
DEFAULT_DRIVER_MEMORY = "2g"
CONNECTION_S = 600  # how long the JVM and a Python process wait for each other's connection
PROPERTIES = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A sum that overflows its type must stop the run, not wrap around.
    "spark.sql.ansi.enabled": "true",
    # Spark's own 200 is for a cluster: here each partition costs more than its rows.
    "spark.sql.shuffle.partitions": "4",
    # Spark keeps data for a user interface in the heap, by default of 1,000 queries.
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    # Spark's own 15 s are too few for a process that starts on a busy machine.
    "spark.python.authenticate.socketTimeout": f"{CONNECTION_S}s",
}
"""Spark properties of every session, wherever it runs."""
FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Class that writes checkpoints on this machine. For each file it starts two processes (chmod).
Spark's own choice starts ten (chmod, readlink). A micro-batch of D1 spends .04 s instead of .12 s
on its checkpoint."""

# pyspark 4.3 warns at every exchange with pandas 3, although the functions used here work.
_PANDAS_NOTICE = "PySpark does not yet fully support pandas"
_AS_MANY_AS_THERE_ARE = 10_000  # executors, for a session that names no number
_LOGGING = Path(__file__).with_name("log4j2.properties").resolve()


def session(app: str = "aft", **conf: str) -> SparkSession:
    """Return the running session, or start one that Spark shows as `app`.

    `conf` has Spark properties that go before the defaults here, such as
    ``**{"spark.sql.shuffle.partitions": "64"}``; static ones have an effect only if no session
    runs. FileNotFoundError when no Java is usable, ValueError when ``AFT_DRIVER_MEMORY`` is not a
    size.

    ``AFT_MASTER`` (default ``local[*,4]``) chooses where the session runs. ``AFT_DRIVER_MEMORY``
    (default ``2g``) sets the memory of the driver, which with a local master all tasks share.

    A local master runs the tasks in this process's own Python. A cluster gets the current copy of
    aftlib; its machines need the same Python with the dependencies, and ``PYSPARK_PYTHON`` names it
    as they see it (docs/cluster.md). Where ``AFT_CLUSTER_SECRET`` is set, only processes that know
    it may connect to the session, and all messages are encrypted.
    """
    warnings.filterwarnings("ignore", message=_PANDAS_NOTICE, category=FutureWarning)
    memory = os.environ.get("AFT_DRIVER_MEMORY") or DEFAULT_DRIVER_MEMORY
    if not re.fullmatch(r"[1-9]\d*[kmgt]b?", memory, re.IGNORECASE):
        raise ValueError(
            f"AFT_DRIVER_MEMORY must be a whole number with a unit, such as 2g or 512m, "
            f"got {memory!r}: correct it or unset it (default {DEFAULT_DRIVER_MEMORY})"
        )
    # pyspark reads this variable whenever it fetches a result from the JVM.
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(CONNECTION_S))
    own = os.environ.get("PYTHONWARNINGS")
    quiet = f"{own + ',' if own else ''}ignore:{_PANDAS_NOTICE}:FutureWarning"
    properties = PROPERTIES | {
        "spark.master": master(),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        # A local master's workers have this from the JVM; those of a cluster only from here.
        "spark.executorEnv.PYTHONWARNINGS": quiet,
    }
    # Variables with which the JVM, and so the Python workers, start.
    variables = {"JAVA_HOME": str(java_home()), "PYTHONWARNINGS": quiet}
    # With a loopback master all sockets stay on it, and each worker has this machine's files.
    python = str(launcher(cache_dir())) if is_loopback(master()) else sys.executable
    if is_loopback(master()):
        properties |= dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), "127.0.0.1")
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    if master().startswith("local"):
        properties |= local_processes()
        properties["spark.sql.streaming.checkpointFileManagerClass"] = FILE_MANAGER
        # An older Spark or another Python named by the user's environment would not fit this one.
        variables["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
        variables["PYSPARK_PYTHON"] = python
    else:
        variables["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or python
    if secret := os.environ.get("AFT_CLUSTER_SECRET"):
        variables["_SPARK_AUTH_SECRET"] = secret
        properties |= dict.fromkeys(("spark.authenticate", "spark.network.crypto.enabled"), "true")
        # Spark also requires this property, which anybody may print; the variable overrides it.
        properties["spark.authenticate.secret"] = secrets.token_hex(32)

    builder = SparkSession.builder.appName(app)
    for name, value in {**properties, **conf}.items():
        builder = builder.config(name, value)
    with environment(**variables):
        running = builder.getOrCreate()
    context = running.sparkContext
    if not str(context.master).startswith("local"):
        packed = pack_library()
        if not any(file.endswith(packed.name) for file in context.listFiles):
            context.addPyFile(str(packed))
    return running


def master() -> str:
    """Return the Spark master that `session` starts on: ``AFT_MASTER`` or ``local[*,4]``."""
    return os.environ.get("AFT_MASTER") or DEFAULT_MASTER


@contextmanager
def released_cores() -> Iterator[None]:
    """Free this process's cores of a cluster for drivers that the block starts.

    The running session's executors end, and start again after the block. In the block the session
    can run no job; its cached data are computed again. A local master has no executors to free.
    """
    context = SparkContext._active_spark_context
    if context is None or str(context.master).startswith("local"):
        yield
        return
    scala = context._jsc.sc()
    scala.killExecutors(scala.getExecutorIds())
    try:
        yield
    finally:
        scala.requestExecutors(_AS_MANY_AS_THERE_ARE)


def is_loopback(url: str) -> bool:
    """Whether this master is local, or can be reached from this machine only."""
    hosts = re.findall(r"(?:spark://|,)(\[[^]]*\]|[^:,/]+)", url)
    own = re.compile(r"localhost|127(\.\d+){3}|\[::1\]")
    return url.startswith("local") or bool(hosts) and all(map(own.fullmatch, hosts))


def pack_library() -> Path:
    """Return a zip of the current aftlib, named after its contents, in the cache directory."""
    source = Path(aftlib.__file__).parent
    files = (p for p in sorted(source.rglob("*")) if p.is_file())
    parts = [p for p in files if "__pycache__" not in p.parts]
    digest = sha256()
    for part in parts:
        digest.update(f"{part.relative_to(source)} {part.stat().st_size} ".encode())
        digest.update(part.read_bytes())
    target = cache_dir() / f"aftlib-{digest.hexdigest()[:16]}.zip"
    if not target.is_file():
        with atomic_file(target) as draft, ZipFile(draft, "w") as archive:
            for part in parts:
                archive.write(part, part.relative_to(source.parent))
    return target


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables in the block, because pyspark passes on options in no other way."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
