"""A coordinator to be killed: Spark estimates the windows that worker processes did not emit.

python -m tests.crash.recovery_driver DIRECTORY [BATCH]

It streams DIRECTORY/incoming until it is killed. With a batch, it appends windows to a folder
without a record of what it wrote, as the broken control, and kills itself after that micro-batch.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows
from aftlib.documents.approximately_once.assignment import assign_spread
from aftlib.documents.approximately_once.six_sensors import estimate_windows
from aftlib.documents.approximately_once.worker import SCHEMA
from aftlib.streaming.promise import Promise
from aftlib.streaming.stream import recoverable

WINDOWS = Windows(10, 5)
STEPS = 600
SAMPLES = block_model(6, 2)
MODEL = SAMPLES.aggregate(WINDOWS.width)
ASSIGNMENT = assign_spread(MODEL, 3, Requirement(0.3, 0.05))
"""Three workers of two sensors, each of which can be estimated from the others."""
PROMISE = Promise(
    [[MODEL.names[key] for key in keys] for keys in ASSIGNMENT.workers],
    epsilon=0.3,
    delta=0.05,
    window="5s",
    watermark="5s",
    model=MODEL,
)


def start_careless(spark, directory, kill_in=None):
    """The control: windows are appended, whether or not the micro-batch was written before."""

    def append(batch: DataFrame, number: int) -> None:
        batch.write.mode("append").parquet(str(directory / "windows"))
        if number == kill_in:
            os.kill(os.getpid(), signal.SIGKILL)

    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 60)
    windows = recoverable(stream.parquet(str(directory / "incoming")), PROMISE)
    writer = windows.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.foreachBatch(append).start()


if __name__ == "__main__":
    from aftlib.spark.session import session
    from aftlib.streaming.stream import PROVIDER, ROCKSDB

    place = Path(sys.argv[1])
    kill_in = [int(number) for number in sys.argv[2:]]
    running = session("crash", **{"spark.sql.shuffle.partitions": "2"})
    running.conf.set(PROVIDER, ROCKSDB)
    if kill_in:
        start_careless(running, place, *kill_in).awaitTermination()
    else:
        estimate_windows(running, PROMISE, place / "incoming", place).awaitTermination()
