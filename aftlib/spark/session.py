"""The one Spark session of the process, the same on a laptop and on a cluster."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from aftlib.spark.java import java_home

DEFAULT_MASTER = "local[*,4]"  # a task may fail three times: the failures that we cause are real
DEFAULT_DRIVER_MEMORY = "2g"

# pyspark 4.3 says so at every exchange with pandas 3, although what is used here works.
_PANDAS_NOTICE = "PySpark does not yet fully support pandas"
_LOGGING = Path(__file__).with_name("log4j2.properties").resolve()


def session(app: str = "aft", **conf: str) -> SparkSession:
    """Return the running session, or start one.

    Parameters
    ----------
    app
        The name that Spark shows.
    **conf
        Spark properties that go before the defaults here, such as
        ``**{"spark.sql.shuffle.partitions": "64"}``. Static ones count only if no session runs.

    Raises
    ------
    FileNotFoundError
        No Java is usable.
    ValueError
        ``AFT_DRIVER_MEMORY`` is not a size.

    Notes
    -----
    ``AFT_MASTER`` (default ``local[*,4]``) chooses where it runs, ``AFT_DRIVER_MEMORY`` (default
    ``2g``) the memory of the driver, which with a local master is that of all tasks.

    The tasks import aftlib. A local master runs them in this process's own Python. The machines of
    a cluster need the same Python with aftlib and its dependencies: install it there (``make
    setup`` at the same place on each), or ship an archive with ``spark.archives``, and let
    ``PYSPARK_PYTHON`` name the interpreter as the machines see it.
    """
    warnings.filterwarnings("ignore", message=_PANDAS_NOTICE, category=FutureWarning)
    memory = os.environ.get("AFT_DRIVER_MEMORY") or DEFAULT_DRIVER_MEMORY
    if not re.fullmatch(r"[1-9]\d*[kmgt]b?", memory, re.IGNORECASE):
        raise ValueError(
            f"AFT_DRIVER_MEMORY must be a whole number with a unit, such as 2g or 512m, "
            f"got {memory!r}: correct it or unset it (default {DEFAULT_DRIVER_MEMORY})"
        )
    own = os.environ.get("PYTHONWARNINGS")
    quiet = f"{own + ',' if own else ''}ignore:{_PANDAS_NOTICE}:FutureWarning"
    properties = {
        "spark.master": master(),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A sum that leaves its type must stop the run, not wrap around.
        "spark.sql.ansi.enabled": "true",
        # Spark's own 200 is for a cluster: here each partition costs more than its rows.
        "spark.sql.shuffle.partitions": "4",
        # A local master's workers have this from the JVM; those of a cluster only from here.
        "spark.executorEnv.PYTHONWARNINGS": quiet,
    }
    # What the JVM, and from it the Python workers, start with.
    variables = {"JAVA_HOME": str(java_home()), "PYTHONWARNINGS": quiet}

    if master().startswith("local"):
        properties |= dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), "127.0.0.1")
        # An older Spark or another Python named by the user's environment would not fit this one.
        variables |= {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
    else:
        variables["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable

    builder = SparkSession.builder.appName(app)
    for name, value in {**properties, **conf}.items():
        builder = builder.config(name, value)
    with _environment(**variables):
        return builder.getOrCreate()


def master() -> str:
    """Return the Spark master that `session` starts on: ``AFT_MASTER`` or ``local[*,4]``."""
    return os.environ.get("AFT_MASTER") or DEFAULT_MASTER


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables while the block runs: pyspark hands them on in no other way."""
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
