"""Recovery after a driver's death, with the start of the process that takes its place."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.driver import KINDS, passed, write_task
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.pipeline import prepare
from aftlib.core.sensorlog import SensorLog

PHASES = ("python_ms", "spark_ms", "stream_ms", "recovery_ms", "commit_ms")
"""From the start of the new process: Python and its imports; the Spark session; the stream up to
the failed batch; T_rec itself; planning the rest of the window anew and committing."""


def restarts(
    query: ReplayQuery,
    log: SensorLog,
    scratch: Path,
    count: int,
    seed: int,
    kinds: tuple[str, ...] = KINDS,
) -> pd.DataFrame:
    """Kill drivers by SIGKILL in the middle of a batch; time the processes that recover it.

    Each driver has its state to itself, dies with the tuples of one of its first three batches
    read and nothing of them committed, and is started again at once: how soon a failure is
    noticed is not measured here.

    Parameters
    ----------
    query : ReplayQuery
    log : SensorLog
    scratch : path
        New directory for the states.
    count, seed : int
        Drivers of each kind to kill; of the batch in which each dies.
    kinds : tuple of str
        "bare" is one process without Spark, "spark" runs the stream on Spark.

    Returns
    -------
    DataFrame
        kind, trial, batch, sensors, the milliseconds of `PHASES`, and all_ms from the start of
        the new process to its commit.

    Raises
    ------
    RuntimeError
        When a process ends otherwise than by its SIGKILL.
    """
    rng = np.random.default_rng(seed)
    trials = [(kind, trial, int(rng.integers(3))) for trial in range(count) for kind in kinds]
    return pd.DataFrame(
        [
            {"kind": kind, "trial": trial}
            | _recovered(query, log, scratch / f"{kind}-{trial}", kind, batch)
            for kind, trial, batch in trials
        ],
        columns=["kind", "trial", "batch", "sensors", *PHASES, "all_ms"],
    )


def _recovered(
    query: ReplayQuery, log: SensorLog, directory: Path, kind: str, batch: int
) -> dict[str, float]:
    write_task(directory, query, log)
    _killed(directory, kind, "replayed", batch)
    start = _killed(directory, kind, "committed", batch)
    record = next(r for r in prepare(query, directory).store.records() if r.batch == batch)
    at = passed(directory)
    marks = [start, at["loaded", -1], at["started", -1], at["estimated", batch]]
    python, spark, until = np.diff(marks) * 1e3
    recovery = record.res_ms + record.rep_ms + record.est_ms
    commit = (at["committed", batch] - at["estimated", batch]) * 1e3
    phases = zip(PHASES, (python, spark, until - recovery, recovery, commit), strict=True)
    everything = (at["committed", batch] - start) * 1e3
    return {"batch": batch, "sensors": record.sensors, **dict(phases), "all_ms": everything}


def _killed(directory: Path, kind: str, point: str, batch: int) -> float:
    """Start a driver that dies at a point of a batch; when it was started, s since the epoch."""
    command = [sys.executable, "-m", "aftlib.checkpoint_planning.driver", str(directory), kind]
    start = time.time()
    done = subprocess.run([*command, point, str(batch)], capture_output=True, text=True)
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(
            f"driver must die at {point!r} of batch {batch}, ended with status {done.returncode}; "
            f"its last words: {done.stderr[-500:]}"
        )
    return start
