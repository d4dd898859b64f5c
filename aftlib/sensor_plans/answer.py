"""From samples and a question to the plan: who computes what, what is read again, what held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from aftlib.approximately_once.assignment import Assignment, assess, assign_greedy, assign_spread
from aftlib.checkpoint_planning.plan import CheckpointPlan, plan_checkpoints
from aftlib.core.datasets import SensorTable
from aftlib.core.gaussian import GaussianModel
from aftlib.core.planfile import VERSION
from aftlib.core.requirement import Requirement
from aftlib.core.sensorplan import fitted
from aftlib.core.windows import Windows
from aftlib.sensor_plans.backtest import (
    DECLARED,
    GUARD,
    METHODS,
    OnStretch,
    Walk,
    compared,
    left_variance,
    or_none,
    shares,
    walk_forward,
    worst,
)
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.report_text import cautions
from aftlib.sensor_plans.survey import Inventory, Survey, WindowResults

MOST_SHOWN = 80
"""Sensors up to which the plan has their correlations."""
LEAST_PROMISED = 100
"""Promises from which a stretch may be the worst one."""


def answer(
    table: SensorTable,
    question: Question,
    name: str,
    on_stretch: OnStretch = lambda done, of: None,
) -> dict:
    """Plan for a table in memory, as `answer_survey`; ValueError for too few windows."""
    survey = Survey.of(table, Inventory.of(table), question)
    return answer_survey(survey, question, name, on_stretch)


# The guard's products are small: several threads wait for each other longer than they compute.
@threadpool_limits.wrap(limits=1, user_api="blas")
def answer_survey(
    survey: Survey,
    question: Question,
    name: str,
    on_stretch: OnStretch = lambda done, of: None,
    source: dict | None = None,
) -> dict:
    """Plan for sensors by their window results, and back-test its promise.

    The plan is as `planfile.SCHEMA` describes it. `name` is what the data are called, `source`
    which file they are, from `sensorplan.source_of`: without, no pipeline can run from the plan.
    `on_stretch` is called with the windows walked through and those in all. ValueError when no plan
    can keep what is asked.
    """
    inventory, results = survey.inventory, survey.results
    names, windows, n = inventory.names, results.windows, len(inventory.names)
    first = results.values[: results.half]
    limits = question.limits(names, np.nanstd(first, axis=0))

    # in units of ε one requirement does for all sensors
    model, unit = fitted(first / limits, names), Requirement(1.0, question.delta)
    assignment = assign_sensors(model, question.workers or n, unit)
    checkpoints = plan_window(model, windows, unit, question)

    plain = fitted(survey.recent, names).aggregate(windows.width, question.query)
    walk = walk_forward(
        results.values,
        assignment.workers,
        limits,
        question.delta,
        plain,
        horizons=question.horizons,
        seasons=results.seasons,
        on_stretch=on_stretch,
    )
    return {
        "version": VERSION,
        "data": describe_data(inventory, results, name) | {"source": source},
        "question": describe_question(question, windows, names, limits),
        "assignment": [[names[i] for i in keys] for keys in assignment.workers],
        **replay_intervals(checkpoints, names, question),
        "backtest": summarize_backtest(walk, names, results)
        | measure_replay(model, checkpoints, results.values[results.half :] / limits),
        "compared": compared(walk, plain, assignment.workers),
        "sensors": describe_sensors(walk, model, assignment, names, limits),
        "correlation": np.round(correlations(model), 4).tolist() if n <= MOST_SHOWN else None,
        "stretches": stretches(walk, inventory, windows),
        "cautions": cautions(inventory, results, limits, walk),
    }


def assign_sensors(model: GaussianModel, workers: int, requirement: Requirement) -> Assignment:
    """Sensors dealt to workers so that on average each is told best by those of the others.

    Where m does not divide n, groups of correlated sensors are dealt out in turn, and some workers
    have one sensor more.
    """
    n = model.size
    more = -n % workers
    if not more:
        tried = [assign(model, workers, requirement) for assign in (assign_greedy, assign_spread)]
    else:  # with sensors that tell nothing and are told by nobody, which are taken out again
        covariance = np.eye(n + more) * 1e-6
        covariance[:n, :n] = model.covariance
        padded = GaussianModel(np.zeros(n + more), covariance)
        dealt = assign_spread(padded, workers, requirement).workers
        tried = [assess(model, [[i for i in keys if i < n] for keys in dealt], requirement)]

    def mean_reliability(assignment: Assignment) -> float:
        variances = [model.block_variance(keys) for keys in assignment.workers]
        return float(requirement.reliability(np.concatenate(variances)).mean())

    return max(tried, key=mean_reliability)


def plan_window(
    model: GaussianModel, windows: Windows, requirement: Requirement, question: Question
) -> CheckpointPlan:
    """Checkpoints and replay sets of one window.

    The planner takes steps as independent. It is given w times the covariance that window means
    have, not that of single samples: so the whole window's variance is what it really is, however
    the samples hang together in time.
    """
    w = windows.width
    scale = w if windows.query == "mean" else 1 / w
    step = GaussianModel(model.mean * scale, model.covariance * scale, model.names)
    return plan_checkpoints(
        step, w, requirement, question.recovery_time, question.t_sla_ms, query=windows.query
    )


def describe_data(inventory: Inventory, results: WindowResults, name: str) -> dict:
    """What was read."""
    timed, step = isinstance(inventory.first, pd.Timestamp), inventory.step
    return {
        "name": name,
        "taken": inventory.summary_lines,
        "steps": inventory.steps,
        "step_seconds": None if step is None else step.total_seconds(),
        "first": str(inventory.first) if timed else None,
        "last": str(inventory.last) if timed else None,
        "quality": inventory.quality.as_dict(),
        "windows": len(results.values),
        "seasons_in_windows": list(results.seasons),
    }


def describe_question(
    question: Question, windows: Windows, names: Sequence[str], limits: np.ndarray
) -> dict:
    """The question, with everything that was left open filled in."""
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


def replay_intervals(plan: CheckpointPlan, names: Sequence[str], question: Question) -> dict:
    """Checkpoint times of a window, and what a failure between two of them reads again."""
    replay = []
    for begin, end, part, tuples in zip(
        plan.times, plan.times[1:], plan.replay, plan.tuples, strict=False
    ):
        sensors = [names[i] for i in part.sensors]
        recovery = question.recovery_time(tuples)
        replay.append(
            {"from": begin, "until": end, "sensors": sensors, "tuples": tuples, "ms": recovery}
        )
    return {"checkpoints": list(plan.checkpoints), "replay": replay}


def summarize_backtest(walk: Walk, names: Sequence[str], results: WindowResults) -> dict:
    """The back-test in a few numbers."""
    summary, stretch = walk.summary(GUARD), walk.of(GUARD).sum(axis=1)
    _, within = shares(stretch)
    at = worst(within, stretch[:, DECLARED] >= LEAST_PROMISED)
    promised = int(walk.books[0, :, 0].sum())
    allowance = walk.pooled_allowance
    return {
        "declared_recoverable": summary["declared"],
        "within_epsilon": summary["within"],
        "interval": summary["interval"],
        "worst_sensor": summary["worst_within"],
        "worst_sensor_name": None if summary["worst"] is None else names[summary["worst"]],
        "worst_stretch": None if at is None else {"stretch": at, "within": float(within[at])},
        "promises": summary["promises"],
        "windows": len(results.values) - int(walk.edges[0]),
        "N": promised,
        "slack_errors": allowance,
        "slack": allowance / promised if promised else None,
        "excess_over_theorem": walk.excess,
        "horizon_weights": walk.weights.tolist(),
    }


def measure_replay(model: GaussianModel, plan: CheckpointPlan, scaled: np.ndarray) -> dict:
    """Share of windows of the second half that reading the first replay set again would estimate.

    As if a whole window had been lost and only its replay set were read; `scaled` are window
    results in units of ε, shape (N, n). The worst sensor's share is what the planner promises to
    be at least 1 − δ.
    """
    read = list(plan.replay[0].sensors)
    others = np.setdiff1d(np.arange(model.size), read)
    seen = scaled[np.isfinite(scaled[:, read]).all(axis=1)]
    expected = model.mean[others] + (seen[:, read] - model.mean[read]) @ model.gain(read, others).T
    off = np.abs(seen[:, others] - expected)
    known = np.isfinite(off)
    if not known.any():
        return {"replay_within": None, "replay_worst_sensor": None}
    kept = (off <= 1) & known
    lowest = (kept.sum(axis=0) / np.maximum(known.sum(axis=0), 1))[known.any(axis=0)].min()
    return {
        "replay_within": float(kept.sum() / known.sum()),
        "replay_worst_sensor": float(lowest),
    }


def describe_sensors(
    walk: Walk,
    model: GaussianModel,
    assignment: Assignment,
    names: Sequence[str],
    limits: np.ndarray,
) -> list[dict]:
    """What the others tell of each sensor, and for how long it may be lost."""
    n = len(names)
    correlation = correlations(model)
    elsewhere = assignment.worker_of[:, None] != assignment.worker_of[None, :]
    shown = np.where(elsewhere, np.abs(correlation), -1.0)
    left = left_variance(model, assignment.workers)
    share, within = shares(walk.tallies[METHODS.index(GUARD)].sum(axis=0))
    worth = walk.least_epsilon

    found = []
    for i in range(n):
        closest = int(shown[i].argmax())
        promises = walk.books[:, i, 0].tolist()
        found.append(
            {
                "name": names[i],
                "worker": int(assignment.worker_of[i]),
                "epsilon": float(limits[i]),
                "explained": float(1 - left[i] / model.covariance[i, i]),
                "closest": names[closest] if n > 1 and shown[i, closest] >= 0 else None,
                "correlation": float(correlation[i, closest]),
                "declared": share[:, i].tolist(),
                "within": [or_none(one) for one in within[:, i]],
                "longest": int(np.cumprod(share[:, i] >= 0.5).sum()),
                "now": walk.recoverable[:, i].tolist(),
                "N": promises,
                "slack": [
                    float(a / m) if m else None for a, m in zip(walk.allowed, promises, strict=True)
                ],
                "least_epsilon": or_none(worth[i]),
            }
        )
    return found


def correlations(model: GaussianModel) -> np.ndarray:
    """Of the window results, shape (n, n)."""
    deviation = np.sqrt(np.diag(model.covariance))
    return model.covariance / np.outer(deviation, deviation)


def stretches(walk: Walk, inventory: Inventory, windows: Windows) -> list[dict]:
    """Share promised, and share of those within ε, over time."""
    begins = (walk.edges[:-1] * windows.slide).tolist()
    parts = zip(begins, *shares(walk.of(GUARD).sum(axis=1)), strict=True)
    return [
        {"start": str(inventory.at(begin)), "declared": float(share), "within": or_none(within)}
        for begin, share, within in parts
    ]
