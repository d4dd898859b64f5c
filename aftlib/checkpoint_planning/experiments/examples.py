"""D2's worked example: three sensors, a window of seven steps, a failure (fig. 1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.pipeline import spark_read
from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.startup import prepare
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURE_1 = pd.DataFrame(
    {
        "X1": [21, 22, 22, 22, 23, 23, 23],
        "X2": [21, 21, 22, 22, 22, 23, 23],
        "X3": [19, 20, 20, 20, 19, 20, 21],
    },
    index=pd.Index(range(1, 8), name="step"),
    dtype=float,
)
"""Sensor values of D2 fig. 1."""

MODEL = GaussianModel([22, 22, 20], [[1.0, 0.85, 0.40], [0.85, 0.90, 0.30], [0.40, 0.30, 0.60]])
"""Our choice, the figure gives none: X1 and X2 correlate strongly (.90), X3 weakly (.52, .41)."""

EPSILON, DELTA, T_SLA_MS = 0.44, 0.05, 6
"""Our choice: at 1 ms per replayed tuple these give the document's plan."""


@dataclass(frozen=True)
class ThreeSensors:
    """Fig. 1 as it came out of the operator."""

    plan: CheckpointPlan
    cells: pd.DataFrame  # sensor, step, value, state: checkpointed, replayed or estimated
    results: pd.DataFrame  # sensor, checkpoint: mean in c¹, restored, half_width, truth, error


def three_sensors(spark: SparkSession, directory: Path, failure: int = 5) -> ThreeSensors:
    """Aggregate fig. 1's window, fail, restore the last checkpoint and replay what the plan says.

    The process dies at step `failure`, 1 … 7; the directory is new, for log and state.
    """
    if not 1 <= failure <= len(FIGURE_1):
        raise ValueError(f"failure must lie in 1 … {len(FIGURE_1)}, got {failure!r}")
    requirement, cost = Requirement(EPSILON, DELTA), RecoveryTime(0, 1)
    query = ReplayQuery(MODEL, len(FIGURE_1), requirement, cost, T_SLA_MS)
    log = SensorLog.write(directory / "log", FIGURE_1.to_numpy(), FIGURE_1.columns.tolist())
    first, second = (prepare(query, log, directory / "state") for _ in range(2))
    read, store = spark_read(spark, log, tasks=2), second.store
    plan = query.first_plan
    struck = batch = int(np.searchsorted(plan.times, failure)) - 1
    begin, end = plan.times[struck : struck + 2]

    for done in range(struck):
        first.process(done, read)
    store.begin(struck, begin, first.process_id)
    while not store.results():
        second.process(batch, read)
        batch += 1

    cells = FIGURE_1.reset_index().melt("step", var_name="sensor")
    replayed = cells["sensor"].isin([MODEL.names[i] for i in plan.replay[struck].sensors])
    states = np.where(replayed, "replayed", "estimated")
    inside = cells["step"].between(begin + 1, end)
    cells["state"] = np.where(inside, states, "checkpointed")

    results = pd.DataFrame([vars(result) for result in store.results()]).set_index("key")
    table = pd.DataFrame({"checkpoint": FIGURE_1.iloc[:begin].mean(), "restored": results["value"]})
    table = table.assign(half_width=results["half_width"], truth=FIGURE_1.mean())
    table["error"] = (table["restored"] - table["truth"]).abs()
    return ThreeSensors(plan, cells, table.rename_axis("sensor").reset_index())
