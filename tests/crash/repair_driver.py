"""A driver to be killed: a repair of the tables in a folder.

python -m tests.crash.repair_driver DIRECTORY STEP

It kills itself at the step: "write", while Spark writes the new version; "link", before this is in
use; "in-place", while a broken control writes into the version that others read.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from aftlib import Promise
from aftlib.core.storage import CURRENT
from aftlib.streaming import repair as module
from aftlib.streaming.repair import Repair

PROMISE = Promise([["a"], ["b"]], 0.5, 0.05, "5min", samples=5)
STEPS = ("write", "link", "in-place")


def run(spark: SparkSession, directory: Path) -> Repair:
    """Put right the windows of a folder by its archive, into its folder "right"."""
    return module.repair(
        spark.read.parquet(str(directory / "windows")),
        spark.read.parquet(str(directory / "archive")),
        PROMISE,
        group="site",
        into=directory / "right",
    )


def killing(merged: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """Return the function with a table of which a row kills the driver while Spark writes."""
    driver = os.getpid()

    @udf("boolean")
    def kill(_: int) -> bool:
        os.kill(driver, signal.SIGKILL)
        time.sleep(30)  # so that the row is not written while the JVM ends
        return True

    def wrapped(*arguments: Any) -> DataFrame:
        return merged(*arguments).where(kill("samples"))

    return wrapped


@contextmanager
def in_place(directory: Path) -> Iterator[Path]:
    """The broken control."""
    yield (directory / CURRENT).resolve()


def kill_at(event: str, arguments: tuple[Any, ...]) -> None:
    """End this process before a version comes in use."""
    if event == "os.rename" and Path(arguments[1]).name == CURRENT:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    from aftlib.spark.session import session

    running = session("repair", **{"spark.sql.shuffle.partitions": "2"})
    step = sys.argv[2]
    if step == "link":
        sys.addaudithook(kill_at)
    with (
        patch.object(module, "merged", module.merged if step == "link" else killing(module.merged)),
        patch.object(module, "new_version", in_place if step == "in-place" else module.new_version),
    ):
        run(running, Path(sys.argv[1]))
