"""D1's streams with real kills: fig. 8's six sensors, and what a recovery costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import assess
from aftlib.approximately_once.master import Outage
from aftlib.approximately_once.pipeline import Query, StreamRun, recover_stream
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
"""Window means of D1 fig. 8; X4–X6 over [10, 20) and [15, 25), which it lost, are our choice."""


@dataclass(frozen=True)
class SixSensors:
    """Fig. 8 as it came out of the pipeline."""

    table: pd.DataFrame  # the sink's rows, and the true window mean in a column `truth`
    stream: StreamRun


def six_sensors(spark: SparkSession, directory: Path, failure: int, recovery: int) -> SixSensors:
    """Stream fig. 8's six sensors through two workers and kill worker B for real.

    The `directory` is a new one. Steps 16 and 19 are failure and recovery in the document.
    """
    # samples are constant over half windows, at levels whose sliding means are the table's
    levels = np.zeros((len(FIGURE_8) + 1, FIGURE_8.shape[1]))
    for j, row in enumerate(FIGURE_8.to_numpy()):
        levels[j + 1] = 2 * row - levels[j]
    # adding c to even and taking it from odd half windows keeps every mean: take the smoothest
    sign = (-1.0) ** np.arange(len(levels))[:, None]
    step, turn = np.diff(levels, axis=0), np.diff(sign, axis=0)
    levels -= sign * (step * turn).sum(axis=0) / (turn**2).sum()
    samples = np.repeat(levels, 5, axis=0)
    log = SensorLog.write(directory / "log", samples, FIGURE_8.columns.tolist())

    model = GaussianModel(FIGURE_8.mean(), 1.4 * np.ones((6, 6)) + 0.1 * np.eye(6), log.names)
    requirement = Requirement(1.0, 0.05)
    assignment = assess(model, [(0, 1, 2), (3, 4, 5)], requirement)
    query = Query(log, Windows(10, 5), model, assignment, requirement, every=5)
    done = recover_stream(spark, query, directory, [Outage(1, failure, recovery)])
    truth = FIGURE_8.reset_index().melt("start", var_name="key", value_name="truth")
    return SixSensors(done.windows.merge(truth, on=["start", "key"], how="left"), done)


def recovery_cost(
    spark: SparkSession, query: Query, directory: Path, outage: Outage
) -> tuple[pd.DataFrame, dict[str, StreamRun]]:
    """The same stream undisturbed, recovered approximately, and recovered exactly.

    The table has for each of them seconds of the micro-batch with the kill, samples from before the
    failure that were read again, aggregates estimated, the share of them within ε of the
    undisturbed stream, and the largest difference from it among all that was not estimated.
    """
    exact = replace(query, recover="exact")
    plans = {"none": (query, []), "approximate": (query, [outage]), "exact": (exact, [outage])}
    streams = {
        name: recover_stream(spark, asked, directory / name, outages)
        for name, (asked, outages) in plans.items()
    }
    truth = streams["none"].windows.set_index(["start", "key"])["value"]
    rows = []
    for name, done in streams.items():
        struck = (done.shifts.start <= outage.failure) & (outage.failure < done.shifts.stop)
        own = done.shifts[struck & (done.shifts.worker == outage.worker)].iloc[0]
        found = done.windows.set_index(["start", "key"])
        guessed, computed = found[found.estimated], found[~found.estimated]
        off = (guessed["value"] - truth.reindex(guessed.index)).abs()
        within = float((off <= query.requirement.epsilon).mean()) if len(off) else np.nan
        rows.append(
            {
                "recovery": name,
                "batch_seconds": own.tasks_s,
                "samples_read_again": int(own.again),
                "aggregates_estimated": len(guessed),
                "within_epsilon": within,
                "largest_other_difference": float((computed["value"] - truth).abs().max()),
            }
        )
    return pd.DataFrame(rows), streams
