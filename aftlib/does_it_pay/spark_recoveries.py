"""Workers on Spark that are killed at the end of a window, at one read rate after the other.

All rates are measured in one stream: the limit of its log is set between two micro-batches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.approximately_once.operator import TimedWorker
from aftlib.approximately_once.pipeline import BatchHandler, Query, RecoveryMethod, staff
from aftlib.approximately_once.sink import Outage
from aftlib.core.readlimit import ReadLimit
from aftlib.core.sensorlog import SensorLog
from aftlib.does_it_pay.cases import Case, slow_archive
from aftlib.spark.faults import Fault
from aftlib.spark.streams import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXACT, MODEL, GUARD = "exact, on Spark", "D1 by model", "D1 by guard"
ON_SPARK: dict[str, RecoveryMethod] = {EXACT: "exact", MODEL: "model", GUARD: "guard"}
"""Schemes, and how D1's handler recovers in each."""


@dataclass
class BatchClock:
    """Coordinator that measures each micro-batch and sets the read rate of the next one.

    `rates` has the read rate of each micro-batch, in samples per second; at NaN no worker fails.
    """

    handler: BatchHandler
    worker: TimedWorker
    case: Case
    log: SensorLog
    rates: Sequence[float]
    rows: list[dict[str, float]]
    began: float = 0.0

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process a micro-batch; the first one is learned from and not measured."""
        self.handler(batch, batch_id)
        now, last_read, number = time.time(), self.log.meter.usage.last_s, batch_id - 1
        latency = time.monotonic() - last_read
        if number >= 0:
            self.rows.append(self._measured(number, now) | {"latency_s": latency})
        if number + 1 < len(self.rates):
            rate = self.rates[number + 1]
            self.log.meter.set_limit(slow_archive(np.inf if np.isnan(rate) else rate))
        self.began = time.time()

    def _measured(self, number: int, now: float) -> dict[str, float]:
        width, worker = self.case.windows.width, self.case.workers - 1
        start = (self.case.learned + number) * width
        row = {"batch": number, "rate": self.rates[number], "seconds": now - self.began}
        row["commit_s"] = self.handler.splits[-1]["coordinator_s"]
        row["again"] = self.log.meter.samples_again(start, start + width)
        if np.isnan(self.rates[number]):
            return row
        fault = Fault("kill", f"worker-{worker}", start + width - 1)
        killed = self.worker.injector.marker(fault).stat().st_mtime
        read_start, read_end = (
            self.worker.time_marker(point, worker, start, 1).stat().st_mtime
            for point in ("started", "ended")
        )
        row["start_s"] = read_start - killed
        row["work_s"] = read_end - read_start + row["commit_s"]
        return row | {"seconds": now - killed}


def spark_recoveries(
    spark: SparkSession, case: Case, scheme: str, directory: Path, rates: Sequence[float]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by a scheme of `ON_SPARK`; a micro-batch is one window.

    `rates` has one read rate per micro-batch, in samples per second: the last worker is killed
    by SIGKILL just before its window ends, and input is read again at that rate. At NaN
    nothing fails. `directory` must be new.

    Return two frames. Recoveries, one row per micro-batch: batch, rate; seconds from the kill until
    all due windows are emitted, or the duration of a micro-batch without a fault; start_s from the
    kill until the replacement works; commit_s, the coordinator's part, estimates included; work_s,
    the replacement's time of reading and the coordinator's part: all in which schemes differ;
    latency_s from the last sample read until the windows are emitted; again, the samples read
    again. Estimates, one row per (window, sensor): batch, sensor, off, the error in units of ε.
    """
    width, stop = case.windows.width, (case.learned + len(rates)) * case.windows.width
    log = case.write_log(directory / "log")
    ends = np.flatnonzero(~np.isnan(rates)) * width + (case.learned + 1) * width
    outages = [Outage(case.workers - 1, end - 1, end) for end in ends.tolist()]
    query = Query(
        log=log,
        windows=case.windows,
        model=case.model,
        assignment=case.assignment,
        requirement=case.requirement,
        every=width,
        stop=stop,
        recover=ON_SPARK[scheme],
    )
    splits, handler = staff(query, directory, outages)
    worker = TimedWorker(**vars(splits.worker))
    splits = replace(splits, worker=worker, learned=case.learned * width)
    clock = BatchClock(handler, worker, case, log, rates, [])
    log.meter.set_limit(ReadLimit())
    drain(splits.stream(spark).writeStream, directory, clock)
    handler.close()
    return pd.DataFrame(clock.rows), estimates_of(case, handler)


def estimates_of(case: Case, handler: BatchHandler) -> pd.DataFrame:
    """Errors of the estimates in the sink, in units of ε."""
    results = handler.sink.windows()
    results = results[results["estimated"]]
    window = results["start"].to_numpy() // case.windows.width
    number = {name: i for i, name in enumerate(case.model.names)}
    sensor = results["key"].map(number).to_numpy(int)
    off = np.abs(results["value"].to_numpy(float) - case.truth[window, sensor])
    rows = {"batch": window - case.learned, "sensor": sensor}
    return pd.DataFrame(rows | {"off": off / case.requirement.epsilon})
