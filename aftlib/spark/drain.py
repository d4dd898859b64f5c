"""A streaming query from its start until all its input has been processed."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.streaming import DataStreamWriter


def drain(writer: DataStreamWriter, directory: Path) -> None:
    """Run a stream until its source has nothing more; stop it whatever happens.

    Spark's own checkpoint lies in `directory`: a run goes on where the last one there ended.
    """
    stream = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    try:
        stream.processAllAvailable()
    finally:
        stream.stop()
