"""The one process beside the workers, killed and started anew: D1's driver, D3's supervisor.

python -m aftlib.failure_drill.coordinators DIRECTORY is a driver.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.failure_drill.drill import BLOCKS, COVARIANCE, Drill, Run, folder_bytes
from aftlib.failure_drill.drivers import ended
from aftlib.failure_drill.stages import share
from aftlib.spark.faults import Fault
from aftlib.spark.java import short_lived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER, SUPERVISOR = "D1, its driver killed", "D3, its supervisor killed"
STRUCK, BATCHES = 2, 5
"""Micro-batch in which the driver dies, and how many there are."""


def kill_driver(
    drill: Drill, directory: Path, live: Callable[[Path, int], None] | None = None
) -> Run:
    """Stream the first micro-batches by D1's model; the driver dies, and another one goes on.

    It is killed when the handler has written the results of a micro-batch, of which Spark's
    checkpoint does not know yet: the next driver runs it again. `live` is given the directory and
    the status to end with; by default it starts a driver, JVM and all. On a cluster, it has the
    cores of this process's session. Errors as `drivers.ended`.
    """
    steps, names = BATCHES * drill.every, drill.log.names
    log = SensorLog.write(directory / "log", drill.samples[:steps], names)
    part = replace(drill, log=log, strikes=())
    told = {
        "windows": asdict(drill.windows), "workers": drill.workers, "every": drill.every,
        "requirement": asdict(drill.requirement),
    }  # fmt: skip
    (directory / "task.json").write_text(json.dumps(told))
    from aftlib.failure_drill.pipeline import committed, staffed
    from aftlib.spark.session import cores_lent

    with cores_lent():
        for status in (-signal.SIGKILL, 0):
            (live or started)(directory, status)

    _, handler = staffed(part, "D1 by model", steps, directory / "d1", [])
    lives = [json.loads(line) for line in (directory / "passed.jsonl").read_text().splitlines()]
    died, again = strike(directory).note.stat().st_mtime, [p for p in lives if p["batch"] == STRUCK]
    second = again[-1]  # the first one is that of the dead
    times = [(0, 1e3 * (second["began"] - died), 1e3 * (second["done"] - second["began"]))]
    return Run(
        committed(log, part.windows.width, handler.sink.windows()),
        sum(p["read"] for p in lives) - part.rows,
        1,
        folder_bytes([directory / "d1" / "checkpoint", *(directory / "d1").glob("sink*")]),
        {},
        recoveries=pd.DataFrame(times, columns=["number", "restart_ms", "rework_ms"]),
        part=part,
    )


def kill_supervisor(drill: Drill, directory: Path) -> Run:
    """Run D3's stage; a task dies, and its supervisor as soon as it has started that again."""
    return share(replace(drill, strikes=tuple(drill.kills[:1])), directory, supervisor=True)


def started(directory: Path, status: int) -> None:
    """Let a driver live until it ends in this way."""
    command = [sys.executable, "-m", __name__, str(directory)]
    ended(subprocess.Popen(command, stderr=subprocess.PIPE, env=short_lived()), status)


def strike(directory: Path) -> Fault:
    """What the driver dies of."""
    return Fault(directory / "faults", "driver", STRUCK)


def go_on(spark: SparkSession, directory: Path) -> None:
    """Be a driver: stream what is left, with a note of each micro-batch, and die when due."""
    from aftlib.failure_drill.pipeline import staffed
    from aftlib.spark.streams import drain

    told, log = json.loads((directory / "task.json").read_text()), SensorLog.open(directory / "log")
    windows, requirement = Windows(**told["windows"]), Requirement(**told["requirement"])
    model, every = block_model(len(log.names), BLOCKS, covariance=COVARIANCE), told["every"]
    part = Drill(log, model, windows, told["workers"], requirement, every, 0, 0.0, ())
    splits, handler = staffed(part, "D1 by model", log.steps, directory / "d1", [])

    def noted(batch: DataFrame, batch_id: int) -> None:
        began, before = time.time(), len(handler.splits)
        handler(batch, batch_id)
        read = sum(
            (row["stop"] - row["begin"]) * len(part.assignment.workers[row["worker"]])
            for row in handler.splits[before:]
        )
        line = {"batch": batch_id, "began": began, "done": time.time(), "read": read}
        with (directory / "passed.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        strike(directory).passes("driver", batch_id)

    drain(splits.stream(spark).writeStream, directory / "d1", noted)
    handler.close()


COORDINATORS: dict[str, Callable[[Drill, Path], Run]] = {
    DRIVER: kill_driver,
    SUPERVISOR: kill_supervisor,
}

if __name__ == "__main__":
    from aftlib.spark.session import session

    go_on(session("driver"), Path(sys.argv[1]))
