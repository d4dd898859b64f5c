"""The schemes on Spark under a schedule: a task is a worker, and its process is struck for real."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from aftlib.approximately_once.message_log import MessageLog
from aftlib.approximately_once.operator import Blocks, InputSplit, SensorSplits, Worker
from aftlib.approximately_once.pipeline import BatchHandler, Query, Way, staff
from aftlib.approximately_once.sink import Outage
from aftlib.core.sensorlog import SensorLog
from aftlib.failure_drill.drill import STALLS, Drill, Run, folder_bytes
from aftlib.spark.faults import Fault, woken
from aftlib.spark.streams import drain

NONE, AT_MOST, AT_LEAST = "no fault tolerance", "at most once", "at least once"
EXACTLY, MODEL, GUARD = "exactly once", "D1 by model", "D1 by guard"
ON_SPARK: dict[str, Way] = {
    NONE: "exact",
    AT_MOST: "exact",
    AT_LEAST: "exact",
    EXACTLY: "exact",
    MODEL: "model",
    GUARD: "guard",
}
"""Schemes, and how D1's handler recovers where it has a say."""
RELAYED = (NONE, AT_MOST, AT_LEAST)
"""Schemes that put out at once what a worker has sent."""


@dataclass(frozen=True)
class ClockedWorker(Worker):
    """D1's worker, with a note of when it began, and stalls where the schedule has them."""

    stalls: tuple[tuple[int, int], ...] = ()  # worker, step
    onward: bool = False  # whether every substitute goes on from the present, however many died

    def work(self, split: InputSplit, attempt: int, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """As D1's."""
        self.notes.mkdir(parents=True, exist_ok=True)
        (self.notes / f"began-{split.worker}-{split.start}-{attempt}").touch()

        def stalled(keys: Sequence[int], begin: int, stop: int) -> Iterator[np.ndarray]:
            for struck, step in self.stalls:
                if struck == split.worker and split.start <= step < split.stop:
                    point = f"stall-{struck}"
                    Fault(self.notes / STALLS, point, step, signal.SIGSTOP).passes(point, step)
            yield from blocks(keys, begin, stop)

        return super().work(split, attempt, stalled)

    def gives_up(self, split: InputSplit) -> bool:
        """As D1's; onward however many have died."""
        return self.onward or super().gives_up(split)


class OnwardShifts(SensorSplits):
    """Shifts that nobody works on twice; an outage that ends with the stream is never mended."""

    def partitions(self, start: int, stop: int) -> list[InputSplit]:
        """One split a worker, from where its last outage ended."""
        splits = []
        for worker, keys in enumerate(self.workers):
            mine = [(f, r) for who, f, r in self.outages if who == worker]
            begin = max([start, *(r for f, r in mine if f < start)])
            resume = next((r for f, r in mine if start <= f < stop), stop)
            splits.append(InputSplit(worker, keys, min(begin, stop), start, stop, resume))
        return splits


@dataclass
class Collected:
    """A coordinator that only counts: the workers have sent their windows on by themselves."""

    splits: list[dict] = field(default_factory=list)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Take the rows that tell of splits."""
        rows = batch.toArrow().to_pylist()
        self.splits += [row | {"batch": batch_id} for row in rows if row["first"] is None]


def stream(
    spark: SparkSession, scheme: str, drill: Drill, directory: Path, stop: int | None = None
) -> Run:
    """Stream the drill's log, or until a step, by a scheme, and strike its workers as scheduled.

    The `directory` is a new one. No fault tolerance and at most once differ in whether a dead
    worker is replaced; both, and at least once, put out what a worker sends at once. At least once
    and exactly once are Spark's replay of the micro-batch since its checkpoint; exactly once puts
    out what the micro-batch commits, D1 too.
    """
    end, relays = drill.log.steps if stop is None else stop, scheme in RELAYED
    outages = outages_of(drill, scheme, end)
    splits, handler = staffed(drill, scheme, end, directory, outages)
    notes, messages = splits.worker.notes, splits.worker.messages
    coordinator: Collected | BatchHandler = Collected() if relays else handler
    ends = list[float]()

    def timed(batch: DataFrame, batch_id: int) -> None:
        coordinator(batch, batch_id)
        ends.append(time.time())

    began = time.time()
    with woken(notes / STALLS, drill.stall_s):
        drain(splits.stream(spark).writeStream, directory, timed)

    again = sum(row["again"] for row in coordinator.splits)
    more = {"sent_bytes": folder_bytes([messages]), "read": again / max(1, drill.in_vain.sum())}
    if scheme in (AT_LEAST, EXACTLY):
        more["planned"] = 1.0
    elif scheme == MODEL:
        more["planned"] = drill.in_vain[~drill.spared].sum() / max(1, drill.in_vain.sum())
    if audit := None if relays else handler.close():
        more |= {"audited": audit.estimates, "wrong_promises": audit.wrong, "bound": audit.bound}
    if relays:
        came = relayed(drill, messages)
    else:
        came = committed(drill.log, drill.windows.width, handler.sink.windows())
    reached = [min((i + 1) * drill.every, end) for i in range(len(ends))]
    return Run(
        came,
        again,
        len([*notes.rglob("fault-*.json")]),
        folder_bytes(
            [directory / "checkpoint", *([messages] if relays else directory.glob("sink*"))]
        ),
        more,
        [(0, began), *zip(reached, ends, strict=True)],
        cold(drill, [] if scheme == NONE else outages, notes, ends),
    )


def outages_of(drill: Drill, scheme: str, end: int) -> list[Outage]:
    """The kills as D1 knows them; without fault tolerance an outage ends with the stream."""
    if scheme != NONE:
        return [Outage(s.worker, s.step, min(s.step + drill.away, end)) for s in drill.kills]
    first = {s.worker: s.step for s in reversed(drill.kills)}  # who is dead does not die again
    return sorted((Outage(w, step, end) for w, step in first.items()), key=lambda o: o.failure)


def staffed(
    drill: Drill, scheme: str, end: int, directory: Path, outages: list[Outage]
) -> tuple[SensorSplits, BatchHandler]:
    """D1's staff, with clocks and stalls, and splits that go on from the present where wanted."""
    model = drill.model.aggregate(drill.windows.width)
    asked = drill.assignment, drill.requirement, drill.every
    query = Query(drill.log, drill.windows, model, *asked, end, recover=ON_SPARK[scheme])
    splits, handler = staff(query, directory, outages)
    stalls = tuple((s.worker, s.step) for s in drill.strikes if not s.kills)
    worker = ClockedWorker(**vars(splits.worker), stalls=stalls, onward=scheme in (NONE, AT_MOST))
    onward = OnwardShifts if scheme in (NONE, AT_MOST) else SensorSplits
    return onward(**vars(splits) | {"worker": worker}), handler


def cold(drill: Drill, outages: list[Outage], notes: Path, ends: list[float]) -> pd.DataFrame:
    """The parts of each recovery: until the substitute begins, and until its results are out."""
    numbers = {(s.worker, s.step): s.number for s in drill.strikes}
    rows = []
    for outage in outages:
        died = (notes / f"fault-worker-{outage.worker}-{outage.failure}.json").stat().st_mtime
        batch = drill.batch_of(outage.failure)
        began = notes / f"began-{outage.worker}-{batch * drill.every}-1"
        again = began.stat().st_mtime if began.exists() else died
        row = {"number": numbers[outage.worker, outage.failure]}
        rows.append(
            row | {"restart_ms": 1e3 * (again - died), "rework_ms": 1e3 * (ends[batch] - again)}
        )
    return pd.DataFrame(rows, columns=["number", "restart_ms", "rework_ms"])


def relayed(drill: Drill, messages: Path) -> pd.DataFrame:
    """Every window in every message: what each process had sent on before it ended."""
    box, parts = MessageLog(messages), []
    for path in sorted(messages.glob("worker-*")):
        worker, start, attempt = map(int, path.name.split("-")[1:])
        keys = drill.assignment.workers[worker]
        message = box.read(worker, start, attempt, len(keys))
        for window, (values, _) in message.windows.items() if message else ():
            parts.append(pd.DataFrame({"window": window, "sensor": keys, "value": values}))
    empty = pd.DataFrame(columns=["window", "sensor", "value"])
    return pd.concat(parts or [empty], ignore_index=True).assign(estimated=False)


def committed(log: SensorLog, width: int, windows: pd.DataFrame) -> pd.DataFrame:
    """The sink's table in the drill's words."""
    place = {name: i for i, name in enumerate(log.names)}
    return pd.DataFrame(
        {
            "window": windows["start"] // width,
            "sensor": windows["key"].map(place),
            "value": windows["value"].astype(float),
            "estimated": windows["estimated"].astype(bool),
        }
    )
