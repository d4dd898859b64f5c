"""Recoveries in a running process: fig. 1, and the queries of other experiments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.experiments.cases import PlanningCase
from aftlib.checkpoint_planning.operator import (
    PartialReplay,
    Read,
    ReplayQuery,
    bare_read,
    prepare,
)
from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.checkpoint_planning.state import WindowResult
from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog

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

_CRASHED = "the process that crashed"


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


def three_sensors(directory: Path, failure: int = 5) -> ThreeSensors:
    """Aggregate fig. 1's window, fail, restore the last checkpoint and replay the plan's sensors.

    The failure is at step `failure`, 1 … 7. `directory` must be new; it gets the log and the state.
    """
    require_number("failure", failure, least=1, most=len(FIGURE_1))
    requirement, cost = Requirement(EPSILON, DELTA), RecoveryTime(0, 1)
    query = ReplayQuery(MODEL, len(FIGURE_1), requirement, cost, T_SLA_MS)
    log = SensorLog.write(directory / "log", FIGURE_1.to_numpy(), FIGURE_1.columns.tolist())
    operator = prepare(query, log, directory / "state")
    list(fail_and_recover(operator, bare_read(log), lambda begin, end: begin < failure <= end))

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
