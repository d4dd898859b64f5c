"""Checkpoints and replay sets for a failure of all machines (D2), tested on the second half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aftlib.checkpoint_planning.plan import CheckpointPlan, plan_checkpoints
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.sensor_plans.question import Question


def plan_recovery(
    model: GaussianModel,
    scaled: np.ndarray,
    width: int,
    question: Question,
    samples_per_s: float,
) -> dict[str, Any]:
    """Checkpoints and replay sets of a window, for a failure of all machines (D2).

    `scaled` are window results in units of ε, (N, n), with which the replay sets are tested. A set
    that fails its test is not offered: then every sensor is read again, and `read_everything` says
    why.

    The planner assumes independent steps. The covariance of a step is w times the covariance of
    window means, not that of single samples. So the variance of a whole window is correct even if
    samples are correlated in time.
    """
    n, recovery_time = model.size, question.recovery_time(samples_per_s)
    limit = f"T_SLA = {question.t_sla}"
    everything = {
        "checkpoints": [],
        "replay": [_describe_replay(0, width, model.names, recovery_time)],
        "replay_within": None,
    }
    if recovery_time is None:
        return everything | {"read_everything": "No recovery ends: the stream takes the read rate."}
    scale = width if question.query == "mean" else 1 / width
    step = GaussianModel(model.mean * scale, model.covariance * scale, model.names)

    def checkpoints(method: str) -> CheckpointPlan:
        return plan_checkpoints(
            step,
            width,
            Requirement(1.0, question.delta),
            recovery_time,
            question.t_sla_ms,
            method=method,
            query=question.query,
        )

    try:
        proposed = checkpoints("proposed")
        within = score_replay(model, proposed.replay[0].sensors, scaled)
        reason = ""
        if within is not None and within["all"] < 1 - question.delta:
            reason = (
                f"Replay: read everything again. With the planned sets {within['all']:.1%} of the "
                f"estimates were within ε in the back-test (guaranteed: {1 - question.delta:.0%}), "
                f"of the worst sensor {within['worst']:.1%}."
            )
            proposed = checkpoints("exactly-once")
    except ValueError:  # T_SLA is too short for one step
        least = recovery_time(n)
        reason = f"No checkpoints keep {limit}: reading one step again takes {least / 1e3:.3g} s."
        return everything | {"read_everything": reason}
    times = proposed.times
    replay = [
        _describe_replay(begin, end, [model.names[i] for i in part.sensors], recovery_time)
        for begin, end, part in zip(times, times[1:], proposed.replay, strict=False)
    ]
    return {
        "checkpoints": list(proposed.checkpoints),
        "replay": replay,
        "replay_within": None if reason or within is None else within["all"],
        "read_everything": reason,
    }


def _describe_replay(begin: int, end: int, sensors: Sequence[str], recovery_time: Any) -> dict:
    tuples = len(sensors) * (end - begin)
    ms = None if recovery_time is None else recovery_time(tuples)
    return {"from": begin, "until": end, "sensors": [*sensors], "tuples": tuples, "ms": ms}


def score_replay(
    model: GaussianModel, read: Sequence[int], scaled: np.ndarray
) -> dict[str, float] | None:
    """Share of the estimates within ε where only the sensors `read` are read again.

    Of all and of the worst sensor; None where nothing is estimated.
    """
    others = np.setdiff1d(np.arange(model.size), read)
    off = scaled[:, list(read)] - model.mean[list(read)]
    gain = model.gain(list(read), others)
    errors = np.abs(scaled[:, others] - model.mean[others] - off @ gain.T)
    known = np.isfinite(errors)
    if not known.any():
        return None
    within = (errors <= 1) & known
    by_sensor = within.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    worst = by_sensor[known.any(axis=0)].min()
    return {"all": float(within.sum() / known.sum()), "worst": float(worst)}
