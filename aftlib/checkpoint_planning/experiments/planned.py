"""A plan.json streamed: its checkpoint times and replay sets, under drivers that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.driver import write_task
from aftlib.checkpoint_planning.experiments.recoveries import killed_driver
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.pipeline import ReplayedStream, replay_stream
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.sensorplan import SensorPlan, open_plan
from aftlib.spark.session import cores_lent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANNED_WINDOWS = 20
"""Windows of the plan's second half that are streamed; each batch of Spark costs a moment."""


def planned_query(plan: SensorPlan) -> ReplayQuery:
    """The query of a plan, in units of ε: tumbling windows, planned times and replay sets.

    The model is of one step, such that a window's result has the variance that was measured,
    however its steps hang together.
    """
    w, over = plan.windows.width, plan.model
    mean, scale = (over.mean, w) if plan.windows.query == "mean" else (over.mean / w, 1 / w)
    return ReplayQuery(
        GaussianModel(mean, over.covariance * scale, over.names),
        w,
        Requirement(1.0, plan.delta),
        RecoveryTime(plan.fixed_ms, plan.per_tuple_ms),
        plan.t_sla_ms,
        query=plan.windows.query,
        planned=(plan.times, plan.replay),
    )


def require_planned(file: Path | str) -> SensorPlan:
    """A plan that can be streamed; ValueError names `plan` and says why not."""
    plan = open_plan(file)
    shortest = RecoveryTime(plan.fixed_ms, plan.per_tuple_ms)(len(plan.table.names))
    if plan.t_sla_ms < shortest:
        raise ValueError(
            f"plan {str(file)!r} must have a T_SLA of at least {shortest:.6g} ms, got "
            f"{plan.t_sla_ms:g}: once failures have spent the whole error, all "
            f"{len(plan.table.names)} sensors are replayed step by step; make it anew by aft plan"
        )
    return plan


def planned_recoveries(
    spark: SparkSession, file: Path | str, directory: Path, scratch: Path, kills: int, seed: int
) -> pd.DataFrame:
    """Stream a plan's data as planned, while drivers are killed in the middle of a batch.

    What the last of them left streams through the session. The log is kept under `directory`.

    A row an interval of the plan that failed: start, until, sensors: those read again, of all `n`,
    tuples and total_ms of the recovery, estimated: results of its window that are estimates,
    within: the share of them within ε of the truth.
    """
    plan = require_planned(file)
    query, log = planned_query(plan), plan.write_log(directory)
    w, names = query.window, log.names
    steps = min(log.steps // w, PLANNED_WINDOWS) * w
    log = SensorLog.write(scratch / "log", log.read(None, 0, steps), names)
    batches, rng = len(plan.replay) * (steps // w), np.random.default_rng(seed)
    struck = sorted(rng.choice(batches, min(kills, batches), replace=False).tolist())
    write_task(scratch / "stream", query, log)
    with cores_lent():
        for batch in struck:
            killed_driver(scratch / "stream", "spark", "replayed", batch)
    done = replay_stream(spark, query, log, scratch / "stream")
    return _failures(done, log, query)


def _failures(done: ReplayedStream, log: SensorLog, query: ReplayQuery) -> pd.DataFrame:
    """What became of each interval that had failed."""
    rows, w = [], query.window
    results = pd.DataFrame(map(vars, done.results)).set_index(["start", "key"])
    for record in (record for record in done.records if record.recovered):
        window = record.start - record.start % w
        found = results.loc[window].reindex(log.names)
        values = log.read(None, window, window + w)
        truth = np.nansum(values, axis=0)
        if query.query == "mean":
            truth = truth / np.isfinite(values).sum(axis=0)
        guessed = (found["half_width"] > 0).to_numpy()
        off = np.abs(found["value"].to_numpy() - truth)[guessed]
        known = np.isfinite(off)
        rows.append(
            {
                "start": record.start,
                "until": record.stop,
                "sensors": record.sensors,
                "n": len(log.names),
                "tuples": record.sensors * (record.stop - record.start),
                "total_ms": record.res_ms + record.rep_ms + record.est_ms,
                "estimated": int(guessed.sum()),
                "within": float((off[known] <= 1).mean()) if known.any() else np.nan,
            }
        )
    return pd.DataFrame(rows)
