"""From sensors and a question to the plan: assignment, recovery, back-test and cautions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from aftlib.approximately_once.assignment import Assignment, assign_greedy, assign_spread
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.guard import Guard
from aftlib.sensor_plans.backtest import (
    GUARD,
    OnSegment,
    Walk,
    compare,
    left_variance,
    or_none,
    shares,
    walk_forward,
)
from aftlib.sensor_plans.cautions import data_cautions, guarantee_cautions
from aftlib.sensor_plans.planfile import VERSION
from aftlib.sensor_plans.question import HORIZONS, Question, answered, group_sensors
from aftlib.sensor_plans.recovery import plan_recovery
from aftlib.sensor_plans.sensor_file import SensorTable, read_sensors
from aftlib.sensor_plans.window_results import (
    aggregate,
    find_seasons,
    fit_model,
    outliers,
    require_results,
    spread,
)
from aftlib.sensor_plans.worth import pays_below, worth

MOST_ROWS = 200_000
"""Most steps, the last ones before the middle, to which the baseline model is fitted."""
REMEMBERED = 1500
"""Windows that the guard is fed before the outage that is drawn."""
AROUND = 15
"""Windows that are drawn before and after the outage."""
DRAWN = 4
"""Most sensors of the outage that are drawn."""


# The guard's products are small: several threads wait for each other longer than they compute.
@threadpool_limits.wrap(limits=1, user_api="blas")
def plan(
    sensors: pd.DataFrame | SensorTable,
    *,
    assignment: Mapping[str, Any] | Sequence[Sequence[str]] | None = None,
    name: str = "sensors",
    on_segment: OnSegment = lambda done, of: None,
    **question: Any,
) -> dict[str, Any]:
    """Plan which sensors may be lost, and test whether the guarantee would have held.

    Parameters
    ----------
    sensors : DataFrame or SensorTable
        One row per time and one column per sensor, with the times as index or as a column; or what
        `read_sensors` returns.
    assignment : mapping of sensor to worker, or a list of the sensors of each worker, optional
        The grouping that exists, such as one worker per gateway. By default the plan makes one.
    name : str
        Name of the data.
    on_segment : callable
        Called with the number of processed windows and the total number.
    **question
        Fields of `Question`, such as ``epsilon_sd=0.5, window="6h"``.

    Returns
    -------
    dict
        The fields of plan.json (see `planfile.Plan`).

    Raises
    ------
    ValueError
        When no plan can be made; the message names the argument and the fix.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> frame = pd.DataFrame(
    ...     rng.normal(size=(9000, 1)) + 0.1 * rng.normal(size=(9000, 3)),
    ...     pd.date_range("2026-01-01", periods=9000, freq="min"),
    ...     ["kitchen", "hall", "cellar"],
    ... )
    >>> made = plan(frame, epsilon_sd=0.5, assignment={"kitchen": "A", "hall": "A", "cellar": "B"})
    >>> made["assignment"], made["backtest"]["within_epsilon"] > 0.95
    ([['kitchen', 'hall'], ['cellar']], True)
    """
    asked = Question(**question)
    table = sensors if isinstance(sensors, SensorTable) else read_sensors(sensors)
    names, step = table.names, table.step
    width = asked.width(names, len(table.values), step)
    values = aggregate(table.values, width, asked.query)
    require_results(names, values)
    first = values[: len(values) // 2]
    seasons = find_seasons(first, width, step)
    limits = asked.limits(names, spread(first))

    # in units of ε one requirement is enough for all sensors
    unit = Requirement(1.0, asked.delta)
    model = fit_model(np.where(outliers(first), np.nan, first) / limits, names)
    if assignment is None:
        workers = assign_sensors(model, asked.workers or len(names), unit)
        machines = [str(i) for i in range(len(workers))]
    else:
        machines, workers = group_sensors(assignment, names)
    half = len(table.values) // 2
    recent = table.values[max(0, half - MOST_ROWS) : half]
    baseline = fit_model(recent, names).aggregate(width, asked.query)

    def back_test(workers: Sequence[Sequence[int]], on_segment: OnSegment) -> Walk:
        return walk_forward(
            values,
            workers,
            limits,
            asked.delta,
            baseline,
            horizons=HORIZONS,
            seasons=seasons,
            on_segment=on_segment,
        )

    walk = back_test(workers, on_segment)
    summary = summarize(walk, names)
    sizes = [len(keys) for keys in workers]
    step_s = None if step is None else step.total_seconds()
    rate = 0.0 if step_s is None else len(names) / step_s
    recovery = plan_recovery(model, values[len(first) :] / limits, width, asked, rate)
    made = {
        "version": VERSION,
        "data": {
            "name": name,
            "read": table.summary_lines,
            "steps": len(table.values),
            "step_seconds": step_s,
            "first": str(table.at(0)),
            "last": str(table.at(len(table.values) - 1)),
            "windows": len(values),
            "seasons_in_windows": seasons,
        },
        "question": answered(
            asked, width, dict(zip(names, limits.tolist(), strict=True)), len(sizes), rate
        ),
        "assignment": [[names[i] for i in keys] for keys in workers],
        "machines": describe_machines(walk, workers, machines, names),
        "regrouping": None,
        **recovery,
        "backtest": summary,
        "compared": compare(walk, baseline, workers),
        "sensors": describe_sensors(walk, model, workers, names, limits),
        "segments": describe_segments(walk, table, width),
        "outage": show_outage(table, values, workers, limits, asked.delta, seasons, walk, width),
        "cautions": [
            *([recovery["read_everything"]] if recovery["read_everything"] else []),
            *guarantee_cautions(names, limits, walk),
            *data_cautions(table, values, width),
        ],
        "pays_below": None,
        "worth": None,
    }
    if assignment is not None and 1 < len(sizes) < len(names):
        other = assign_sensors(model, len(sizes), unit)
        again = summarize(back_test(other, lambda done, of: None), names)
        made["regrouping"] = {
            "assignment": [[names[i] for i in keys] for keys in other],
            "declared_recoverable": again["declared_recoverable"],
            "within_epsilon": again["within_epsilon"],
        }
    if step_s is not None:
        operation = asked, sizes, width, step_s, summary["declared_recoverable"]
        rate_below = pays_below(*operation)
        made["pays_below"] = rate_below if np.isfinite(rate_below) else None
        if asked.read_rate is not None:
            made["worth"] = worth(*operation)
    elif asked.read_rate is not None:
        raise ValueError(
            f"read_rate must be given with data that have times, got {asked.read_rate}: without "
            "times, samples per second are unknown; add a column of times"
        )
    return made


def assign_sensors(model: GaussianModel, workers: int, requirement: Requirement) -> list[list[int]]:
    """Assign sensors to workers so that, on average, other workers predict each sensor well.

    If m does not divide n, some workers have one sensor more.
    """
    methods = (assign_greedy, assign_spread)
    assignments = [assign(model, workers, requirement, uneven=True) for assign in methods]

    def mean_reliability(assignment: Assignment) -> float:
        variances = [model.block_variance(keys) for keys in assignment.workers]
        return float(requirement.reliability(np.concatenate(variances)).mean())

    best = max(assignments, key=mean_reliability)
    return [list(keys) for keys in best.workers]


def summarize(walk: Walk, names: Sequence[str]) -> dict[str, Any]:
    """The back-test in numbers; horizons are weighted H : … : 1."""
    guard = walk.summary(GUARD)
    return {
        "windows": int(walk.edges[-1] - walk.edges[0]),  # of the second half, as if each was lost
        "declared_recoverable": guard["declared"],
        "within_epsilon": guard["within"],
        "interval": guard["interval"],
        "worst_sensor": guard["worst_within"],
        "worst_sensor_name": None if guard["worst"] is None else names[guard["worst"]],
        "promises": guard["promises"],  # certified, all horizons, second half
        "N": walk.guarantees,  # certified one window ahead, in all windows that the guard was fed
        "fed": walk.rounds,
        "slack_errors": walk.pooled_allowance,
        "slack": walk.pooled_allowance / walk.guarantees if walk.guarantees else None,
        "excess_over_theorem": walk.excess,
    }


def describe_sensors(
    walk: Walk,
    model: GaussianModel,
    workers: Sequence[Sequence[int]],
    names: Sequence[str],
    limits: np.ndarray,
) -> list[dict[str, Any]]:
    """One row per sensor; lists have an entry per horizon, 1 … H windows."""
    worker_of = {i: worker for worker, keys in enumerate(workers) for i in keys}
    explained = 1 - left_variance(model, workers) / np.diag(model.covariance)
    certified, within = shares(walk.counts[GUARD].sum(axis=0))
    return [
        {
            "name": name,
            "worker": worker_of[i],
            "epsilon": float(limits[i]),
            "explained": float(max(0.0, explained[i])),
            "declared": certified[:, i].tolist(),
            "within": or_none(within[:, i]),
            "longest": int(np.cumprod(certified[:, i] >= 0.5).sum()),
            "now": walk.recoverable[:, i].tolist(),
            "N": walk.outcomes[:, i, 0].tolist(),
            "least_epsilon": or_none(walk.least_epsilon[i]),
        }
        for i, name in enumerate(names)
    ]


def describe_machines(
    walk: Walk,
    workers: Sequence[Sequence[int]],
    machines: Sequence[str],
    names: Sequence[str],
) -> list[dict[str, Any]]:
    """What is certified one window ahead if a machine fails, and which sensors are the problem."""
    certified = walk.certified_shares[0]
    rows = []
    for machine, keys in zip(machines, workers, strict=True):
        problems = sorted((i for i in keys if certified[i] < 0.5), key=lambda i: certified[i])
        rows.append(
            {
                "name": machine,
                "sensors": [names[i] for i in keys],
                "declared": float(certified[list(keys)].mean()),
                "problems": {names[i]: float(certified[i]) for i in problems},
            }
        )
    return rows


def describe_segments(walk: Walk, table: SensorTable, width: int) -> list[dict[str, Any]]:
    """Share certified, and share of these within ε, in each segment of time."""
    certified, within = shares(walk.of(GUARD).sum(axis=1))
    rows = zip(walk.edges[:-1].tolist(), certified.tolist(), or_none(within), strict=True)
    return [
        {"start": str(table.at(begin * width)), "declared": share, "within": good}
        for begin, share, good in rows
    ]


def show_outage(
    table: SensorTable,
    values: np.ndarray,
    workers: Sequence[Sequence[int]],
    limits: np.ndarray,
    delta: float,
    seasons: Sequence[float],
    walk: Walk,
    width: int,
) -> dict[str, Any]:
    """One outage of a machine in the middle of the second half, by a guard that does not see it.

    The machine is the one whose certified share is nearest to that of all; H windows are lost.
    """
    shares_of = np.array([walk.certified_shares[0][list(keys)].mean() for keys in workers])
    machine = int(np.abs(shares_of - walk.certified_shares[0].mean()).argmin())
    keys = list(workers[machine])
    begin = len(values) * 3 // 4
    end = min(begin + HORIZONS, len(values))
    guard = Guard(workers, limits, delta, HORIZONS, seasons)
    guard.update(values[max(0, begin - REMEMBERED) : begin])
    lost = values[begin:end].copy()
    lost[:, keys] = np.nan
    recovered = guard.update(lost)
    drawn = range(max(0, begin - AROUND), min(end + AROUND, len(values)))
    return {
        "machine": machine,
        "times": [str(table.at(t * width)) for t in drawn],
        "lost": [str(table.at(t * width)) for t in range(begin, end)],
        "sensors": [
            {
                "name": table.names[i],
                "epsilon": float(limits[i]),
                "truth": or_none(values[list(drawn), i]),
                "estimate": or_none(recovered.estimate[:, i]),
                "half_width": or_none(recovered.half_width[:, i]),
                "certified": recovered.declared[:, i].tolist(),
            }
            for i in keys[:DRAWN]
        ],
    }
