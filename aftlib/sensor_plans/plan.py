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
from aftlib.sensor_plans.backtest import OnSegment, compare
from aftlib.sensor_plans.cautions import data_cautions, guarantee_cautions
from aftlib.sensor_plans.description import (
    describe_data,
    describe_machines,
    describe_segments,
    describe_sensors,
    name_groups,
    show_outage,
    summarize,
)
from aftlib.sensor_plans.planfile import VERSION
from aftlib.sensor_plans.question import Question, answered, group_sensors
from aftlib.sensor_plans.recovery import plan_recovery
from aftlib.sensor_plans.sensor_file import SensorTable, read_sensors
from aftlib.sensor_plans.window_results import Survey
from aftlib.sensor_plans.worth import pays_below, worth


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
    table = sensors if isinstance(sensors, SensorTable) else read_sensors(sensors)
    survey = Survey.of(table, Question(**question))
    names, asked = survey.names, survey.question
    if assignment is None:
        workers = assign_sensors(survey.model, asked.workers or len(names), survey.unit)
        machines = [str(i) for i in range(len(workers))]
    else:
        machines, workers = group_sensors(assignment, names)
    walk = survey.walk(workers, on_segment)
    sizes = [len(keys) for keys in workers]
    recovery = plan_recovery(survey)
    limits = dict(zip(names, survey.limits.tolist(), strict=True))
    summary = summarize(walk, names)
    return {
        "version": VERSION,
        "data": describe_data(survey, name),
        "question": answered(asked, survey.width, limits, len(sizes), survey.samples_per_s),
        "assignment": name_groups(workers, names),
        "machines": describe_machines(walk, workers, machines, names),
        "regrouping": None if assignment is None else regroup(survey, len(sizes)),
        **recovery,
        "backtest": summary,
        "compared": compare(walk, survey.baseline, workers),
        "sensors": describe_sensors(survey, walk, workers),
        "segments": describe_segments(survey, walk),
        "outage": show_outage(survey, walk, workers),
        **weigh_costs(survey, sizes, summary["declared_recoverable"]),
        "cautions": [
            *filter(None, [recovery["read_everything"]]),
            *guarantee_cautions(names, survey.limits, walk),
            *data_cautions(table, survey.values, survey.width),
        ],
    }


def weigh_costs(survey: Survey, sizes: Sequence[int], certified: float) -> dict[str, Any]:
    """Below which read rate estimating pays (None: at any), and the comparison at the user's."""
    asked, step_s = survey.question, survey.step_s
    if step_s is None:
        if asked.read_rate is not None:
            raise ValueError(
                f"read_rate must be given with data that have times, got {asked.read_rate}: add a "
                "column of times"
            )
        return {"pays_below": None, "worth": None}
    below = pays_below(asked, sizes, survey.width, step_s, certified)
    rates = None
    if asked.read_rate is not None:
        rates = worth(asked, sizes, survey.width, step_s, certified)
    return {"pays_below": below if np.isfinite(below) else None, "worth": rates}


def regroup(survey: Survey, workers: int) -> dict[str, Any] | None:
    """The best assignment that was found to as many machines as given, and its back-test."""
    if not 1 < workers < len(survey.names):
        return None
    groups = assign_sensors(survey.model, workers, survey.unit)
    test = summarize(survey.walk(groups, lambda done, of: None), survey.names)
    shown = {name: test[name] for name in ("declared_recoverable", "within_epsilon")}
    return {"assignment": name_groups(groups, survey.names), **shown}


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
