"""Real recoveries in a running process and after a driver's death, and whether they keep T_SLA."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from aftlib.checkpoint_planning.driver import KINDS, passed, write_task
from aftlib.checkpoint_planning.experiments.cases import PlanningCase
from aftlib.checkpoint_planning.operator import Read, ReplayQuery
from aftlib.checkpoint_planning.pipeline import ReplayedStream, replay_stream
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.checkpoint_planning.startup import prepare
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import CONFIDENCE
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.sensorplan import SensorPlan, open_plan
from aftlib.spark.java import short_lived
from aftlib.spark.session import cores_lent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PHASES = ("python_ms", "open_ms", "recovery_ms", "commit_ms", "plan_ms")
"""From the start of the new process: Python and its imports; opening the state; T_rec itself, cold;
committing what was recovered; and then planning the rest of the window anew."""

CHANCE = 0.8
"""With which an interval fails."""
_DEAD = "the process that died"
_DRIVER = (sys.executable, "-m", "aftlib.checkpoint_planning.driver")
_RECORDED = ("start", "stop", "sensors", "res_ms", "rep_ms", "est_ms")


def queries(
    case: PlanningCase,
    epsilon: float,
    delta: float,
    budgets: Sequence[int],
    recovery_time: RecoveryTime = DOCUMENT_RECOVERY_TIME,
    t_sla_ms: float = 0.0,
) -> list[ReplayQuery]:
    """Return the case's query with a T_SLA for each budget, ascending.

    It is `t_sla_ms`, or the time to replay the budget's tuples where that is longer, so that even a
    slow machine can keep it.
    """
    asked = case.model, case.windows.width, Requirement(epsilon, delta), recovery_time
    limits = sorted({max(t_sla_ms, recovery_time(budget)) for budget in budgets})
    return [ReplayQuery(*asked, limit, query=case.windows.query) for limit in limits]


def recoveries(
    queries: Sequence[ReplayQuery],
    log: SensorLog,
    read: Read,
    scratch: Path,
    count: int,
    seed: int,
) -> pd.DataFrame:
    """Recover `count` failed intervals under each query: restore, replay O, estimate, plan anew.

    Queries take turns; one more recovery of each comes first and is not recorded, for whatever is
    slower the first time.

    The stream runs over the log's windows, again from the start when they are through. An interval
    fails by chance: another process is on record as having begun it, as after a crash, so the
    operator treats it as it would then. What Spark needs to restart is no part of T_rec.

    The queries differ in T_SLA only; `read` is `bare_read` or `spark_read` of the log, `scratch` a
    new directory. A row a recovery: t_sla_ms, window, start, stop, sensors, tuples, res_ms, rep_ms,
    est_ms, total_ms.
    """
    for query in queries:
        if log.steps < query.window:
            raise ValueError(
                f"log must hold a window of {query.window} steps, got {log.steps}; write more rows"
            )
    streams = [
        _recovered(query, log, read, scratch / str(i), np.random.default_rng([seed, i]))
        for i, query in enumerate(queries)
    ]
    # the first recovery of each warms up; taking turns spreads what else the machine does
    rows = [next(stream) for _ in range(count + 1) for stream in streams][len(streams) :]
    return pd.DataFrame(rows).assign(
        tuples=lambda t: t["sensors"] * (t["stop"] - t["start"]),
        total_ms=lambda t: t[["res_ms", "rep_ms", "est_ms"]].sum(axis=1),
    )


def _recovered(
    query: ReplayQuery, log: SensorLog, read: Read, scratch: Path, rng: np.random.Generator
) -> Iterator[dict[str, float]]:
    """What each recovery took, of one query's stream over the log again and again."""
    for run in itertools.count():  # which has a state of its own
        operator = prepare(query, log, scratch / str(run))
        batch, position = 0, 0
        while position < log.steps - log.steps % query.window:
            if failed := rng.random() < CHANCE:
                operator.store.begin(batch, position, _DEAD)
            operator.process(batch, read)
            record = operator.store.records()[-1]
            batch, position = batch + 1, record.stop
            if failed:
                kept = {name: getattr(record, name) for name in _RECORDED}
                yield {"t_sla_ms": query.t_sla_ms, "window": query.window} | kept


