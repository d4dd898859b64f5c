"""From sensors and a question to the plan: assignment, recovery, back-test and cautions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from aftlib.approximately_once.assignment import (
    Assignment,
    assign_greedy,
    assign_spread,
    residual_variance,
)
from aftlib.core.gaussian import GaussianModel
from aftlib.core.planfile import VERSION
from aftlib.core.requirement import Requirement
from aftlib.guard import Guard
from aftlib.sensor_plans.backtest import GUARD, HORIZONS, OnSegment, Walk, compare, or_none, shares
from aftlib.sensor_plans.cautions import data_cautions, fails, guarantee_cautions
from aftlib.sensor_plans.question import Question, group_sensors
from aftlib.sensor_plans.recovery import compare_schemes, pays_below, plan_recovery
from aftlib.sensor_plans.sensor_file import SensorTable, read_sensors
from aftlib.sensor_plans.window_results import Survey

REMEMBERED = 700
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
        The fields of plan.json (see `aftlib.core.planfile.read_plan`).

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
    >>> result = plan(frame, assignment={"kitchen": "A", "hall": "A", "cellar": "B"})
    >>> result["assignment"], result["backtest"]["within_epsilon"] > 0.95
    ([['kitchen', 'hall'], ['cellar']], True)
    """
    table = sensors if isinstance(sensors, SensorTable) else read_sensors(sensors)
    survey = Survey.of(table, Question(**question))
    names, terms = survey.names, survey.question
    if assignment is None:
        workers = assign_sensors(survey.model, terms.workers or len(names), survey.unit)
        machines = [str(i) for i in range(len(workers))]
    else:
        machines, workers = group_sensors(assignment, names)
    walk = survey.walk(workers, on_segment)
    sizes = [len(keys) for keys in workers]
    recovery = plan_recovery(survey)
    summary = summarize(walk, names)
    certified = 0.0 if fails(walk) else summary["declared_recoverable"]
    return {
        "version": VERSION,
        "data": describe_data(survey, name),
        "question": describe_question(survey, len(sizes)),
        "assignment": name_groups(workers, names),
        "machines": describe_machines(walk, workers, machines, names),
        "regrouping": None if assignment is None else regroup(survey, len(sizes)),
        **recovery,
        "backtest": summary,
        "compared": compare(walk, survey.baseline, workers),
        "sensors": describe_sensors(survey, walk, workers),
        "segments": describe_segments(survey, walk),
        "outage": show_outage(survey, walk, workers),
        **weigh_costs(survey, sizes, certified),
        "cautions": [
            *filter(None, [recovery["read_everything"]]),
            *guarantee_cautions(survey, walk),
            *data_cautions(table, survey.values, survey.width),
        ],
    }


def weigh_costs(survey: Survey, sizes: Sequence[int], certified: float) -> dict[str, Any]:
    """Below which read rate estimating pays (None: at any), and the comparison at the user's."""
    terms, step_s, compared = survey.question, survey.step_s, None
    if step_s is None:
        return {"pays_below": None, "worth": None}
    if terms.read_rate is not None:
        compared = compare_schemes(terms, sizes, survey.width, step_s, certified)
    below = pays_below(terms, sizes, survey.width, step_s, certified)
    return {"pays_below": below, "worth": compared}


def regroup(survey: Survey, workers: int) -> dict[str, Any] | None:
    """The best assignment that was found to as many machines as given, and its back-test."""
    if not 1 < workers < len(survey.names):
        return None
    groups = assign_sensors(survey.model, workers, survey.unit)
    certified = survey.walk(groups, lambda done, of: None).summary(GUARD)["declared"]
    return {"assignment": name_groups(groups, survey.names), "declared_recoverable": certified}


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


def name_groups(workers: Sequence[Sequence[int]], names: Sequence[str]) -> list[list[str]]:
    """The names of each worker's sensors."""
    return [[names[i] for i in keys] for keys in workers]


def describe_data(survey: Survey, name: str) -> dict[str, Any]:
    """The input as it was read."""
    steps = len(survey.table.values)
    return {
        "name": name,
        "read": survey.table.summary_lines,
        "steps": steps,
        "step_seconds": survey.step_s,
        "first": str(survey.table.at(0)),
        "last": str(survey.table.at(steps - 1)),
        "windows": len(survey.values),
        "seasons_in_windows": survey.seasons,
    }


