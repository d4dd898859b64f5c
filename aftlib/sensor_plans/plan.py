"""From sensors and a question to the plan: assignment, recovery, back-test and cautions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from aftlib.documents.approximately_once.assignment import residual_variance
from aftlib.documents.approximately_once.best import assign_best
from aftlib.guard.guard import Guard
from aftlib.sensor_plans.backtest import (
    HORIZONS,
    OnSegment,
    Walk,
    compare,
    no_progress,
    walk_forward,
)
from aftlib.sensor_plans.cautions import data_cautions, guarantee_cautions
from aftlib.sensor_plans.question import Question, group_sensors
from aftlib.sensor_plans.recovery import Failure, find_criteria, plan_recovery, weigh_costs
from aftlib.sensor_plans.sensor_file import SensorTable, read_sensors
from aftlib.sensor_plans.sensor_plan import (
    DrawnSensor,
    Machine,
    Outage,
    PlanData,
    PlanQuestion,
    Regrouping,
    Segment,
    SensorPlan,
    SensorRow,
    numbers_or_none,
    or_none,
)
from aftlib.sensor_plans.window_results import Survey

#: Windows that the guard is fed before the outage that is drawn; its memory is some 600.
REMEMBERED = 700
#: Windows that are drawn before and after the outage, so that its marks stay apart.
AROUND = 15
#: Most sensors of the outage that are drawn, so that the figure fits a screen.
DRAWN = 4


# The guard's products are small: several threads wait for each other longer than they compute.
@threadpool_limits.wrap(limits=1, user_api="blas")
def plan(
    sensors: pd.DataFrame | SensorTable,
    question: Question | None = None,
    *,
    assignment: Mapping[str, Any] | Sequence[Sequence[str]] | None = None,
    name: str = "sensors",
    on_segment: OnSegment = no_progress,
) -> SensorPlan:
    """Plan which sensors may be lost, and test whether the guarantee would have held.

    Parameters
    ----------
    sensors : DataFrame or SensorTable
        One row per time and one column per sensor, with the times as index or as a column; or what
        `read_sensors` returns.
    question : Question, optional
        Such as ``Question(epsilon_sd=0.5, window="6h")``; by default all its defaults.
    assignment : mapping of sensor to worker, or a list of the sensors of each worker, optional
        The grouping that exists, such as one worker per gateway. By default the plan makes one.
    name : str
        Name of the data.
    on_segment : callable
        Called with the number of processed windows and the total number.

    Returns
    -------
    SensorPlan
        Its `write` writes plan.json.

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
    >>> result.assignment, result.backtest.score.within > 0.95
    ((('kitchen', 'hall'), ('cellar',)), True)
    """
    table = sensors if isinstance(sensors, SensorTable) else read_sensors(sensors)
    survey = Survey.of(table, question or Question())
    names = survey.names
    groups = assignment
    if groups is None:
        groups = assign_sensors(survey, survey.question.workers or len(names))
    machine_names, workers = group_sensors(groups, names)
    walk = walk_forward(survey, workers, on_segment)
    recovery = plan_recovery(survey)
    backtest = walk.totals(names)
    failure = None
    if survey.step_s is not None:
        # estimates of a guard that missed its guarantee are worth nothing: exact recovery is taken
        certified = 0.0 if walk.missed_guarantee else backtest.score.certified
        sizes = [len(keys) for keys in workers]
        failure = Failure(survey.question, sizes, survey.width, survey.step_s, certified)
    made = SensorPlan(
        assignment=tuple(tuple(names[i] for i in keys) for keys in workers),
        question=describe_question(survey, len(workers)),
        learned=None,
        data=PlanData(
            name=name,
            read=tuple(table.summary_lines),
            steps=len(table.values),
            step_seconds=survey.step_s,
            seasons_in_windows=tuple(survey.seasons),
        ),
        machines=describe_machines(walk, workers, machine_names, names),
        regrouping=None if assignment is None else regroup(survey, len(workers)),
        checkpoints=recovery.checkpoints,
        replay=recovery.replay,
        replay_within=recovery.within,
        read_everything=recovery.read_everything,
        backtest=backtest,
        compared=compare(walk),
        sensors=describe_sensors(survey, walk, workers),
        segments=describe_segments(survey, walk),
        outage=show_outage(survey, walk, workers),
        criteria=None if failure is None else find_criteria(failure),
        worth=None if failure is None else weigh_costs(failure),
        cautions=(
            *filter(None, [recovery.read_everything]),
            *guarantee_cautions(survey, walk),
            *data_cautions(table, survey.values, survey.width),
        ),
    )
    return made if survey.step_s is None else replace(made, learned=learn(made, survey, walk))


def learn(made: SensorPlan, survey: Survey, walk: Walk) -> str:
    """Return what the guard of the back-test learned, as a stream begins with it."""
    terms = made.terms()
    first = pd.Timestamp(survey.table.at(0)).timestamp()  # times without a zone are UTC
    until = round(1e6 * first) + len(survey.values) * terms["window"]
    return walk.guard.learned(survey.names, terms | {"until": until}).to_text()


def assign_sensors(survey: Survey, workers: int) -> list[list[str]]:
    """Assign sensors to workers so that others predict them; sizes differ by at most one."""
    best = assign_best(survey.model, workers, survey.scaled_requirement, uneven=True)
    return [[survey.names[i] for i in keys] for keys in sorted(map(sorted, best.workers))]


def regroup(survey: Survey, workers: int) -> Regrouping:
    """Find the best assignment to as many machines as given, and back-test it."""
    groups = assign_sensors(survey, workers)
    walk = walk_forward(survey, group_sensors(groups, survey.names)[1])
    return Regrouping(tuple(map(tuple, groups)), walk.score().certified)


def describe_question(survey: Survey, workers: int) -> PlanQuestion:
    """Return the question, with values for what the user left open."""
    question = survey.question
    return PlanQuestion(
        epsilon=dict(zip(survey.names, survey.limits.tolist(), strict=True)),
        epsilon_sd=question.epsilon_sd if question.epsilon is None else None,
        delta=question.delta,
        window=survey.width,
        slide=survey.width,
        query=question.query,
        horizons=HORIZONS,
        t_sla=question.t_sla,
        workers=workers,
        fixed_ms=question.fixed_ms,
        per_tuple_ms=survey.recovery_time.per_tuple_ms,
        read_rate=question.read_rate,
        failures_per_month=question.failures_per_month,
    )


def describe_sensors(
    survey: Survey, walk: Walk, workers: Sequence[list[int]]
) -> tuple[SensorRow, ...]:
    """Return one row per sensor."""
    worker_of = {i: worker for worker, keys in enumerate(workers) for i in keys}
    left = residual_variance(survey.model, workers) / np.diag(survey.model.covariance)
    windows = len(survey.values) // 2
    if windows > 2 * len(survey.names):  # else shrinkage takes out what a fit to few rows promises
        alike = np.array([len(workers[worker_of[i]]) for i in range(len(left))])  # on its machine
        left *= (windows - 1) / (windows - 1 - (len(left) - alike))  # the adjusted R²
    certified, within = walk.shares
    return tuple(
        SensorRow(
            name=name,
            worker=worker_of[i],
            epsilon=float(survey.limits[i]),
            explained=float(max(0.0, 1 - left[i])),
            certified=tuple(certified[:, i].tolist()),
            within=numbers_or_none(within[:, i]),
            longest=int(np.cumprod(certified[:, i] >= 0.5).sum()),
            N=int(walk.guarantees[0, i]),
            least_epsilon=or_none(walk.least_epsilon[i]),
        )
        for i, name in enumerate(survey.names)
    )


def describe_machines(
    walk: Walk, workers: Sequence[list[int]], machines: Sequence[str], names: Sequence[str]
) -> tuple[Machine, ...]:
    """Return what is certified one window after a failure, and which sensors hardly are."""
    rows = []
    for machine, keys in zip(machines, workers, strict=True):
        certified = pd.Series(walk.certified_next[keys], [names[i] for i in keys])
        worst = certified[certified < 0.5].sort_values()
        problems = {str(sensor): float(share) for sensor, share in worst.items()}
        rows.append(Machine(machine, tuple(certified.index), float(certified.mean()), problems))
    return tuple(rows)


def describe_segments(survey: Survey, walk: Walk) -> tuple[Segment, ...]:
    """Return the share certified, and the share of these within ε, in each segment of time."""
    certified, within = walk.weighted_counts().sum(1).shares
    rows = zip(walk.edges[:-1], certified.tolist(), numbers_or_none(within), strict=True)
    return tuple(Segment(survey.at(begin), share, right) for begin, share, right in rows)


def show_outage(survey: Survey, walk: Walk, workers: Sequence[list[int]]) -> Outage:
    """Show one outage of a machine in the middle of the second half to a new guard.

    The machine is the one whose certified share is nearest to that of all; H windows are lost.
    """
    values = survey.values
    certified = walk.certified_next
    typical = [abs(certified[keys].mean() - certified.mean()) for keys in workers]
    machine = int(np.argmin(typical))
    keys = workers[machine]
    begin = len(values) * 3 // 4
    end = min(begin + HORIZONS, len(values))
    guard = Guard(workers, survey.limits, survey.question.delta, HORIZONS, survey.seasons)
    guard.update(values[max(0, begin - REMEMBERED) : begin])
    lost = values[begin:end].copy()
    lost[:, keys] = np.nan
    recovered = guard.update(lost)
    drawn = range(max(0, begin - AROUND), min(end + AROUND, len(values)))
    return Outage(
        machine=machine,
        times=tuple(map(survey.at, drawn)),
        lost=tuple(map(survey.at, range(begin, end))),
        sensors=tuple(
            DrawnSensor(
                name=survey.names[i],
                truth=numbers_or_none(values[drawn, i]),
                estimate=numbers_or_none(recovered.estimate[:, i]),
                half_width=numbers_or_none(recovered.half_width[:, i]),
                certified=tuple(recovered.certified[:, i].tolist()),
            )
            for i in keys[:DRAWN]
        ),
    )
