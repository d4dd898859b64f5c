"""D1's streams with real crashes: fig. 8's six sensors, and the cost of a recovery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import assess
from aftlib.approximately_once.experiments.cases import SensorCase
from aftlib.approximately_once.pipeline import RECOVER, Query, StreamRun, recover_stream
from aftlib.approximately_once.sink import Outage
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aftlib.approximately_once.pipeline import RecoveryMethod

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


def recoveries(
    spark: SparkSession,
    case: SensorCase,
    directory: Path,
    steps: int,
    recover: str | None,
    crashes: int = 1,
) -> pd.DataFrame:
    """Compare an undisturbed stream with crashes, recovered approximately and exactly.

    The first estimable worker crashes in each micro-batch but the first two. By default the guard
    recovers it if the case has a plan, otherwise the model. The approximate stream runs before and
    after the exact one, so that a machine that becomes faster or slower favours neither.
    """
    query = case.query(steps, case.workers[len(case.workers) // 2], case.epsilons[-1])
    every, width = -(-query.steps // (crashes + 2)), query.windows.width
    worker = int(np.argmax(query.assignment.estimable))
    failures = [every * batch + every // 3 for batch in range(2, crashes + 2)]
    failures = [at for at in failures if at < query.steps] or [query.steps // 2]
    outages = [Outage(worker, at, at + 2 * width) for at in failures]
    approximate = recover or ("guard" if case.plan else "model")
    methods = ["none", approximate, "exact", approximate]
    methods = methods if approximate != "exact" else methods[:2]
    return recovery_cost(spark, replace(query, every=every), directory, outages, methods)


def repeated_crashes(
    spark: SparkSession, case: SensorCase, directory: Path, steps: int
) -> pd.DataFrame:
    """Compare all methods of recovery if a worker crashes in each of the last five micro-batches.

    The workers take turns. Without a plan ε is the value at two thirds of the case's ascending
    `epsilons`.
    """
    middle = case.workers[len(case.workers) // 2]
    query = case.query(steps, middle, case.epsilons[2 * len(case.epsilons) // 3])
    workers = len(query.assignment.workers)
    every, width = -(-query.steps // 8), query.windows.width
    times = [every * batch + every // 3 for batch in range(3, 8)]
    failures = [at for at in times if at < query.steps] or [query.steps // 2]
    outages = [Outage(i % workers, at, at + 2 * width) for i, at in enumerate(failures)]
    table = recovery_cost(spark, replace(query, every=every), directory, outages, RECOVER)
    return table.assign(epsilon=query.requirement.epsilon)


def recovery_cost(
    spark: SparkSession,
    query: Query,
    directory: Path,
    outages: Sequence[Outage],
    methods: Sequence[str] = ("none", "model", "exact"),
) -> pd.DataFrame:
    """Stream one log once per method of recovery with the same crashes; "none" is without crashes.

    Columns: recovery; seconds: of each micro-batch with a crash, from its tasks' start until the
    coordinator has finished; batch_seconds: their mean; samples_read_again;
    aggregates_estimated; within_epsilon: the share of them within ε of the log's aggregates;
    audited, wrong and bound: of the guard's estimates; largest_other_difference: the largest
    difference between a result that was not estimated and the log's aggregate.
    """
    windows, log = query.windows, query.log
    due = windows.ending_in(0, query.steps)
    true, _ = windows.aggregate(log.read(None, 0, query.steps), 0, due)
    places = [[window * windows.slide for window in due], log.names]
    truth = pd.Series(true.ravel(), pd.MultiIndex.from_product(places, names=["start", "key"]))
    failures = pd.DataFrame({"worker": o.worker, "failure": o.failure} for o in outages)
    rows = []
    for number, method in enumerate(methods):
        place = directory / f"{number}-{method}"
        if method == "none":
            run = recover_stream(spark, query, place)
        else:
            recovered = replace(query, recover=cast("RecoveryMethod", method))
            run = recover_stream(spark, recovered, place, outages)
        splits = run.splits.merge(failures, on="worker")
        crashed = (splits["start"] <= splits["failure"]) & (splits["failure"] < splits["stop"])
        seconds = splits[crashed].sort_values("failure")[["tasks_s", "coordinator_s"]].sum(axis=1)
        results = run.windows.set_index(["start", "key"])
        off = (results["value"] - truth.reindex(results.index)).abs()
        errors = off[results["estimated"]].dropna()
        audit = vars(run.audit) if run.audit else {}
        rows.append(
            {
                "recovery": method,
                "batch_seconds": seconds.mean(),
                "seconds": tuple(seconds),
                "samples_read_again": int(run.splits["again"].sum()),
                "aggregates_estimated": int(results["estimated"].sum()),
                "within_epsilon": (errors <= query.requirement.epsilon).mean(),
                "audited": audit.get("estimates", np.nan),
                "wrong": audit.get("wrong", np.nan),
                "bound": audit.get("bound", np.nan),
                "largest_other_difference": float(off[~results["estimated"]].max()),
            }
        )
    return pd.DataFrame(rows)
