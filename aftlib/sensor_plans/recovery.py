"""Recovery of a user's sensors: checkpoints and replay sets (D2), and whether estimating pays.

`plan_recovery` is for a failure of all machines. `weigh_costs` is for a failure of one, whose input
is read again at a limited rate: exact recovery reads all samples of the machine's open windows; the
guard reads the sensors that it did not certify, and estimates the rest. Both have the plan's one
recovery time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aftlib.checkpoint_planning.plan import plan_checkpoints, squared_divisor
from aftlib.core.gaussian import GaussianModel
from aftlib.sensor_plans.backtest import percent
from aftlib.sensor_plans.question import DOCUMENT_RECOVERY_TIME, Question
from aftlib.sensor_plans.window_results import Survey

EXACT, GUARD = "exact recovery", "guard"
LEAST_SAVING = 0.05
"""Least share of the longest recovery that the guard must save to be recommended.

Ours: for less, an operator does not accept estimates.
"""


def plan_recovery(survey: Survey) -> dict[str, Any]:
    """Checkpoints and replay sets of a window, for a failure of all machines (D2).

    The sets are tested on the second half. A set that fails is not offered: then every sensor is
    read again, and `read_everything` says why.

    The planner assumes independent steps. The covariance of a step is w times the covariance of
    window means, not that of single samples. So the variance of a whole window is correct even if
    samples are correlated in time.
    """
    model, width, question = survey.model, survey.width, survey.question
    recovery_time, delta = survey.recovery_time, question.delta
    scale = squared_divisor(question.query, width) / width
    step = GaussianModel(model.mean * scale, model.covariance * scale, model.names)
    problem = step, width, survey.unit, recovery_time, question.t_sla_ms
    times: tuple[int, ...] = (0, width)
    sets: list[Sequence[int]] = [range(model.size)]
    reason, within = "", None
    try:
        chosen = plan_checkpoints(*problem, query=question.query)
        second_half = survey.values[len(survey.values) // 2 :] / survey.limits
        within = score_replay(model, chosen.replay[0].sensors, second_half)
        if within is not None and within < 1 - delta:
            chosen = plan_checkpoints(*problem, method="exactly-once", query=question.query)
            reason = (
                f"Replay: read everything again. With the planned sets {percent(within, 1)} of the "
                f"estimates were within ε in the back-test (guaranteed: {percent(1 - delta)})."
            )
        times, sets = chosen.times, [part.sensors for part in chosen.replay]
    except ValueError:  # T_SLA is too short for one step
        reason = (
            f"No checkpoints keep T_SLA = {question.t_sla}: reading one step of all sensors again "
            f"takes {recovery_time(model.size) / 1e3:.3g} s."
        )
    rows = []
    for (begin, end), sensors in zip(pairwise(times), sets, strict=True):
        names, ms = [model.names[i] for i in sensors], recovery_time(len(sensors) * (end - begin))
        rows.append({"from": begin, "until": end, "sensors": names, "ms": ms})
    return {
        "checkpoints": list(times[1:-1]),
        "replay": rows,
        "replay_within": None if reason else within,
        "read_everything": reason,
    }


def score_replay(model: GaussianModel, read: Sequence[int], scaled: np.ndarray) -> float | None:
    """Share of the estimates within ε where only the sensors `read` are read again.

    `scaled` are window results in units of ε, (N, n). None where nothing is estimated.
    """
    others = np.setdiff1d(np.arange(model.size), read)
    off = scaled[:, list(read)] - model.mean[list(read)]
    errors = np.abs(scaled[:, others] - model.mean[others] - off @ model.gain(list(read), others).T)
    known = np.isfinite(errors)
    return float((errors <= 1).sum() / known.sum()) if known.any() else None


def pays_below(
    question: Question, sizes: Sequence[int], width: int, step_s: float, certified: float
) -> float | None:
    """Read rate, samples per second, below which the guard is recommended; None: at any rate.

    `sizes` are the numbers of sensors of the machines, `certified` is the share of windows that the
    guard certified. Below the rate exact recovery of the largest machine misses T_SLA, and the
    guard saves `LEAST_SAVING` of its time.
    """
    if certified <= LEAST_SAVING:
        return 0.0
    missed_ms = question.t_sla_ms - question.fixed_ms
    saving_ms = LEAST_SAVING * question.fixed_ms / (certified - LEAST_SAVING)
    per_sample_ms = max(missed_ms, saving_ms) / (max(sizes) * width)
    wait_ms = per_sample_ms - DOCUMENT_RECOVERY_TIME.per_tuple_ms
    return sum(sizes) / step_s + 1000 / wait_ms if wait_ms > 0 else None


def weigh_costs(
    question: Question, sizes: Sequence[int], width: int, step_s: float | None, certified: float
) -> dict[str, Any]:
    """Below which read rate estimating pays, and a comparison at the question's: `worth`.

    Arguments as `pays_below`; `step_s` is None where the data have no times. The longest recovery
    is that of the largest machine after a failure at the end of a window. A month has failures of
    the mean machine in the middle of a window.
    """
    if step_s is None:
        return {"pays_below": None, "worth": None}
    below = pays_below(question, sizes, width, step_s, certified)
    if question.read_rate is None:
        return {"pays_below": below, "worth": None}
    recovery_time = question.recovery_time(sum(sizes) / step_s)
    failures, mean_size = question.failures_per_month, sum(sizes) / len(sizes)
    schemes = []
    for scheme, estimated in ((EXACT, 0.0), (GUARD, certified)):
        longest, mean = ((1 - estimated) * n * width for n in (max(sizes), mean_size / 2))
        schemes.append(
            {
                "scheme": scheme,
                "longest_s": recovery_time(longest) / 1e3,
                "outage_minutes": failures * recovery_time(mean) / 60_000,
                "estimated_results": failures * mean_size * estimated,
            }
        )
    recommended = GUARD if below is None or question.read_rate < below else EXACT
    return {"pays_below": below, "worth": {"schemes": schemes, "recommended": recommended}}
