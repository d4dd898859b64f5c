"""Real recoveries in a running process, and their T_SLA."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.driver import write_task
from aftlib.checkpoint_planning.experiments.cases import PlanningCase
from aftlib.checkpoint_planning.experiments.kills import killed_driver
from aftlib.checkpoint_planning.operator import PartialReplay, Read, ReplayQuery, prepare
from aftlib.checkpoint_planning.pipeline import replay_stream, spark_read
from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.checkpoint_planning.state import WindowResult
from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.intervals import share_interval
from aftlib.core.planfile import SensorPlan, open_plan
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.faults import Fault
from aftlib.spark.session import released_cores

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
"""Our choice, as fig. 1 has no model: X1 and X2 correlate strongly (.90), X3 weakly (.52, .41)."""
EPSILON, DELTA, T_SLA_MS = 0.44, 0.05, 6
"""Our choice: at 1 ms per replayed tuple these give the document's plan."""

CHANCE = 0.8
"""Probability that an interval fails."""
PLANNED_WINDOWS = 20
"""Windows of a plan's second half that are streamed; few, because each Spark batch takes time."""
_CRASHED = "the process that crashed"
_RECORDED = ("start", "stop", "sensors", "res_ms", "rep_ms", "est_ms")


def fail_and_recover(
    operator: PartialReplay, read: Read, fails: Callable[[int, int], bool]
) -> Iterator[bool]:
    """Process the whole windows of the operator's log; yield for each interval whether it failed.

    An interval fails if `fails(begin, end)` is true. Then the store records that another process
    began it, as after a crash, and the operator recovers it.
    """
    end = operator.log.steps - operator.log.steps % operator.query.window
    for batch in itertools.count():
        checkpoint = operator.checkpoint
        if checkpoint.position >= end:
            return
        failed = fails(checkpoint.position, checkpoint.next_boundary)
        if failed:
            operator.store.begin(batch, checkpoint.position, _CRASHED)
        operator.process(batch, read)
        yield failed


