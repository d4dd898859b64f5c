"""D1's streams with real crashes: fig. 8's six sensors, and the cost of a recovery."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import assess
from aftlib.approximately_once.pipeline import Query, StreamRun, recover_stream
from aftlib.approximately_once.sink import Outage
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FIGURE_8 = pd.DataFrame(
    {
        "X1": [21, 21, 22, 23, 23],
        "X2": [19, 20, 20, 22, 22],
        "X3": [20, 20, 21, 22, 23],
        "X4": [18, 19, 20, 21, 21],
        "X5": [19, 19, 20, 21, 22],
        "X6": [21, 22, 22, 23, 23],
    },
    index=pd.Index([0, 5, 10, 15, 20], name="start"),
    dtype=float,
)
"""Window means of D1 fig. 8; the lost ones, X4–X6 over [10, 20) and [15, 25), are our choice."""


@dataclass(frozen=True)
class SixSensors:
    """The windows of fig. 8, as the pipeline emitted them."""

    table: pd.DataFrame  # the sink's rows, and the true window mean in a column `truth`
    stream: StreamRun


def six_sensors(spark: SparkSession, directory: Path, failure: int, recovery: int) -> SixSensors:
    """Stream fig. 8's six sensors through two workers and kill worker B for real.

    `directory` must be new. In the document, failure is step 16 and recovery is step 19.
    """
    # samples are constant over half windows, at levels whose sliding means are the table's
    levels = np.zeros((len(FIGURE_8) + 1, FIGURE_8.shape[1]))
    for j, row in enumerate(FIGURE_8.to_numpy()):
        levels[j + 1] = 2 * row - levels[j]
    # adding c to even half windows and subtracting it from odd ones keeps every mean: choose the
    # smoothest levels
    sign = (-1.0) ** np.arange(len(levels))[:, None]
    step, turn = np.diff(levels, axis=0), np.diff(sign, axis=0)
    levels -= sign * (step * turn).sum(axis=0) / (turn**2).sum()
    samples = np.repeat(levels, 5, axis=0)
    log = SensorLog.write(directory / "log", samples, FIGURE_8.columns.tolist())

    model = GaussianModel(FIGURE_8.mean(), 1.4 * np.ones((6, 6)) + 0.1 * np.eye(6), log.names)
    requirement = Requirement(1.0, 0.05)
    assignment = assess(model, [(0, 1, 2), (3, 4, 5)], requirement)
    query = Query(log, Windows(10, 5), model, assignment, requirement, every=5)
    run = recover_stream(spark, query, directory, [Outage(1, failure, recovery)])
    truth = FIGURE_8.reset_index().melt("start", var_name="key", value_name="truth")
    return SixSensors(run.windows.merge(truth, on=["start", "key"], how="left"), run)
