"""The parts of a plan that people read: sensors, machines, segments of time, one outage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aftlib.guard import Guard
from aftlib.sensor_plans.backtest import GUARD, Walk, left_variance, or_none, shares
from aftlib.sensor_plans.question import HORIZONS
from aftlib.sensor_plans.window_results import Survey

REMEMBERED = 700
"""Windows that the guard is fed before the outage that is drawn."""
AROUND = 15
"""Windows that are drawn before and after the outage."""
DRAWN = 4
"""Most sensors of the outage that are drawn."""


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
    survey: Survey, walk: Walk, workers: Sequence[Sequence[int]]
) -> list[dict[str, Any]]:
    """One row per sensor; lists have an entry per horizon, 1 … H windows."""
    worker_of = {i: worker for worker, keys in enumerate(workers) for i in keys}
    explained = 1 - left_variance(survey.model, workers) / np.diag(survey.model.covariance)
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


def describe_segments(survey: Survey, walk: Walk) -> list[dict[str, Any]]:
    """Share certified, and share of these within ε, in each segment of time."""
    certified, within = shares(walk.of(GUARD).sum(axis=1))
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
