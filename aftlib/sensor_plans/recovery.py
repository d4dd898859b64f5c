"""Checkpoints and replay sets for a failure of all machines (D2), tested on the second half."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aftlib.checkpoint_planning.plan import plan_checkpoints
from aftlib.core.gaussian import GaussianModel
from aftlib.sensor_plans.window_results import Survey


def plan_recovery(survey: Survey) -> dict[str, Any]:
    """Checkpoints and replay sets of a window, for a failure of all machines (D2).

    The sets are tested on the second half. A set that fails is not offered: then every sensor is
    read again, and `read_everything` says why.

    The planner assumes independent steps. The covariance of a step is w times the covariance of
    window means, not that of single samples. So the variance of a whole window is correct even if
    samples are correlated in time.
    """
    model, width, question = survey.model, survey.width, survey.question
    recovery_time, delta = question.recovery_time(survey.samples_per_s), question.delta
    scale = width if question.query == "mean" else 1 / width
    step = GaussianModel(model.mean * scale, model.covariance * scale, model.names)
    times: tuple[int, ...] = (0, width)
    sets: list[Sequence[int]] = [range(model.size)]
    reason, scores = "", None
    if recovery_time is None:
        reason = "No recovery ends: the stream takes the whole read rate."
    else:
        problem = step, width, survey.unit, recovery_time, question.t_sla_ms
        try:
            chosen = plan_checkpoints(*problem, query=question.query)
            scores = score_replay(model, chosen.replay[0].sensors, survey.second)
            if scores and scores["all"] < 1 - delta:
                chosen = plan_checkpoints(*problem, method="exactly-once", query=question.query)
                reason = (
                    f"Replay: read everything again. With the planned sets {scores['all']:.1%} of "
                    f"the estimates were within ε in the back-test (guaranteed: {1 - delta:.0%}), "
                    f"of the worst sensor {scores['worst']:.1%}."
                )
            times, sets = chosen.times, [part.sensors for part in chosen.replay]
        except ValueError:  # T_SLA is too short for one step
            seconds = recovery_time(model.size) / 1e3
            reason = (
                f"No checkpoints keep T_SLA = {question.t_sla}: reading one step of all sensors "
                f"again takes {seconds:.3g} s."
            )
    rows = []
    for (begin, end), sensors in zip(pairwise(times), sets, strict=True):
        tuples = len(sensors) * (end - begin)
        ms = None if recovery_time is None else recovery_time(tuples)
        names = [model.names[i] for i in sensors]
        rows.append({"from": begin, "until": end, "sensors": names, "tuples": tuples, "ms": ms})
    within = None if reason or scores is None else scores["all"]
    return {
        "checkpoints": list(times[1:-1]),
        "replay": rows,
        "replay_within": within,
        "read_everything": reason,
    }


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
