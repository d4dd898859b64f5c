"""The schemes on Spark: a task is a worker, and faults are injected into its process.

``python -m aftlib.failure_drill.schemes_spark DIRECTORY`` is a driver of D1 that is killed.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from aftlib.approximately_once.message_log import MessageLog
from aftlib.approximately_once.operator import OnwardSplits, SensorSplits, TimedWorker
from aftlib.approximately_once.pipeline import BatchHandler, Query, RecoveryMethod, staff
from aftlib.approximately_once.sink import Outage
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.failure_drill.metrics import Run, folder_bytes
from aftlib.failure_drill.schedule import BLOCKS, COVARIANCE, Drill, worker_of
from aftlib.failure_drill.schemes_process import EMITTED, run_to_end
from aftlib.spark.faults import Fault, Injector
from aftlib.spark.java import short_lived
from aftlib.spark.streams import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NONE, AT_MOST, AT_LEAST = "no fault tolerance", "at most once", "at least once"
EXACTLY, MODEL, GUARD = "exactly once", "D1 by model", "D1 by guard"
ON_SPARK: dict[str, RecoveryMethod] = {
    NONE: "exact",
    AT_MOST: "exact",
    AT_LEAST: "exact",
    EXACTLY: "exact",
    MODEL: "model",
    GUARD: "guard",
}
"""Schemes, and how D1's handler recovers in them."""
BASELINE = (NONE, AT_MOST, AT_LEAST)
"""Schemes that emit a worker's results immediately."""
KILLED_BATCH, BATCHES = 2, 5
"""Micro-batch in which D1's driver is killed, and number of micro-batches."""
KILLED_DRIVER = (Fault("kill", "driver", KILLED_BATCH),)
TIMES = ["restart_ms", "rework_ms"]


def stream(
    spark: SparkSession, scheme: str, drill: Drill, directory: Path, stop: int | None = None
) -> Run:
    """Stream the drill's log, or its steps up to `stop`, by a scheme under the schedule.

    The directory must be new. Without fault tolerance a failed worker is not replaced. With "at
    most once" its replacement continues from the present. With "at least once" and "exactly once"
    Spark replays the micro-batch. "exactly once" and D1 emit a micro-batch when it is committed.
    """
    end, relays = drill.log.steps if stop is None else stop, scheme in BASELINE
    outages = outages_of(drill, scheme, end)
    splits, handler = staff_drill(drill, scheme, end, directory, outages)
    injector, messages = splits.worker.injector, splits.worker.messages
    ends = list[float]()

    def timed(batch: DataFrame, batch_id: int) -> None:
        if relays:  # workers emit their windows themselves; here only their reports count
            rows = batch.toArrow().to_pylist()
            handler.splits += [row for row in rows if row["first"] is None]
        else:
            handler(batch, batch_id)
        ends.append(time.time())

    start = time.time()
    with injector.resuming():
        drain(splits.stream(spark).writeStream, directory, timed)

    again = sum(row["again"] for row in handler.splits)
    exact = drill.wasted_samples.sum()
    measures = {"sent_bytes": folder_bytes([messages]), "read": again / max(1, exact)}
    if scheme in (AT_LEAST, EXACTLY):
        measures["planned"] = 1.0
    elif scheme == MODEL:
        planned = drill.wasted_samples[~drill.estimated_kills].sum()
        measures["planned"] = planned / max(1, exact)
    if audit := None if relays else handler.close():
        measures |= {"audited": audit.estimates, "wrong_promises": audit.wrong}
        measures["bound"] = audit.bound
    if relays:
        emitted, stored = read_messages(drill, messages), [messages]
    else:
        emitted = committed(drill.log, drill.windows.width, handler)
        stored = [*directory.glob("sink*")]
    reached = [min((i + 1) * drill.every, end) for i in range(len(ends))]
    return Run(
        emitted=emitted,
        read_again=again,
        faults=injector.count,
        stored_bytes=folder_bytes([directory / "checkpoint", *stored]),
        measures=measures,
        progress=[(0, start), *zip(reached, ends, strict=True)],
        recoveries=recoveries_of(drill, [] if scheme == NONE else outages, injector, ends),
    )


def outages_of(drill: Drill, scheme: str, end: int) -> list[Outage]:
    """The kills as D1's outages; without fault tolerance they last to the end of the stream."""
    if scheme != NONE:
        return [Outage(worker_of(f), f.step, min(f.step + drill.away, end)) for f in drill.kills]
    first = {worker_of(f): f.step for f in reversed(drill.kills)}  # not replaced: fails once
    return sorted((Outage(w, step, end) for w, step in first.items()), key=lambda o: o.failure)


def staff_drill(
    drill: Drill, scheme: str, end: int, directory: Path, outages: list[Outage]
) -> tuple[SensorSplits, BatchHandler]:
    """D1's splits and handler, with the schedule's faults at the workers."""
    query = Query(
        drill.log,
        drill.windows,
        drill.model.aggregate(drill.windows.width),
        drill.assignment,
        drill.requirement,
        drill.every,
        end,
        recover=ON_SPARK[scheme],
    )
    splits, handler = staff(query, directory, outages)
    killed, onward = {(o.worker, o.failure) for o in outages}, scheme in (NONE, AT_MOST)
    schedule = [f for f in drill.schedule if f.kind != "kill" or (worker_of(f), f.step) in killed]
    injector = replace(splits.worker.injector, schedule=tuple(schedule))
    fields = vars(splits.worker) | {"injector": injector}
    worker = TimedWorker(**fields, resumes=onward)
    kind = OnwardSplits if onward else SensorSplits
    return kind(**vars(splits) | {"worker": worker}), handler


