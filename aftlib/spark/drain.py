"""A streaming query from its start until all its input has been processed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter


def drain(
    writer: DataStreamWriter,
    directory: Path,
    each: Callable[[DataFrame, int], None] | None = None,
) -> None:
    """Run a stream until its source has nothing more; stop it whatever happens.

    Spark's own checkpoint lies in `directory`: a run goes on where the last one there ended.
    `each` is called with every micro-batch and its number. It is let go of at the end, where
    ``foreachBatch`` alone would keep it, and all that it holds, until the JVM collects garbage.
    """
    acts = [each]
    if each is not None:
        writer = writer.foreachBatch(lambda frame, batch: acts[0](frame, batch))  # type: ignore[misc]
    stream = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    try:
        stream.processAllAvailable()
    finally:
        stream.stop()
        acts.clear()
