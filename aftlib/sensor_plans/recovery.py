"""Recovery of a user's sensors: checkpoints and replay sets (D2), and whether estimating pays.

After a failure of one machine, input is read again at a limited rate. Exact recovery reads all
samples of the machine's open windows. The guard reads the sensors that it did not certify, and
estimates the rest. All parts have the plan's one recovery time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aftlib.checkpoint_planning.plan import plan_checkpoints
from aftlib.core.gaussian import GaussianModel
from aftlib.core.recovery_costs import Operation, RecoveryCosts, Scheme, monthly_costs
from aftlib.sensor_plans.question import DOCUMENT_RECOVERY_TIME, Question
from aftlib.sensor_plans.window_results import Survey

EXACT, GUARD, NEITHER = "exact recovery", "guard", "neither"
NEVER = "Exact recovery never ends, because the stream takes the whole read rate"
LEAST_SAVING = 0.05
"""Least share of the outage that the guard must save if neither keeps T_SLA.

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


def recovery_costs(question: Question) -> RecoveryCosts:
    """Constants of the plan's recovery time, without the waiting for input."""
    per_sample = DOCUMENT_RECOVERY_TIME.per_tuple_ms / 1e3
    return RecoveryCosts(question.fixed_ms / 1e3, per_sample, 0.0, 0.0)


def pays_below(
    question: Question, sizes: Sequence[int], width: int, step_s: float, certified: float
) -> float:
    """Read rate, samples per second, below which the guard is recommended; inf: at any rate.

    `sizes` are the numbers of sensors of the machines, `certified` is the share of windows that the
    guard certified. Exact recovery misses T_SLA below the rate, or, where every recovery misses
    T_SLA, the guard saves `LEAST_SAVING` of the outage.
    """
    costs, t_sla_s = recovery_costs(question), question.t_sla_ms / 1e3
    if certified <= 0:
        return 0.0
    if t_sla_s > costs.start_s:
        per_sample = (t_sla_s - costs.start_s) / (max(sizes) * width)
    elif certified <= LEAST_SAVING:
        return 0.0
    else:
        mean = sum(sizes) / len(sizes) * width / 2
        per_sample = LEAST_SAVING * costs.start_s / (mean * (certified - LEAST_SAVING))
    wait = per_sample - costs.sample_s
    return sum(sizes) / step_s + 1 / wait if wait > 0 else math.inf


def worth(
    question: Question, sizes: Sequence[int], width: int, step_s: float, certified: float
) -> dict[str, Any]:
    """Compare exact recovery with the guard at the question's read rate, for `pays_below`'s plan.

    Returns the fields of plan.json's part `worth`. A time is None if it is infinite, because the
    read rate does not exceed the stream's own; then nothing is read again. The longest recovery is
    that of the largest machine after a failure at the end of a window.
    """
    costs, read_rate = recovery_costs(question), float(question.read_rate or 0)
    sensors = sum(sizes)
    operation = Operation(
        sensors, sensors / step_s, width * step_s, read_rate, question.failures_per_month
    )
    schemes = [
        Scheme(EXACT, costs, 1 / len(sizes), 1.0),
        Scheme(GUARD, costs, 1 / len(sizes), 1.0 - certified, skips_input=True),
    ]
    rows = []
    for scheme, month in zip(schemes, monthly_costs(operation, schemes), strict=True):
        # the month is of the mean machine, which fails in the middle of a window
        samples = scheme.replayed * max(sizes) * width
        longest = operation.recovery_s(costs, samples, scheme.replayed < 1)
        again = samples if math.isfinite(longest) else 0.0
        rows.append({**vars(month), "longest_s": longest, "samples_read_again": again})
    recommended, reason = _recommend(operation, rows, question.t_sla_ms / 1e3, certified)
    finite = [{name: None if x == math.inf else x for name, x in row.items()} for row in rows]
    return {
        "read_rate": read_rate,
        "samples_per_s": operation.samples_per_s,
        "failures_per_month": question.failures_per_month,
        "schemes": finite,
        "recommended": recommended,
        "reason": reason,
    }


def _recommend(
    operation: Operation, rows: Sequence[dict[str, Any]], t_sla_s: float, certified: float
) -> tuple[str, str]:
    """Recommend a scheme, with the reason: exact recovery unless the guard gains something.

    The guard's time is for the mean certified share. After a failure in which fewer sensors are
    certified it takes longer, at most as long as exact recovery and the estimates.
    """
    slow, fast = (row["longest_s"] for row in rows)
    if operation.read_rate < operation.samples_per_s:
        return NEITHER, (
            f"The stream takes {operation.samples_per_s:.3g} samples per second, more than the "
            "source hands out, so no recovery keeps up; raise the read rate or plan fewer sensors."
        )
    if not operation.failures_per_month:
        return EXACT, "Without failures, estimates gain nothing."
    if math.isinf(fast):
        return NEITHER, (
            f"{NEVER}. Nor does the guard, which estimates only its certified {certified:.1%}; "
            "raise the read rate or plan fewer sensors."
        )
    limit = f"T_SLA = {t_sla_s:g} s"
    need = f"Exact recovery takes up to {_seconds(slow)}" if math.isfinite(slow) else NEVER
    if slow <= t_sla_s:
        return EXACT, f"{need}, within {limit}, and estimates nothing."
    saved = 1 - rows[1]["recovery_s"] / rows[0]["recovery_s"]
    if fast > t_sla_s and saved < LEAST_SAVING:
        return EXACT, (
            f"{need}, not within {limit}, and the guard does not save {LEAST_SAVING:.0%} of the "
            "outage."
        )
    but = "" if fast <= t_sla_s else f", but saves {saved:.0%} of the outage"
    return GUARD, (
        f"{need}, not within {limit}. With the certified share of the back-test the guard takes "
        f"{_seconds(fast)}, {'not ' * bool(but)}within {limit}{but}; where it certifies nothing, "
        "as long as exact recovery."
    )


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"