def score_results(
    results: Sequence[WindowResult], values: np.ndarray, query: ReplayQuery
) -> pd.DataFrame:
    """Compare window results with the samples; return window, sensor, estimated and off.

    `off` is the error in units of ε, NaN for a window without samples. `values`, shape (steps, n),
    begin with the first window.
    """
    w = query.window
    samples = values[: len(values) // w * w].reshape(-1, w, query.model.size)
    number = np.isfinite(samples).sum(axis=1)
    sums = np.where(number > 0, np.nansum(samples, axis=1), np.nan)
    truth = sums / query.aggregate.divisor(np.maximum(number, 1))
    frame = pd.DataFrame(map(vars, results))
    window, sensor = frame["start"] // w, frame["key"].map(query.model.names.index)
    off = np.abs(frame["value"] - truth[window, sensor]) / query.requirement.epsilon
    cells = {"window": window, "sensor": sensor, "estimated": frame["half_width"] > 0, "off": off}
    return pd.DataFrame(cells)


@dataclass(frozen=True)
class ThreeSensors:
    """The results of fig. 1, as the operator emitted them."""

    plan: CheckpointPlan
    cells: pd.DataFrame  # sensor, step, value, state: checkpointed, replayed or estimated
    results: pd.DataFrame  # sensor, checkpoint: mean in c¹, restored, half_width, truth, error


def three_sensors(spark: SparkSession, directory: Path, failure: int = 5) -> ThreeSensors:
    """Aggregate fig. 1's window, fail, restore the last checkpoint and replay the plan's sensors.

    The failure is at step `failure`, 1 … 7. `directory` must be new; it gets the log and the state.
    """
    require_number("failure", failure, least=1, most=len(FIGURE_1))
    requirement, cost = Requirement(EPSILON, DELTA), RecoveryTime(0, 1)
    query = ReplayQuery(MODEL, len(FIGURE_1), requirement, cost, T_SLA_MS)
    log = SensorLog.write(directory / "log", FIGURE_1.to_numpy(), FIGURE_1.columns.tolist())
    operator, read = prepare(query, log, directory / "state"), spark_read(spark, log, tasks=2)
    list(fail_and_recover(operator, read, lambda begin, end: begin < failure <= end))

    plan = query.first_plan
    failed = int(np.searchsorted(plan.times, failure)) - 1
    begin, end = plan.times[failed : failed + 2]
    cells = FIGURE_1.reset_index().melt("step", var_name="sensor")
    replayed = cells["sensor"].isin([MODEL.names[i] for i in plan.replay[failed].sensors])
    states = np.where(replayed, "replayed", "estimated")
    cells["state"] = np.where(cells["step"].between(begin + 1, end), states, "checkpointed")

    results = pd.DataFrame(map(vars, operator.store.results())).set_index("key")
    table = pd.DataFrame({"checkpoint": FIGURE_1.iloc[:begin].mean(), "restored": results["value"]})
    table = table.assign(half_width=results["half_width"], truth=FIGURE_1.mean())
    table["error"] = (table["restored"] - table["truth"]).abs()
    return ThreeSensors(plan, cells, table.rename_axis("sensor").reset_index())


def queries(
    case: PlanningCase,
    epsilon: float,
    delta: float,
    budgets: Sequence[int],
    recovery_time: RecoveryTime = DOCUMENT_RECOVERY_TIME,
) -> list[ReplayQuery]:
    """Return one query per budget of tuples, each with the T_SLA that permits it, ascending."""
    problem = case.model, case.windows.width, Requirement(epsilon, delta), recovery_time
    limits = sorted({recovery_time(budget) for budget in budgets})
    return [ReplayQuery(*problem, limit, query=case.windows.query) for limit in limits]


def rate_queries(
    case: PlanningCase, epsilon: float, delta: float, t_sla_ms: float
) -> dict[str, ReplayQuery]:
    """Queries whose throughput is compared: exactly-once with and without T_est, and proposed."""
    problem = case.model, case.windows.width, Requirement(epsilon, delta)
    costs = {"exactly-once": case.recovery_time, "exactly-once, no T_est": case.estimate_apart}
    exact = {
        name: ReplayQuery(*problem, cost, t_sla_ms, "exactly-once") for name, cost in costs.items()
    }
    return exact | {"proposed": ReplayQuery(*problem, case.recovery_time, t_sla_ms)}


def recoveries(
    queries: Sequence[ReplayQuery],
    log: SensorLog,
    read: Read,
    scratch: Path,
    count: int,
    seed: int,
) -> pd.DataFrame:
    """Recover `count` failed intervals under each query: restore, replay O, estimate, plan.

    Queries take turns. The first recovery of each is slower and is not recorded. The stream repeats
    the log's windows, and intervals fail at random. T_rec does not include a restart of Spark.

    The queries differ in T_SLA only; `read` is `bare_read` or `spark_read` of the log, `scratch` a
    new directory. One row per recovery: t_sla_ms, window, n, start, stop, sensors, tuples, res_ms,
    rep_ms, est_ms, total_ms.
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
    # the first recovery of each warms up; taking turns spreads other work on the machine
    rows = [next(stream) for _ in range(count + 1) for stream in streams][len(streams) :]
    return pd.DataFrame(rows).assign(
        tuples=lambda t: t["sensors"] * (t["stop"] - t["start"]),
        total_ms=lambda t: t[["res_ms", "rep_ms", "est_ms"]].sum(axis=1),
    )


def _recovered(
    query: ReplayQuery, log: SensorLog, read: Read, scratch: Path, rng: np.random.Generator
) -> Iterator[dict[str, float]]:
    """Times of each recovery of one query's stream, which repeats the log."""
    for run in itertools.count():  # each with its own state
        operator = prepare(query, log, scratch / str(run))
        for failed in fail_and_recover(operator, read, lambda *_: rng.random() < CHANCE):
            if failed:
                record = operator.store.records()[-1]
                times = {name: getattr(record, name) for name in _RECORDED}
                about = {"t_sla_ms": query.t_sla_ms, "window": query.window, "n": query.model.size}
                yield about | times


def share_within_t_sla(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of recoveries that took at most T_SLA, with its interval (Clopper and Pearson).

    `frame` has t_sla_ms and total_ms of each recovery, and process, the kind of process that
    recovered. One row per (process, t_sla_ms): recoveries, in_time, share, low, high, median_ms,
    longest_ms.
    """
    rows = []
    for (process, t_sla), group in frame.groupby(["process", "t_sla_ms"], sort=False):
        in_time, total = int((group["total_ms"] <= t_sla).sum()), len(group)
        low, high = share_interval(in_time, total)
        times = {"median_ms": group["total_ms"].median(), "longest_ms": group["total_ms"].max()}
        share = {"share": in_time / total, "low": low, "high": high}
        about = {"process": process, "t_sla_ms": t_sla, "recoveries": total, "in_time": in_time}
        rows.append(about | share | times)
    return pd.DataFrame(rows)


def planned_query(plan: SensorPlan) -> ReplayQuery:
    """Return the query of a plan, in units of ε: tumbling windows, planned times and replay sets.

    The model of one step is scaled so that a window's result has the measured variance, even if
    steps depend on each other.
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
    """Return a plan that can be streamed; ValueError with the reason otherwise."""
    plan = open_plan(file)
    shortest = RecoveryTime(plan.fixed_ms, plan.per_tuple_ms)(len(plan.table.names))
    if plan.t_sla_ms < shortest:
        raise ValueError(
            f"plan {str(file)!r} must have a T_SLA of at least {shortest:.6g} ms, the time to "
            f"replay one step of all {len(plan.table.names)} sensors, got {plan.t_sla_ms:g}. After "
            "failures that used up ε this replay is needed; make a new plan by aft plan"
        )
    return plan


def planned_recoveries(
    spark: SparkSession, file: Path | str, directory: Path, scratch: Path, kills: int, seed: int
) -> pd.DataFrame:
    """Stream a plan's data as planned, while drivers are killed in the middle of a batch.

    After the last kill, the session streams the rest. The log is stored under `directory`.

    One row per interval that failed: start, until, sensors: those read again, of all `n`, tuples
    and total_ms of the recovery, estimated: results of its window that are estimates, within: the
    share of them within ε of the truth.
    """
    plan = require_planned(file)
    query, log = planned_query(plan), plan.write_log(directory)
    w, names = query.window, log.names
    values = log.read(None, 0, min(log.steps // w, PLANNED_WINDOWS) * w)
    log = SensorLog.write(scratch / "log", values, names)
    batches, rng = len(plan.replay) * (log.steps // w), np.random.default_rng(seed)
    failing = sorted(rng.choice(batches, min(kills, batches), replace=False).tolist())
    write_task(scratch / "stream", query, log)
    with released_cores():
        for batch in failing:
            killed_driver(scratch / "stream", "spark", Fault("kill", "driver", batch, "replayed"))
    done = replay_stream(spark, query, log, scratch / "stream")
    scores, rows = score_results(done.results, values, query), []
    for record in (record for record in done.records if record.recovered):
        window = scores[scores["window"] == record.start // w]
        off = window.loc[window["estimated"], "off"]
        rows.append(
            {
                "start": record.start,
                "until": record.stop,
                "sensors": record.sensors,
                "n": len(names),
                "tuples": record.sensors * (record.stop - record.start),
                "total_ms": record.res_ms + record.rep_ms + record.est_ms,
                "estimated": len(off),
                "within": (off.dropna() <= 1).mean(),
            }
        )
    return pd.DataFrame(rows)
