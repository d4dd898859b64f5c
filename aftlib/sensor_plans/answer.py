"""From samples and a question to the plan: assignment, replay sets, back-test and cautions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, pairwise
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from aftlib.approximately_once.assignment import Assignment, assign_greedy, assign_spread
from aftlib.checkpoint_planning.plan import CheckpointPlan, plan_checkpoints
from aftlib.core.fillvalues import shown
from aftlib.core.gaussian import GaussianModel
from aftlib.core.planfile import VERSION, Source, fitted
from aftlib.core.requirement import Requirement
from aftlib.core.sensortable import SensorTable
from aftlib.core.windows import Windows
from aftlib.sensor_plans.backtest import (
    CERTIFIED,
    GUARD,
    METHODS,
    OnSegment,
    Walk,
    compare,
    left_variance,
    or_none,
    shares,
    walk_forward,
    worst,
)
from aftlib.sensor_plans.sensor_file import Inventory
from aftlib.sensor_plans.survey import Question, Survey, survey_table

LEAST_GUARANTEES = 100
"""Fewest guarantees of a segment of time that may be reported as the worst."""
LEARNING = 250
"""Windows that the guard needs before it certifies anything."""
STILL = 30
"""Fewest consecutive steps with one value that count as stuck."""
QUIET = 0.1
"""Share of a sensor's samples that may be missing without a caution."""
NAMED = 6
"""Most sensors that a caution names."""


def answer(
    table: SensorTable, question: Question, name: str, on_segment: OnSegment = lambda done, of: None
) -> dict:
    """Make a plan for a table in memory as `answer_survey` does; ValueError for too few windows."""
    survey = survey_table(table, Inventory.of(table), question)
    return answer_survey(survey, question, name, on_segment)


# The guard's products are small: several threads wait for each other longer than they compute.
@threadpool_limits.wrap(limits=1, user_api="blas")
def answer_survey(
    survey: Survey,
    question: Question,
    name: str,
    on_segment: OnSegment = lambda done, of: None,
    source: Source | None = None,
) -> dict:
    """Make a plan from the sensors' window results, and back-test its guarantee.

    Returns the fields of `planfile.Plan`; `name` is the data's. Without a `source`, no pipeline can
    run from the plan. `on_segment` is called with the number of processed windows and the total
    number. ValueError when no plan can meet the requirement.
    """
    names, windows = survey.names, survey.windows
    first = survey.values[: survey.half]
    limits = question.limits(names, np.nanstd(first, axis=0))

    # in units of ε one requirement is enough for all sensors
    model, unit = fitted(first / limits, names), Requirement(1.0, question.delta)
    assignment = assign_sensors(model, question.workers or len(names), unit)
    checkpoints = plan_window(model, windows, unit, question)

    baseline = fitted(survey.recent, names).aggregate(windows.width, question.query)
    walk = walk_forward(
        survey.values,
        assignment.workers,
        limits,
        question.delta,
        baseline,
        horizons=question.horizons,
        seasons=survey.seasons,
        on_segment=on_segment,
    )
    return {
        "version": VERSION,
        "data": describe_data(survey, name) | {"source": source},
        "question": describe_question(question, windows, names, limits),
        "assignment": [[names[i] for i in keys] for keys in assignment.workers],
        "checkpoints": list(checkpoints.checkpoints),
        "replay": describe_replay(checkpoints, names, question),
        "backtest": summarize_backtest(walk, survey)
        | measure_replay(model, checkpoints, survey.values[survey.half :] / limits),
        "compared": compare(walk, baseline, assignment.workers),
        "sensors": describe_sensors(walk, model, assignment, names, limits),
        "stretches": describe_segments(walk, survey),
        "cautions": [*guarantee_cautions(survey, limits, walk), *data_cautions(survey)],
        "worth": None,
    }


def assign_sensors(model: GaussianModel, workers: int, requirement: Requirement) -> Assignment:
    """Assign sensors to workers so that, on average, other workers predict each sensor well.

    If m does not divide n, some workers have one sensor more.
    """
    methods = (assign_greedy, assign_spread)
    assignments = [assign(model, workers, requirement, uneven=True) for assign in methods]

    def mean_reliability(assignment: Assignment) -> float:
        variances = [model.block_variance(keys) for keys in assignment.workers]
        return float(requirement.reliability(np.concatenate(variances)).mean())

    return max(assignments, key=mean_reliability)


def plan_window(
    model: GaussianModel, windows: Windows, requirement: Requirement, question: Question
) -> CheckpointPlan:
    """Checkpoints and replay sets of one window.

    The planner assumes independent steps. The covariance of a step is w times the covariance of
    window means, not that of single samples. So the variance of a whole window is correct even if
    samples are correlated in time.
    """
    w = windows.width
    scale = w if windows.query == "mean" else 1 / w
    step = GaussianModel(model.mean * scale, model.covariance * scale, model.names)
    return plan_checkpoints(
        step, w, requirement, question.recovery_time, question.t_sla_ms, query=windows.query
    )


