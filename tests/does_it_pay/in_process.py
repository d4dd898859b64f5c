"""The recoveries in this process: a process that is killed raises `Killed` instead."""

import os
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from aftlib.approximately_once.message_log import _MESSAGE, MessageLog
from aftlib.checkpoint_planning import driver
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.sensorlog import SensorLog
from aftlib.does_it_pay import process_recoveries, spark_recoveries
from aftlib.does_it_pay.cases import make_case
from aftlib.spark.faults import schedule_to_json
from tests.failure_drill.in_process import Killed, injected

CASE = {
    "sensors": 6, "width": 12, "workers": 2, "learned": 4, "measured": 12, "epsilon_sd": 1.0,
    "delta": 0.05, "budget": 0.3, "seed": 1,
}  # fmt: skip


def small_case(**changed):
    return make_case("generated", **CASE | changed)


def all_here(patch):
    """Let Spark's part and D2's processes be done here."""
    patch.setattr(os, "kill", injected)
    patch.setattr(CheckpointStore, "end", lambda *_: None)  # a killed process ends nothing
    stream = lambda splits, _: SimpleNamespace(writeStream=splits)  # noqa: E731
    patch.setattr(spark_recoveries.LearningSplits, "stream", stream)
    patch.setattr(spark_recoveries, "drain", batch_by_batch)
    patch.setattr(process_recoveries, "killed_driver", killed_here)


def batch_by_batch(splits, directory, handler):  # noqa: ARG001
    """Spark's part: each split is tried until it is worked through, and then the handler."""
    start, log = 0, SensorLog.open(splits.log)
    for number in count():
        stop = splits.next_boundary(start)
        if stop == start:
            return
        rows = []
        for split in splits.partitions(start, stop):
            for attempt in range(4):
                try:
                    rows += [*splits.worker.work(split, attempt, log.blocks)]
                    break
                except Killed:
                    path = MessageLog(splits.worker.messages)._path(
                        split.worker, split.start, attempt
                    )
                    os.truncate(path, path.stat().st_size - _MESSAGE.size)  # not reached
                    rows = [row for row in rows if row.column("worker")[0].as_py() != split.worker]
        handler(SimpleNamespace(toArrow=partial(pa.Table.from_batches, rows)), number)
        start = stop


def killed_here(directory, kind, fault):
    """D2's process, until it is killed."""
    import time

    start = time.time()
    try:
        driver.main(str(directory), kind, schedule_to_json([fault]))
    except Killed:
        return start
    raise AssertionError(f"{fault} did not come")


def exact_means(case):
    """True means of the windows that are not learned from, the slow way."""
    width = case.windows.width
    parts = np.split(case.values, len(case.values) // width)
    return np.array([part.mean(axis=0) for part in parts[case.learned :]])
