"""What D2's planned checkpoints cost while nothing fails, against sums without checkpoints."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read, replay_in_process
from aftlib.checkpoint_planning.plan import RecoveryTime
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog

STEPS, REPEATS = 200_000, 3


def run() -> dict:
    """Seconds with and without checkpoints, and their ratio."""
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        place, model = Path(name), block_model()
        log = SensorLog.write(place / "log", draw(model, STEPS, 1), model.names)
        return {"checkpoint_planning": replay_overhead(place, log)}


def time_call(call, *arguments) -> float:  # noqa: ANN001, ANN002
    """Seconds of one call."""
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def replay_overhead(place: Path, log: SensorLog) -> dict:
    """D2 in one process: planned checkpoints against sums without checkpoints; no failures."""
    model, window = block_model(), 10_000
    query = ReplayQuery(model, window, Requirement(0.01, 0.05), RecoveryTime(28.33, 9.332e-4), 50)
    time_call(query.plan)  # the libraries loaded
    planning = time_call(lambda: query.first_plan)  # once per query, whatever the stream's length
    bare, replays = [], []
    for i in range(REPEATS):
        bare.append(time_call(window_sums, log, window))
        replays.append(time_call(replay_in_process, query, log, place / f"replay{i}"))
    return {
        "checkpoints_a_window": len(query.first_plan.checkpoints),
        "planning_seconds": planning,
        "seconds": {"replay": replays, "no_fault_tolerance": bare},
        "overhead_of_fault_tolerance": median(replays) / median(bare) - 1,
    }


def window_sums(log: SensorLog, window: int) -> list:
    """Sums of every whole window, as the operator makes them."""
    read, keys = bare_read(log), range(len(log.names))
    return [read(keys, at, at + window) for at in range(0, log.steps - window + 1, window)]
