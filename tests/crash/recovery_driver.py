"""A driver to be killed: four streams of one log, and one SIGKILL that finds each at its point.

python tests/crash/recovery_driver.py DIRECTORY

The first three are halted between the sink's write and Spark's own note of a batch; when they all
stand there the last one starts, and the process dies at the moment at which a worker of it does.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.pipeline import Query, Way, recover_stream
from aftlib.approximately_once.sink import Outage, WindowSink
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.faults import Fault, Injector

MODEL, WINDOWS, STEPS = block_model(6, 2), Windows(100, 50), 60_000
EVERY = STEPS // 6


@dataclass(frozen=True)
class Life:
    """What befalls a stream before its driver dies."""

    recover: Way
    outages: tuple[Outage, ...]
    batch: int | None  # whose write is the last, or none


LIVES = {
    "alone": Life("model", (), 0),
    "after another": Life("model", (Outage(1, 4000, 4400),), 0),
    "guarded": Life("guard", (Outage(1, 41_000, 41_400),), 4),
    "together": Life("model", (Outage(0, 6000, 6500),), None),
}


def write_log(directory: Path) -> SensorLog:
    """The log that all streams of a trial read."""
    return SensorLog.write(directory / "log", draw(MODEL, STEPS, 4), MODEL.names)


def query(log: SensorLog, recover: Way = "model", stop: int | None = None) -> Query:
    """Three workers, each of which the others could stand in for."""
    model, requirement = MODEL.aggregate(WINDOWS.width), Requirement(1.0, 0.05)
    assignment = assign_spread(model, 3, requirement)
    return Query(log, WINDOWS, model, assignment, requirement, EVERY, stop, recover)


def main(place: str) -> None:
    """Bring each stream to its point and die."""
    from aftlib.spark.session import session

    directory, written, write = Path(place), Counter[str](), WindowSink.write
    standing = {name: threading.Event() for name in LIVES}

    def write_and_stand(sink, *rows, **other):  # noqa: ANN001, ANN002, ANN003
        write(sink, *rows, **other)
        name = sink.path.parent.name
        if written[name] == LIVES[name].batch:
            standing[name].set()
            threading.Event().wait()
        written[name] += 1

    def watch() -> None:
        while not list((directory / "together" / "faults").glob("fault-kill-worker-*")):
            time.sleep(0.001)
        Injector(directory, (Fault(),)).reach("driver")

    WindowSink.write = write_and_stand
    threading.Thread(target=watch, daemon=True).start()
    spark, log = session("crash"), SensorLog.open(directory / "log")
    for name, life in LIVES.items():
        told = spark, query(log, life.recover), directory / name, life.outages
        threading.Thread(target=recover_stream, args=told, daemon=True).start()
        standing[name].wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