def t_sla_kept(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of recoveries that took at most T_SLA, low … high its interval (Clopper and Pearson).

    `frame` has t_sla_ms and total_ms of each recovery, and process: what recovered. A row each of
    (process, t_sla_ms): recoveries, kept, share, low, high, median_ms, longest_ms.
    """
    rows = []
    for (process, t_sla), group in frame.groupby(["process", "t_sla_ms"], sort=False):
        kept, total = int((group["total_ms"] <= t_sla).sum()), len(group)
        interval = binomtest(kept, total).proportion_ci(CONFIDENCE)
        times = {"median_ms": group["total_ms"].median(), "longest_ms": group["total_ms"].max()}
        share = {"share": kept / total, "low": interval.low, "high": interval.high}
        about = {"process": process, "t_sla_ms": t_sla, "recoveries": total, "kept": kept}
        rows.append(about | share | times)
    return pd.DataFrame(rows)


@cores_lent()
def restarts(
    query: ReplayQuery,
    log: SensorLog,
    scratch: Path,
    count: int,
    seed: int,
    kinds: Sequence[str] = KINDS,
) -> pd.DataFrame:
    """Kill drivers by SIGKILL in the middle of a batch; time the processes that recover it.

    Each driver has its state to itself, dies with the tuples of one of its first three batches
    read and nothing of them committed, and is started again at once: how soon a failure is
    noticed is not measured here. `count` of each kind are killed: "bare" is one process without
    Spark, "spark" runs the stream on Spark; both are recovered alike.

    kind, trial, batch, sensors, the milliseconds of `PHASES`, t_sla_ms, total_ms: T_rec again, and
    all_ms from the start of the new process to its commit. RuntimeError when a process ends
    otherwise than by its SIGKILL. On a cluster they have the cores of this process's session.
    """
    rng = np.random.default_rng(seed)
    batches = max(1, len(query.first_plan.replay) * (log.steps // query.window))
    rows = []
    for trial, kind in itertools.product(range(count), kinds):
        directory, batch = scratch / f"{kind}-{trial}", int(rng.integers(min(3, batches)))
        write_task(directory, query, log)
        killed_driver(directory, kind, "replayed", batch)
        start = killed_driver(directory, kind, "planned", batch)

        store = CheckpointStore(directory / "state.sqlite", query.fingerprint)
        record = next(r for r in store.records() if r.batch == batch)
        at, total = passed(directory), record.res_ms + record.rep_ms + record.est_ms
        points = ("loaded", -1), ("estimated", batch), ("committed", batch), ("planned", batch)
        python, until, commit, planning = np.diff([start, *(at[p] for p in points)]) * 1e3
        phases = zip(PHASES, (python, until - total, total, commit, planning), strict=True)
        about = {"kind": kind, "trial": trial, "batch": batch, "sensors": record.sensors}
        asked = {"t_sla_ms": query.t_sla_ms, "total_ms": total}
        rows.append(about | dict(phases) | asked | {"all_ms": python + until + commit})
    return pd.DataFrame(rows)


def killed_driver(directory: Path, kind: str, point: str, batch: int) -> float:
    """Start a driver that dies at a point of a batch; when it was started, s since the epoch.

    On a cluster it waits for cores: a session of this process must lend its own (`cores_lent`).
    """
    command, start = [*_DRIVER, str(directory), kind, point, str(batch)], time.time()
    done = subprocess.run(command, capture_output=True, text=True, env=short_lived())
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(
            f"driver must die at {point!r} of batch {batch}, ended with status {done.returncode}; "
            f"its last words: {done.stderr[-500:]}"
        )
    return start


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
