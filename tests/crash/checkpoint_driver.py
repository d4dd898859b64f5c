"""Run a short stream, for a trace that shows which of Spark's files are synced.

python -m tests.crash.checkpoint_driver {D1,D5} DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

from aftlib.approximately_once.pipeline import recover_stream
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import run
from aftlib.exponential_histogram.source import BitEvents
from tests.crash import recovery_driver


def main(kind: str, place: str) -> None:
    """Two micro-batches."""
    from aftlib.spark.session import session

    spark, folder = session("trace"), Path(place)
    if kind == "D1":
        query = recovery_driver.query(recovery_driver.write_log(folder), stop=20_000)
        recover_stream(spark, query, folder / "stream")
    else:
        events = BitEvents(0.3, None, 7, 2, 400, 200, 2).stream(spark)
        run(spark, events, HistogramQuery(150, 0.1), folder / "stream", partitions=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
