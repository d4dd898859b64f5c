"""The recoveries in this process: a process that is killed raises `Killed` instead."""

import os
from types import SimpleNamespace

import numpy as np

from aftlib.approximately_once.operator import SensorSplits
from aftlib.checkpoint_planning import driver
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.does_it_pay import process_recoveries, spark_recoveries
from aftlib.does_it_pay.cases import make_case
from aftlib.spark.faults import schedule_to_json
from tests.failure_drill.in_process import Killed, batch_by_batch, injected

CASE = {
    "sensors": 6, "width": 12, "workers": 2, "learned": 4, "measured": 12, "epsilon_sd": 1.0,
    "delta": 0.05, "budget": 0.3, "seed": 1,
}  # fmt: skip


def small_case(**changed):
    return make_case("generated", **CASE | changed)


def all_here(patch):
    """Run Spark's part and D2's processes in this process."""
    patch.setattr(os, "kill", injected)
    patch.setattr(CheckpointStore, "end", lambda *_: None)  # a killed process ends nothing
    stream = lambda splits, _: SimpleNamespace(writeStream=splits)  # noqa: E731
    patch.setattr(SensorSplits, "stream", stream)
    patch.setattr(spark_recoveries, "drain", batch_by_batch)
    patch.setattr(process_recoveries, "killed_driver", killed_here)


def killed_here(directory, fault):
    """Run D2's process until it is killed, and return its start."""
    import time

    start = time.time()
    try:
        driver.main(str(directory), "bare", schedule_to_json([fault]))
    except Killed:
        return start
    raise AssertionError(f"{fault} did not come")


def exact_means(case):
    """True means of the windows after the learning phase, computed one by one."""
    width = case.windows.width
    parts = np.split(case.values, len(case.values) // width)
    return np.array([part.mean(axis=0) for part in parts[case.learned :]])
