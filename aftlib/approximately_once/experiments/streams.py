"""D1's streams with real kills: fig. 8's six sensors, and what a recovery costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import assess
from aftlib.approximately_once.experiments.cases import SensorCase
from aftlib.approximately_once.pipeline import RECOVER, Query, StreamRun, Way, recover_stream
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
    spark: SparkSession,
    query: Query,
    directory: Path,
    outages: Sequence[Outage],
    ways: Sequence[Way | Literal["none"]] = ("none", "model", "exact"),
) -> tuple[pd.DataFrame, dict[str, StreamRun]]:
    """The same stream with workers killed and recovered in some ways, by "none" undisturbed.

    The table has for each of them seconds of the micro-batches with a kill, samples that were read
    again, aggregates estimated, the share of them within ε of the log's own, the account of those
    that the guard let be estimated, and the largest difference from the log's aggregates among all
    that was not estimated.
    """
    streams = dict[str, StreamRun]()
    for way in ways:
        asked = query if way == "none" else replace(query, recover=way)
        struck = [] if way == "none" else outages
        streams[way] = recover_stream(spark, asked, directory / way, struck)
    windows, log = query.windows, query.log
    due = windows.ending_in(0, query.steps)
    true, _ = windows.aggregate(log.read(None, 0, query.steps), 0, due)
    places = [[window * windows.slide for window in due], log.names]
    truth = pd.Series(true.ravel(), pd.MultiIndex.from_product(places, names=["start", "key"]))
    failures = pd.DataFrame({"worker": o.worker, "failure": o.failure} for o in outages)
    rows = []
    for name, done in streams.items():
        own = done.splits.merge(failures, on="worker")
        own = own[(own["start"] <= own["failure"]) & (own["failure"] < own["stop"])]
        found = done.windows.set_index(["start", "key"])
        guessed, computed = found[found.estimated], found[~found.estimated]
        off = (guessed["value"] - truth.reindex(guessed.index)).abs().dropna()
        within = float((off <= query.requirement.epsilon).mean()) if len(off) else np.nan
        audit = done.audit
        rows.append(
            {
                "recovery": name,
                "batch_seconds": own["tasks_s"].mean(),
                "samples_read_again": int(done.splits["again"].sum()),
                "aggregates_estimated": len(guessed),
                "within_epsilon": within,
                "audited": audit.estimates if audit else np.nan,
                "wrong": audit.wrong if audit else np.nan,
                "bound": audit.bound if audit else np.nan,
                "largest_other_difference": float((computed["value"] - truth).abs().max()),
            }
        )
    return pd.DataFrame(rows), streams


def ways_to_recover(
    spark: SparkSession, case: SensorCase, directory: Path, delta: float, steps: int
) -> pd.DataFrame:
    """The table of `recovery_cost` where a worker crashes in each of the last five micro-batches.

    The workers take turns. Without a plan ε is two thirds up the case's list.
    """
    if case.planned is not None:
        query = case.planned_query(steps)
    else:
        middle = case.workers[len(case.workers) // 2]
        query = case.query(middle, case.epsilons[2 * len(case.epsilons) // 3], delta, steps)
    workers = len(query.assignment.workers)
    every, width = -(-query.steps // 8), query.windows.width
    times = [every * batch + every // 3 for batch in range(3, 8)]
    failures = [at for at in times if at < query.steps] or [query.steps // 2]
    outages = [Outage(i % workers, at, at + 2 * width) for i, at in enumerate(failures)]
    asked = replace(query, every=every)
    table, _ = recovery_cost(spark, asked, directory, outages, RECOVER)
    return table.assign(epsilon=query.requirement.epsilon)
