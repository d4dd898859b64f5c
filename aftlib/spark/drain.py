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
    A RuntimeError says that somebody else has stopped the stream, as a second run in the same
    directory does: Spark itself then says nothing, whatever is left of the input.
    """
    acts, stream = [each], None
    if each is not None:
        writer = writer.foreachBatch(lambda frame, batch: acts[0](frame, batch))  # type: ignore[misc]
    try:
        stream = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
        stream.processAllAvailable()
        if not stream.isActive:
            raise RuntimeError(
                f"stream in {str(directory)!r} was stopped by somebody else before its end: let "
                "one run at a time work in a directory, and run it again"
            )
    finally:
        try:
            if stream is not None:
                stream.stop()
        finally:
            acts.clear()
