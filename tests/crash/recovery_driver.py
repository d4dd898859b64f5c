"""A driver to be killed: streams a log whose workers die, and strikes itself where it is told.

python tests/crash/recovery_driver.py DIRECTORY {model,guard} OUTAGES [POINT BATCH]

OUTAGES are WORKER,FAILURE,RECOVERY with slashes between them. The point `written` lies between the
sink's write and Spark's own note of a batch, `struck` is the moment at which a worker dies.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.master import Outage
from aftlib.approximately_once.pipeline import Query, Way, recover_stream
from aftlib.approximately_once.sink import WindowSink
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.faults import Fault

MODEL, WINDOWS, STEPS = block_model(6, 2), Windows(100, 50), 60_000


def write_log(directory: Path) -> SensorLog:
    """The log that all drivers of a trial stream."""
    return SensorLog.write(directory / "log", draw(MODEL, STEPS, 4), MODEL.names)


def query(log: SensorLog, recover: Way = "model") -> Query:
    """Three workers, each of which the others could stand in for."""
    model, requirement = MODEL.aggregate(WINDOWS.width), Requirement(1.0, 0.05)
    assignment = assign_spread(model, 3, requirement)
    return Query(log, WINDOWS, model, assignment, requirement, STEPS // 6, recover=recover)


def main(place: str, recover: Way, outages: str = "", point: str = "", batch: str = "0") -> None:
    """Stream what is left of the log; SIGKILL this very process at the point."""
    from aftlib.spark.session import session

    directory, written, write = Path(place), count(), WindowSink.write
    fault = Fault(Path(tempfile.mkdtemp(dir=directory)), point, int(batch))
    planned = [Outage(*map(int, outage.split(","))) for outage in outages.split("/") if outage]

    def write_and_pass(sink, *rows, **other):  # noqa: ANN001, ANN002, ANN003
        write(sink, *rows, **other)
        fault.passes("written", next(written))

    def watch() -> None:
        while not list((directory / "strikes").glob("fault-worker-*")):
            time.sleep(0.001)
        fault.passes("struck")

    WindowSink.write = write_and_pass
    threading.Thread(target=watch, daemon=True).start()
    asked = query(SensorLog.open(directory / "log"), recover)
    recover_stream(session("crash"), asked, directory, planned)


if __name__ == "__main__":
    main(*sys.argv[1:])
