"""Spark's daemon of Python workers, with what these import loaded once, before it forks them.

``spark.python.daemon.module`` of a local session names it. Each worker is then at work a second
sooner, and so is the substitute of one that was killed.
"""

import os
from contextlib import suppress
from importlib import import_module

MODULES = (
    *("numpy", "scipy.linalg", "scipy.special", "pandas", "pyarrow.compute", "numba"),
    *("pyspark.worker", "pyspark.sql.pandas.serializers"),
)
"""What the tasks of all rooms need."""

if __name__ == "__main__":
    # Arrow's allocator would start a thread here, and a process with threads should not fork.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in MODULES:
        with suppress(ImportError):  # not all extras are installed
            import_module(name)
    from pyspark.daemon import manager

    manager()
