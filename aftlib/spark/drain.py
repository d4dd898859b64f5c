"""A streaming query from its start until all its input has been processed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter


def drain(
    writer: DataStreamWriter,
    directory: Path,
    each: Callable[[DataFrame, int], None] | None = None,
) -> None:
    """Run a stream until its source has nothing more; stop it whatever happens.

    Spark's own checkpoint lies in `directory`: a run goes on where the last one there ended.
    `each` is called with every micro-batch and its number. What ``foreachBatch`` alone would keep
    is let go of at the end: `each`, with all that it holds, until the JVM collects garbage, and for
    good a connection with a thread here, as py4j has one for every thread of the JVM that calls.
    A RuntimeError says that somebody else has stopped the stream, as a second run in the same
    directory does: Spark itself then says nothing, whatever is left of the input.
    """
    acts, connections, stream = [each], list[Any](), None

    def act(frame: DataFrame, batch: int) -> None:
        client = frame.sparkSession.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
        asked = getattr(client, "get_thread_connection", lambda: None)  # not with unpinned threads
        connections[:] = [asked()]
        acts[0](frame, batch)  # type: ignore[misc]

    if each is not None:
        writer = writer.foreachBatch(act)
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
            for connection in connections:
                with suppress(AttributeError, OSError):  # closed already
                    connection.socket.shutdown(SHUT_RDWR)  # which ends the thread that reads it
            connections.clear()