def recoveries_of(
    drill: Drill, outages: list[Outage], injector: Injector, ends: list[float]
) -> pd.DataFrame:
    """Times of each recovery: until the replacement starts, and until its results are emitted."""
    rows = []
    for outage in outages:
        kill = Fault("kill", f"worker-{outage.worker}", outage.failure)
        killed, batch = injector.marker(kill).stat().st_mtime, drill.batch_of(outage.failure)
        started = injector.directory / f"started-{outage.worker}-{batch * drill.every}-1"
        again = started.stat().st_mtime if started.exists() else killed
        rows.append((1e3 * (again - killed), 1e3 * (ends[batch] - again)))
    return pd.DataFrame(rows, columns=TIMES)


def read_messages(drill: Drill, messages: Path) -> pd.DataFrame:
    """All windows of all messages: the results that processes emitted, also before they failed."""
    log, parts = MessageLog(messages), [pd.DataFrame(columns=EMITTED)]
    for path in sorted(messages.glob("worker-*")):
        worker, start, attempt = map(int, path.name.split("-")[1:])
        keys = drill.assignment.workers[worker]
        message = log.read(worker, start, attempt, len(keys))
        for window, (values, _) in message.windows.items() if message else ():
            rows = {"window": window, "sensor": keys, "value": values, "estimated": False}
            parts.append(pd.DataFrame(rows))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def committed(log: SensorLog, width: int, handler: BatchHandler) -> pd.DataFrame:
    """Results of D1's sink in the form of `Run.emitted`."""
    windows, number = handler.sink.windows(), {name: i for i, name in enumerate(log.names)}
    return pd.DataFrame(
        {
            "window": windows["start"] // width,
            "sensor": windows["key"].map(number),
            "value": windows["value"].astype(float),
            "estimated": windows["estimated"].astype(bool),
        }
    )


def killed_driver(drill: Drill, directory: Path) -> Run:
    """Stream the first micro-batches by D1's model; the driver is killed, another one continues.

    It is killed when the handler has written the results of a micro-batch that Spark's checkpoint
    does not contain yet. So the next driver runs this micro-batch again. On a cluster the drivers
    use the cores of this process's session. Errors as `run_process`.
    """
    steps, names = BATCHES * drill.every, drill.log.names
    log = SensorLog.write(directory / "log", drill.samples[:steps], names)
    part = replace(drill, log=log, schedule=())
    task = {
        "windows": asdict(drill.windows),
        "requirement": asdict(drill.requirement),
        "workers": drill.workers,
        "every": drill.every,
    }
    (directory / "task.json").write_text(json.dumps(task))
    command = [sys.executable, "-m", __name__, str(directory)]
    run_to_end(command, driver_injector(directory), short_lived())

    place = directory / "d1"
    _, handler = staff_drill(part, MODEL, steps, place, [])
    batches = [json.loads(line) for line in (directory / "passed.jsonl").read_text().splitlines()]
    killed, *_, again = [row for row in batches if row["batch"] == KILLED_BATCH]
    times = [(1e3 * (again["began"] - killed["done"]), 1e3 * (again["done"] - again["began"]))]
    return Run(
        emitted=committed(log, part.windows.width, handler),
        read_again=sum(row["read"] for row in batches) - part.rows,
        faults=driver_injector(directory).count,
        stored_bytes=folder_bytes([place / "checkpoint", *place.glob("sink*")]),
        measures={},
        recoveries=pd.DataFrame(times, columns=TIMES),
        drill=part,
    )


def driver_injector(directory: Path) -> Injector:
    """Injector of the fault at D1's driver."""
    return Injector(directory / "faults", KILLED_DRIVER)


def drive(spark: SparkSession, directory: Path) -> None:
    """Stream the rest of the log in a driver that a fault may kill; record each micro-batch."""
    task, log = json.loads((directory / "task.json").read_text()), SensorLog.open(directory / "log")
    windows, requirement = Windows(**task["windows"]), Requirement(**task["requirement"])
    model = block_model(len(log.names), BLOCKS, covariance=COVARIANCE)
    part = Drill(log, model, windows, task["workers"], requirement, task["every"], 0, ())
    splits, handler = staff_drill(part, MODEL, log.steps, directory / "d1", [])

    def record_batch(batch: DataFrame, batch_id: int) -> None:
        began, before = time.time(), len(handler.splits)
        handler(batch, batch_id)
        read = sum(
            (row["stop"] - row["begin"]) * len(part.assignment.workers[row["worker"]])
            for row in handler.splits[before:]
        )
        line = {"batch": batch_id, "began": began, "done": time.time(), "read": read}
        with (directory / "passed.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        driver_injector(directory).reach("driver", batch_id)

    drain(splits.stream(spark).writeStream, directory / "d1", record_batch)
    handler.close()


if __name__ == "__main__":
    from aftlib.spark.session import session

    drive(session("driver"), Path(sys.argv[1]))