def describe_data(survey: Survey, name: str) -> dict:
    """Describe the input as it was read, for the part `data` of plan.json."""
    inventory = survey.inventory
    timed, step = isinstance(inventory.first, pd.Timestamp), inventory.step
    return {
        "name": name,
        "taken": inventory.summary_lines,
        "steps": inventory.steps,
        "step_seconds": None if step is None else step.total_seconds(),
        "first": str(inventory.first) if timed else None,
        "last": str(inventory.last) if timed else None,
        "quality": inventory.quality.as_dict(),
        "windows": len(survey.values),
        "seasons_in_windows": list(survey.seasons),
    }


def describe_question(
    question: Question, windows: Windows, names: Sequence[str], limits: np.ndarray
) -> dict:
    """The question, with values for all parameters that the user did not give."""
    return {
        "epsilon": dict(zip(names, limits.tolist(), strict=True)),
        "epsilon_sd": question.epsilon_sd,
        "delta": question.delta,
        "t_sla_ms": question.t_sla_ms,
        "window": windows.width,
        "slide": windows.slide,
        "query": windows.query,
        "workers": question.workers or len(names),
        "horizons": question.horizons,
        "fixed_ms": question.recovery_time.fixed_ms,
        "per_tuple_ms": question.recovery_time.per_tuple_ms,
    }


def describe_replay(plan: CheckpointPlan, names: Sequence[str], question: Question) -> list[dict]:
    """Sensors to read again after a failure between two checkpoints of a window."""
    return [
        {
            "from": begin,
            "until": end,
            "sensors": [names[i] for i in part.sensors],
            "tuples": tuples,
            "ms": question.recovery_time(tuples),
        }
        for (begin, end), part, tuples in zip(
            pairwise(plan.times), plan.replay, plan.tuples, strict=True
        )
    ]


def summarize_backtest(walk: Walk, survey: Survey) -> dict:
    """The back-test in a few numbers."""
    summary, segments = walk.summary(GUARD), walk.of(GUARD).sum(axis=1)
    _, within = shares(segments)
    at = worst(within, segments[:, CERTIFIED] >= LEAST_GUARANTEES)
    guarantees = walk.guarantees
    return {
        "declared_recoverable": summary["declared"],
        "within_epsilon": summary["within"],
        "interval": summary["interval"],
        "worst_sensor": summary["worst_within"],
        "worst_sensor_name": None if summary["worst"] is None else survey.names[summary["worst"]],
        "worst_stretch": None if at is None else {"stretch": at, "within": float(within[at])},
        "promises": summary["promises"],
        "windows": len(survey.values) - int(walk.edges[0]),
        "N": guarantees,
        "slack_errors": walk.pooled_allowance,
        "slack": walk.pooled_allowance / guarantees if guarantees else None,
        "excess_over_theorem": walk.excess,
    }


def measure_replay(model: GaussianModel, plan: CheckpointPlan, scaled: np.ndarray) -> dict:
    """Share of windows of the second half that the first replay set would estimate within ε.

    A whole window is lost, and only the replay set is read again. `scaled` are window results in
    units of ε, shape (N, n). The planner expects a share of at least 1 − δ for the worst sensor.
    """
    off = replay_errors(model, plan, scaled)
    known = np.isfinite(off)
    if not known.any():
        return {"replay_within": None, "replay_worst_sensor": None}
    within = (off <= 1) & known
    by_sensor = within.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return {
        "replay_within": float(within.sum() / known.sum()),
        "replay_worst_sensor": float(by_sensor[known.any(axis=0)].min()),
    }


def replay_errors(model: GaussianModel, plan: CheckpointPlan, scaled: np.ndarray) -> np.ndarray:
    """Errors of the sensors that the first replay set leaves out, shape (N, others).

    NaN where the result itself, or one that is read, is missing.
    """
    read = list(plan.replay[0].sensors)
    others = np.setdiff1d(np.arange(model.size), read)
    off = scaled[:, read] - model.mean[read]
    return np.abs(scaled[:, others] - model.mean[others] - off @ model.gain(read, others).T)