def describe_question(survey: Survey, workers: int) -> dict[str, Any]:
    """The question, with values for what the user left open."""
    terms, recovery_time = survey.question, survey.question.recovery_time(survey.samples_per_s)
    return terms.model_dump() | {
        "epsilon": dict(zip(survey.names, survey.limits.tolist(), strict=True)),
        "epsilon_sd": terms.epsilon_sd if terms.epsilon is None else None,
        "t_sla_ms": terms.t_sla_ms,
        "window": survey.width,
        "slide": survey.width,
        "workers": workers,
        "horizons": HORIZONS,
        "per_tuple_ms": recovery_time and recovery_time.per_tuple_ms,
    }


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
        "excess_over_theorem": walk.excess,
    }


def describe_sensors(
    survey: Survey, walk: Walk, workers: Sequence[Sequence[int]]
) -> list[dict[str, Any]]:
    """One row per sensor; lists have an entry per horizon, 1 … H windows."""
    worker_of = {i: worker for worker, keys in enumerate(workers) for i in keys}
    left = residual_variance(survey.model, workers) / np.diag(survey.model.covariance)
    windows = len(survey.values) // 2
    if windows > 2 * len(survey.names):  # else shrinkage takes out what a fit to few rows promises
        own = np.array([len(workers[worker_of[i]]) for i in range(len(left))])
        left *= (windows - 1) / (windows - 1 - (len(left) - own))
    explained = 1 - left
    certified, within = shares(walk.counts[GUARD].sum(axis=0))
    return [
        {
            "name": name,
            "worker": worker_of[i],
            "epsilon": float(survey.limits[i]),
            "explained": float(max(0.0, explained[i])),
            "declared": certified[:, i].tolist(),
            "within": or_none(within[:, i]),
            "longest": int(np.cumprod(certified[:, i] >= 0.5).sum()),
            "now": walk.recoverable[:, i].tolist(),
            "N": walk.outcomes[:, i, 0].tolist(),
            "least_epsilon": or_none(walk.least_epsilon[i]),
        }
        for i, name in enumerate(survey.names)
    ]


def describe_machines(
    walk: Walk, workers: Sequence[Sequence[int]], machines: Sequence[str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """What is certified one window ahead if a machine fails, and which sensors are the problem."""
    rows = []
    for machine, keys in zip(machines, workers, strict=True):
        sensors = [names[i] for i in keys]
        certified = pd.Series(walk.certified_shares[0, list(keys)], sensors)
        problems = certified[certified < 0.5].sort_values().to_dict()
        declared = float(certified.mean())
        rows.append(
            {"name": machine, "sensors": sensors, "declared": declared, "problems": problems}
        )
    return rows


def describe_segments(survey: Survey, walk: Walk) -> list[dict[str, Any]]:
    """Share certified, and share of these within ε, in each segment of time."""
    certified, within = shares(walk.weighted_counts(GUARD).sum(axis=1))
    rows = zip(walk.edges[:-1], certified.tolist(), or_none(within), strict=True)
    return [{"start": survey.at(begin), "declared": c, "within": w} for begin, c, w in rows]


def show_outage(survey: Survey, walk: Walk, workers: Sequence[Sequence[int]]) -> dict[str, Any]:
    """One outage of a machine in the middle of the second half, by a guard that does not see it.

    The machine is the one whose certified share is nearest to that of all; H windows are lost.
    """
    values, certified = survey.values, walk.certified_shares[0]
    typical = [abs(certified[list(keys)].mean() - certified.mean()) for keys in workers]
    machine = int(np.argmin(typical))
    keys, begin = list(workers[machine]), len(values) * 3 // 4
    end = min(begin + HORIZONS, len(values))
    guard = Guard(workers, survey.limits, survey.question.delta, HORIZONS, survey.seasons)
    guard.update(values[max(0, begin - REMEMBERED) : begin])
    lost = values[begin:end].copy()
    lost[:, keys] = np.nan
    recovered = guard.update(lost)
    drawn = range(max(0, begin - AROUND), min(end + AROUND, len(values)))
    rows = [
        {
            "name": survey.names[i],
            "truth": or_none(values[list(drawn), i]),
            "estimate": or_none(recovered.estimate[:, i]),
            "half_width": or_none(recovered.half_width[:, i]),
            "certified": recovered.declared[:, i].tolist(),
        }
        for i in keys[:DRAWN]
    ]
    times = [survey.at(t) for t in drawn]
    lost_times = [survey.at(t) for t in range(begin, end)]
    return {"machine": machine, "times": times, "lost": lost_times, "sensors": rows}
