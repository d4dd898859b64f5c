"""A driver to be killed: four streams of one log, and one SIGKILL that stops each at its point.

python tests/crash/recovery_driver.py DIRECTORY

The first three are halted between the sink's write and Spark's own record of a batch. Then the
last one starts, and the process is killed at the moment at which one of its workers crashes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.pipeline import Query, RecoveryMethod, recover_stream
from aftlib.approximately_once.sink import Outage, WindowSink
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.faults import Fault, Injector

MODEL, WINDOWS, STEPS = block_model(6, 2), Windows(100, 50), 60_000
EVERY = STEPS // 6


@dataclass(frozen=True)
class Scenario:
    """The faults of a stream before its driver is killed."""

    recover: RecoveryMethod
    outages: tuple[Outage, ...]
    batch: int | None  # whose write is the last, or none


SCENARIOS = {
    "alone": Scenario("model", (), 0),
    "after another": Scenario("model", (Outage(1, 4000, 4400),), 0),
    "guarded": Scenario("guard", (Outage(1, 41_000, 41_400),), 4),
    "together": Scenario("model", (Outage(0, 6000, 6500),), None),
}


def write_log(directory: Path) -> SensorLog:
    """The log that all streams of a trial read."""
    return SensorLog.write(directory / "log", draw(MODEL, STEPS, 4), MODEL.names)


def query(log: SensorLog, recover: RecoveryMethod = "model", stop: int | None = None) -> Query:
    """Return a query with three workers, each of which can be estimated from the others."""
    model, requirement = MODEL.aggregate(WINDOWS.width), Requirement(1.0, 0.05)
    assignment = assign_spread(model, 3, requirement)
    return Query(log, WINDOWS, model, assignment, requirement, EVERY, stop, recover)


def main(place: str) -> None:
    """Run each stream to its point, then kill this process."""
    from aftlib.spark.session import session

    directory, written, write = Path(place), Counter[str](), WindowSink.write
    standing = {name: threading.Event() for name in SCENARIOS}

    def write_and_stand(sink, *rows, **other):  # noqa: ANN001, ANN002, ANN003
        write(sink, *rows, **other)
        name = sink.path.parent.name
        if written[name] == SCENARIOS[name].batch:
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
    for name, scenario in SCENARIOS.items():
        arguments = spark, query(log, scenario.recover), directory / name, scenario.outages
        threading.Thread(target=recover_stream, args=arguments, daemon=True).start()
        standing[name].wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
