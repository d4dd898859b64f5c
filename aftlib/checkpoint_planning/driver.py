"""A driver process that streams a log by partial replay; it can be killed and started again.

`main` is the whole life of such a process. A fault with a `point` hits there, in the batch number
`step`. A fault without a point hits after the samples of the batch with the stream's step `step`
are read.
"""

from __future__ import annotations

import json
import signal
import time
from multiprocessing import get_context
from pathlib import Path
from typing import cast

from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.pipeline import replay_in_process
from aftlib.checkpoint_planning.state import Checkpoint, CheckpointStore
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.faults import Fault, Injector
from aftlib.spark.session import environment

PATIENCE_S = 1800.0
"""Longest time that a driver may run, in seconds."""
ONE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
"""Variables with which the process that forks drivers has no other threads."""
_PASSED = "passed.jsonl"


def passed_points(directory: Path) -> list[tuple[str, int, float]]:
    """Return the points that drivers in a directory passed: point, batch, seconds since 1970."""
    lines = (directory / _PASSED).read_text().splitlines()
    return [(point, batch, at) for point, batch, at in map(json.loads, lines)]


def main(directory: Path, query: ReplayQuery, log: SensorLog, fault: Fault | None = None) -> None:
    """Recover the batch of an earlier process, then stream the rest of the log without Spark."""
    directory.mkdir(parents=True, exist_ok=True)
    injector = Injector(directory / "faults", (fault,) if fault else ())
    last_step = 0

    def passes(point: str, number: int) -> None:
        nonlocal last_step
        if point == "begun":  # before the time is taken
            store = CheckpointStore(directory / "state.sqlite", query.fingerprint)
            last_step = cast("Checkpoint", store.restore()).next_boundary - 1
        with (directory / _PASSED).open("a") as file:
            file.write(json.dumps([point, number, time.time()]) + "\n")
        injector.reach("driver", number, point)
        if point == "replayed":
            injector.reach("driver", last_step)

    passes("loaded", -1)
    replay_in_process(query, log, directory, passes)


def killed_driver(directory: Path, query: ReplayQuery, log: SensorLog, fault: Fault) -> float:
    """Fork a driver that a fault kills; return the driver's start time in seconds since 1970.

    It is forked from a process that has loaded all imports, as a standby process would be.
    RuntimeError when it does not end by its SIGKILL.
    """
    forks = get_context("forkserver")
    forks.set_forkserver_preload([__name__])
    process = forks.Process(target=main, args=(directory, query, log, fault))
    start = time.time()
    with environment(**ONE_THREAD):
        process.start()
    process.join(PATIENCE_S)
    if process.exitcode != -signal.SIGKILL:
        process.kill()
        raise RuntimeError(
            f"driver must end by SIGKILL at {fault}, got exit status {process.exitcode}: see its "
            "error above"
        )
    return start
