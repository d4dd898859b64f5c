"""Spark's daemon of Python workers, with what these import loaded once, before it forks them.

``spark.python.daemon.module`` of a local session names it. A micro-batch in which a worker is
killed took 1.3 s where each loads them for itself, and .65 s so, .4 s of them undisturbed.
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
