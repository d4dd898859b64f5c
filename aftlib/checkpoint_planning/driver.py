"""A driver process of its own that streams a log by partial replay, to be killed and started again.

python -m aftlib.checkpoint_planning.driver DIRECTORY {bare,spark} [POINT BATCH]
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from pathlib import Path

from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.pipeline import replay_in_process, replay_stream
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.faults import Fault
from aftlib.spark.session import session

KINDS = ("bare", "spark")
_TASK, _PASSED = "task.pickle", "passed.jsonl"


def write_task(directory: Path, query: ReplayQuery, log: SensorLog) -> None:
    """Leave in a new directory what the process is to do there."""
    directory.mkdir(parents=True)
    (directory / _TASK).write_bytes(pickle.dumps((query, str(log.path.absolute()))))


def passed(directory: Path) -> dict[tuple[str, int], float]:
    """When the processes in a directory last passed each (point, batch), in s since the epoch."""
    lines = (directory / _PASSED).read_text().splitlines()
    return {(point, batch): at for point, batch, at in map(json.loads, lines)}


def main(place: str, kind: str, point: str = "", batch: str = "0") -> None:
    """Stream what is left; SIGKILL this very process when it passes the point of the batch."""
    directory = Path(place)
    fault = Fault(directory / "faults" / f"{os.getpid()}-{time.time_ns()}", point, int(batch))

    def passes(point: str, number: int) -> None:
        with (directory / _PASSED).open("a") as file:
            file.write(json.dumps([point, number, time.time()]) + "\n")
        fault.passes(point, number)

    query, path = pickle.loads((directory / _TASK).read_bytes())
    passes("loaded", -1)
    spark = session("partial replay") if kind == "spark" else None
    passes("started", -1)
    if spark:
        replay_stream(spark, query, SensorLog.open(path), directory, passes)
    else:
        replay_in_process(query, SensorLog.open(path), directory, passes)


if __name__ == "__main__":
    main(*sys.argv[1:])
