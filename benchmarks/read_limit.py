"""The rate at which processes read a limited log together, over the limit: within 2 %."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

from aftlib.core.readlimit import ReadLimit
from aftlib.core.sensorlog import SensorLog

SECONDS, SENSORS = 3.0, 24
RATES = (10_000, 100_000, 1_000_000)
READERS = (1, 4)


def run() -> dict:
    """Ratio of the measured rate to the limit, by limit and number of reading processes."""
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        for rate in RATES:
            steps = int(rate * SECONDS / SENSORS)
            path = Path(folder) / str(rate)
            values = np.zeros((steps, SENSORS))
            log = SensorLog.write(path, values, [f"X{i}" for i in range(SENSORS)])
            for readers in READERS:
                ratios[f"{rate} samples/s, {readers} readers"] = measured_rate(log, readers, rate)
    errors = [abs(ratio - 1) for ratio in ratios.values()]
    return {"measured / limit": ratios, "kept within 2 %": max(errors) <= 0.02}


def measured_rate(log: SensorLog, readers: int, rate: float) -> float:
    """Ratio of the rate from the first sample granted to the last one, to the limit."""
    context = multiprocessing.get_context("fork")
    start, ready = context.Event(), context.Barrier(readers + 1)

    def read(keys: list[int]) -> None:
        ready.wait()
        start.wait()
        for _ in log.blocks(keys, 0, log.steps):
            pass

    parts = [part.tolist() for part in np.array_split(np.arange(SENSORS), readers)]
    processes = [context.Process(target=read, args=(keys,)) for keys in parts]
    for process in processes:
        process.start()
    ready.wait()
    log.meter.set_limit(ReadLimit(rate))
    before, began = log.meter.usage.samples, time.monotonic()
    start.set()
    for process in processes:
        process.join()
    seconds = time.monotonic() - began
    return (log.meter.usage.samples - before) / seconds / rate
