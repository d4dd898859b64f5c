"""The one Spark session of the process, the same on a laptop and on a cluster."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from aftlib.spark.java import cache_dir, java_home
from aftlib.spark.workers import launcher, local_processes

DEFAULT_MASTER = "local[*,4]"  # a task may fail three times, because experiments kill workers
CONNECTION_S = 600  # how long the JVM and a Python process wait for each other's connection
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""State store in which `recoverable` keeps its guards."""
REUSE = "spark.sql.exchange.reuse"
"""Spark's reuse of equal parts of a plan. With a keyed Python state in such a part, the query loses
rows without an error (seen in pyspark 4.3 with a trivial processor, too)."""
LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""Number of new files above which Spark lists them by a job with a task per file."""
PROPERTIES = {
    "spark.driver.memory": "2g",  # all tasks of a local master share it
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A sum that overflows its type must stop the run, not wrap around.
    "spark.sql.ansi.enabled": "true",
    # Spark's own 200 is for a cluster: here each partition costs more than its rows.
    "spark.sql.shuffle.partitions": "4",
    PROVIDER: ROCKSDB,
    REUSE: "false",
    LISTING: "10000",
    # Spark's own are pages of 32 MB, several per task, however few its rows.
    "spark.buffer.pageSize": "4m",
    # No stream lists a file again that it has read, but Spark would keep 250 MB of such lists.
    "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
    # Spark keeps data for a user interface in the heap, by default of 1,000 queries.
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    # Spark's own 15 s are too few for a process that starts on a busy machine.
    "spark.python.authenticate.socketTimeout": f"{CONNECTION_S}s",
}
"""Spark properties of every session, wherever it runs."""
_CHECKPOINTS = "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
FILE_MANAGER = (
    f"org.apache.spark.sql.execution.streaming.{_CHECKPOINTS}FileSystemBasedCheckpointFileManager"
)
"""Class that writes checkpoints on this machine. For each file it starts two processes (chmod).
Spark's own choice starts ten (chmod, readlink). A micro-batch of D1 spends .04 s instead of .12 s
on its checkpoint."""

# pyspark 4.3 warns at every exchange with pandas 3, although the functions used here work.
_PANDAS_NOTICE = "PySpark does not yet fully support pandas"
_LOGGING = Path(__file__).with_name("log4j2.properties").resolve()


def session(app: str = "aft", **conf: str) -> SparkSession:
    """Return the running session, or start one that Spark shows as `app`.

    `conf` has Spark properties that go before the defaults here, such as
    ``**{"spark.sql.shuffle.partitions": "64"}``; static ones have an effect only if no session
    runs. FileNotFoundError when no Java is usable.

    ``AFT_MASTER`` (default ``local[*,4]``) chooses where the session runs. A local master runs the
    tasks in this process's own Python, and listens on the loopback only. The machines of a cluster
    need the same Python with aftlib installed; ``PYSPARK_PYTHON`` names it as they see it.
    """
    # It must stay as long as pyspark is used; filters that the user sets go before it.
    warnings.filterwarnings("ignore", _PANDAS_NOTICE, FutureWarning, append=True)
    users = os.environ.get("PYTHONWARNINGS")
    quiet = f"{users + ',' if users else ''}ignore:{_PANDAS_NOTICE}:FutureWarning"
    properties = PROPERTIES | {
        "spark.master": master(),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        # A local master's workers have this from the JVM; those of a cluster only from here.
        "spark.executorEnv.PYTHONWARNINGS": quiet,
    }
    # Variables with which the JVM, and so the Python workers, start.
    variables = {"JAVA_HOME": str(java_home()), "PYTHONWARNINGS": quiet}
    if master().startswith("local"):
        properties |= dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), "127.0.0.1")
        properties |= local_processes()
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
        properties["spark.sql.streaming.checkpointFileManagerClass"] = FILE_MANAGER
        # An older Spark or another Python named by the user's environment would not fit this one.
        variables["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
        variables["PYSPARK_PYTHON"] = str(launcher(cache_dir()))
    else:
        variables["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable

    builder = SparkSession.builder.appName(app)
    for name, value in {**properties, **conf}.items():
        builder = builder.config(name, value)
    with environment(**variables):
        return builder.getOrCreate()


def master() -> str:
    """Return the Spark master that `session` starts on: ``AFT_MASTER`` or ``local[*,4]``."""
    return os.environ.get("AFT_MASTER") or DEFAULT_MASTER


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