def describe_sensors(
    walk: Walk,
    model: GaussianModel,
    assignment: Assignment,
    names: Sequence[str],
    limits: np.ndarray,
) -> list[dict]:
    """One row per sensor: how other workers predict the sensor, and which outages are certified."""
    correlation = correlations(model)
    elsewhere = assignment.worker_of[:, None] != assignment.worker_of[None, :]
    strength = np.where(elsewhere, np.abs(correlation), -1.0)
    closest = strength.argmax(axis=1)
    explained = 1 - left_variance(model, assignment.workers) / np.diag(model.covariance)
    share, within = shares(walk.counts[METHODS.index(GUARD)].sum(axis=0))
    counts = walk.outcomes[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        slack = np.where(counts, walk.allowed[:, None] / counts, np.nan)
    columns = {
        "name": names,
        "worker": assignment.worker_of.tolist(),
        "epsilon": limits.tolist(),
        "explained": explained.tolist(),
        "closest": [names[j] if strength[i, j] >= 0 else None for i, j in enumerate(closest)],
        "correlation": correlation[np.arange(len(names)), closest].tolist(),
        "declared": share.T.tolist(),
        "within": or_none(within.T),
        "longest": np.cumprod(share >= 0.5, axis=0).sum(axis=0).tolist(),
        "now": walk.recoverable.T.tolist(),
        "N": counts.T.tolist(),
        "slack": or_none(slack.T),
        "least_epsilon": or_none(walk.least_epsilon),
    }
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def correlations(model: GaussianModel) -> np.ndarray:
    """Correlations of the window results, shape (n, n)."""
    deviation = np.sqrt(np.diag(model.covariance))
    return model.covariance / np.outer(deviation, deviation)


def describe_segments(walk: Walk, survey: Survey) -> list[dict]:
    """Share certified, and share of these within ε, in each segment of time."""
    begins = (walk.edges[:-1] * survey.windows.slide).tolist()
    share, within = shares(walk.of(GUARD).sum(axis=1))
    rows = zip(map(survey.inventory.at, begins), share.tolist(), or_none(within), strict=True)
    return [
        {"start": str(start), "declared": certified, "within": share_within}
        for start, certified, share_within in rows
    ]


def guarantee_cautions(survey: Survey, limits: np.ndarray, walk: Walk) -> Iterator[str]:
    """Yield warnings about fill values and about the value of the guarantee."""
    names = survey.names
    for value in survey.inventory.fill_values[:NAMED]:
        yield (
            f"Possible fill value: {shown(value.value)} ({value.count:,} times) in {value.sensor}, "
            f"whose other values lie from {value.low:g} to {value.high:g}. If it stands for "
            f"missing samples, give --missing {shown(value.value)}."
        )
    if survey.half < LEARNING:
        yield (
            f"Too few windows: {survey.half} before the back-test, and the guard needs about "
            f"{LEARNING} before it certifies anything. Give a longer record or smaller windows."
        )
    guarantees, permitted = walk.guarantees, walk.pooled_allowance
    if guarantees and permitted > walk.delta * guarantees:
        yield (
            f"Few guarantees: of N = {guarantees:,} the theorem permits {permitted:.0f} "
            f"errors beyond the share δ (slack/N = {permitted / guarantees:.3f}), more "
            "than δ itself. Rely on the back-test rather than on the bound."
        )
    share, _ = shares(walk.of(GUARD).sum(axis=0))
    never = np.flatnonzero(share < 0.05)
    if len(never) and walk.edges[0] >= LEARNING:
        worth = [f"{names[i]} {walk.least_epsilon[i]:.4g} (asked {limits[i]:.4g})" for i in never]
        most = np.fmax.reduce(walk.least_epsilon[never] / limits[never])
        yield (
            f"ε is too small for {len(never)} of {len(names)} sensors: they are hardly ever "
            f"certified. The smallest ε that would be worth it: {_listed(worth)}. All are at most "
            f"{np.ceil(100 * most) / 100:g} times the ε asked."
        )


def data_cautions(survey: Survey) -> Iterator[str]:
    """Yield warnings about drift, stuck sensors, silences and gaps."""
    names, tally, steps = survey.names, survey.inventory.tally, survey.inventory.steps
    first, second = survey.values[: survey.half], survey.values[survey.half :]
    spread = np.nanstd(first, axis=0)
    moved = (np.nanmean(second, axis=0) - np.nanmean(first, axis=0)) / spread
    wider = np.nanstd(second, axis=0) / spread
    for flags, text in (
        (np.abs(moved) > 1, "level moved by more than a standard deviation"),
        ((wider > 2) | (wider < 0.5), "spread more than doubled or halved"),
    ):
        if flags.any():
            yield f"Drift between the halves: {text} in {_listed(compress(names, flags))}."
    runs = tally.still.longest + 1
    stuck = runs >= max(STILL, 3 * survey.windows.width)
    if stuck.any():
        yield (
            f"Stuck for up to {int(runs.max()):,} steps on one value: "
            f"{_listed(compress(names, stuck))}. A sensor that stands still is easy to "
            "certify, which shows nothing about its other times."
        )
    silent = tally.silent
    quiet = tally.missing - silent > QUIET * (steps - silent)
    if quiet.any():
        yield (
            f"Long silences: {_listed(compress(names, quiet))} misses more than a tenth of its "
            "samples."
        )
    if silent:
        yield (
            f"Clock gaps: {silent:,} of {steps:,} steps have no sample of any sensor, the longest "
            f"gap {int(tally.silence.longest[0]):,} steps. Windows with too few samples are left "
            "out."
        )


def _listed(texts: Any) -> str:
    chosen = list(texts)
    more = f" and {len(chosen) - NAMED} more" if len(chosen) > NAMED else ""
    return ", ".join(chosen[:NAMED]) + more
