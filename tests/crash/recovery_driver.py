"""A driver to be killed: streams a log whose workers die, and strikes itself where it is told.

python tests/crash/recovery_driver.py DIRECTORY WORKER,FAILURE,RECOVERY|- [written|struck]

`written` is between the sink's write and Spark's own note of the first batch, `struck` the moment
at which the worker dies.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.master import Outage
from aftlib.approximately_once.pipeline import Query, recover_stream
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


def query(log: SensorLog) -> Query:
    """Three workers, each of which the others could stand in for."""
    model, requirement = MODEL.aggregate(WINDOWS.width), Requirement(1.0, 0.05)
    assignment = assign_spread(model, 3, requirement)
    return Query(log, WINDOWS, model, assignment, requirement, every=STEPS // 6)


def main(place: str, outage: str, point: str = "") -> None:
    """Stream what is left of the log; SIGKILL this very process at the point."""
    from aftlib.spark.session import session

    directory = Path(place)
    outages = [] if outage == "-" else [Outage(*map(int, outage.split(",")))]
    fault, write = Fault(Path(tempfile.mkdtemp(dir=directory)), point), WindowSink.write

    def write_and_pass(sink, *rows, **other):  # noqa: ANN001, ANN002, ANN003
        write(sink, *rows, **other)
        fault.passes("written")

    def watch() -> None:
        while not list((directory / "strikes").glob("fault-worker-*")):
            time.sleep(0.001)
        fault.passes("struck")

    WindowSink.write = write_and_pass
    threading.Thread(target=watch, daemon=True).start()
    recover_stream(session("crash"), query(SensorLog.open(directory / "log")), directory, outages)


if __name__ == "__main__":
    main(*sys.argv[1:])
