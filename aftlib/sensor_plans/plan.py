"""From sensors and a question to the plan: assignment, recovery, back-test and cautions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from aftlib.core.planfile import VERSION
from aftlib.documents.approximately_once.assignment import residual_variance
from aftlib.documents.approximately_once.best import assign_best
from aftlib.guard import Guard
from aftlib.sensor_plans.backtest import HORIZONS, OnSegment, Walk, compare, or_none, shares
from aftlib.sensor_plans.cautions import data_cautions, fails, guarantee_cautions
from aftlib.sensor_plans.question import Question, group_sensors
from aftlib.sensor_plans.recovery import plan_recovery, weigh_costs
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
    count = terms.workers or len(names)
    given = assign_sensors(survey, count) if assignment is None else assignment
    machines, workers = group_sensors(given, names)
    walk, sizes = survey.walk(workers, on_segment), [len(keys) for keys in workers]
    recovery = plan_recovery(survey)
    summary = walk.totals(names)
    certified = 0.0 if fails(walk) else summary["declared_recoverable"]
    return {
        "version": VERSION,
        "data": {
            "name": name,
            "read": table.summary_lines,
            "steps": len(table.values),
            "step_seconds": survey.step_s,
            "seasons_in_windows": survey.seasons,
        },
        "question": describe_question(survey, len(sizes)),
        "assignment": [[names[i] for i in keys] for keys in workers],
        "machines": describe_machines(walk, workers, machines, names),
        "regrouping": None if assignment is None else regroup(survey, len(sizes)),
        **recovery,
        "backtest": summary,
        "compared": compare(walk, survey.baseline, workers),
        "sensors": describe_sensors(survey, walk, workers),
        "segments": describe_segments(survey, walk),
        "outage": show_outage(survey, walk, workers),
        **weigh_costs(terms, sizes, survey.width, survey.step_s, certified),
        "cautions": [
            *filter(None, [recovery["read_everything"]]),
            *guarantee_cautions(survey, walk),
            *data_cautions(table, survey.values, survey.width),
        ],
    }


def assign_sensors(survey: Survey, workers: int) -> list[list[str]]:
    """Assign sensors to workers so that others predict them; sizes differ by at most one."""
    best = assign_best(survey.model, workers, survey.unit, uneven=True)
    return [[survey.names[i] for i in keys] for keys in sorted(map(sorted, best.workers))]


def regroup(survey: Survey, workers: int) -> dict[str, Any]:
    """The best assignment that was found to as many machines as given, and its back-test."""
    groups = assign_sensors(survey, workers)
    walk = survey.walk(group_sensors(groups, survey.names)[1], lambda done, of: None)
    return {"assignment": groups, "declared_recoverable": walk.summary()["declared"]}


def describe_question(survey: Survey, workers: int) -> dict[str, Any]:
    """The question, with values for what the user left open."""
    terms = survey.question
    return terms.model_dump() | {
        "epsilon": dict(zip(survey.names, survey.limits.tolist(), strict=True)),
        "epsilon_sd": terms.epsilon_sd if terms.epsilon is None else None,
        "window": survey.width,
        "slide": survey.width,
        "workers": workers,
        "horizons": HORIZONS,
        "per_tuple_ms": survey.recovery_time.per_tuple_ms,
    }


def describe_sensors(
    survey: Survey, walk: Walk, workers: Sequence[list[int]]
) -> list[dict[str, Any]]:
    """One row per sensor; lists have an entry per horizon, 1 … H windows."""
    worker_of = {i: worker for worker, keys in enumerate(workers) for i in keys}
    left = residual_variance(survey.model, workers) / np.diag(survey.model.covariance)
    windows = len(survey.values) // 2
    if windows > 2 * len(survey.names):  # else shrinkage takes out what a fit to few rows promises
        own = np.array([len(workers[worker_of[i]]) for i in range(len(left))])
        left *= (windows - 1) / (windows - 1 - (len(left) - own))
    explained = 1 - left
    certified, within = walk.shares
    return [
        {
            "name": name,
            "worker": worker_of[i],
            "epsilon": float(survey.limits[i]),
            "explained": float(max(0.0, explained[i])),
            "declared": certified[:, i].tolist(),
            "within": or_none(within[:, i]),
            "longest": int(np.cumprod(certified[:, i] >= 0.5).sum()),
            "N": walk.outcomes[:, i, 0].tolist(),
            "least_epsilon": or_none(walk.least_epsilon[i]),
        }
        for i, name in enumerate(survey.names)
    ]


def describe_machines(
    walk: Walk, workers: Sequence[list[int]], machines: Sequence[str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """What is certified one window ahead if a machine fails, and which sensors are the problem."""
    rows = []
    for machine, keys in zip(machines, workers, strict=True):
        certified = pd.Series(walk.shares[0][0, keys], [names[i] for i in keys])
        rows.append(
            {
                "name": machine,
                "sensors": certified.index.tolist(),
                "declared": float(certified.mean()),
                "problems": certified[certified < 0.5].sort_values().to_dict(),
            }
        )
    return rows


def describe_segments(survey: Survey, walk: Walk) -> list[dict[str, Any]]:
    """Share certified, and share of these within ε, in each segment of time."""
    certified, within = shares(walk.weighted_counts().sum(axis=1))
    rows = zip(walk.edges[:-1], certified.tolist(), or_none(within), strict=True)
    return [{"start": survey.at(begin), "declared": c, "within": w} for begin, c, w in rows]


def show_outage(survey: Survey, walk: Walk, workers: Sequence[list[int]]) -> dict[str, Any]:
    """One outage of a machine in the middle of the second half, by a guard that does not see it.

    The machine is the one whose certified share is nearest to that of all; H windows are lost.
    """
    values, certified = survey.values, walk.shares[0][0]
    typical = [abs(certified[keys].mean() - certified.mean()) for keys in workers]
    machine, begin = int(np.argmin(typical)), len(values) * 3 // 4
    keys, end = workers[machine], min(begin + HORIZONS, len(values))
    guard = Guard(workers, survey.limits, survey.question.delta, HORIZONS, survey.seasons)
    guard.update(values[max(0, begin - REMEMBERED) : begin])
    lost = values[begin:end].copy()
    lost[:, keys] = np.nan
    recovered = guard.update(lost)
    drawn = range(max(0, begin - AROUND), min(end + AROUND, len(values)))
    rows = [
        {
            "name": survey.names[i],
            "truth": or_none(values[drawn, i]),
            "estimate": or_none(recovered.estimate[:, i]),
            "half_width": or_none(recovered.half_width[:, i]),
            "certified": recovered.certified[:, i].tolist(),
        }
        for i in keys[:DRAWN]
    ]
    return {
        "machine": machine,
        "times": [survey.at(t) for t in drawn],
        "lost": [survey.at(t) for t in range(begin, end)],
        "sensors": rows,
    }
