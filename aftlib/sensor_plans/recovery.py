"""Recovery of a user's sensors: checkpoints and replay sets (D2), and whether estimating pays.

`plan_recovery` is for a failure of all machines. `compare_schemes` and `pays_below` are for a
failure of one machine, whose input is read again at a limited rate: exact recovery reads all
samples of the machine's open windows; the guard reads the sensors that it did not certify, and
estimates the rest. All parts have the plan's one recovery time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aftlib.checkpoint_planning.plan import plan_checkpoints, squared_divisor
from aftlib.core.gaussian import GaussianModel
from aftlib.sensor_plans.question import DOCUMENT_RECOVERY_TIME, Question
from aftlib.sensor_plans.window_results import Survey

EXACT, GUARD, NEITHER = "exact recovery", "guard", "neither"
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
    recovery_time, delta = question.recovery_time(survey.samples_per_s), question.delta
    scale = squared_divisor(question.query, width) / width
    step = GaussianModel(model.mean * scale, model.covariance * scale, model.names)
    times: tuple[int, ...] = (0, width)
    sets: list[Sequence[int]] = [range(model.size)]
    reason, within = "", None
    if recovery_time is None:
        reason = "No recovery ends: the stream takes the whole read rate."
    else:
        problem = step, width, survey.unit, recovery_time, question.t_sla_ms
        try:
            chosen = plan_checkpoints(*problem, query=question.query)
            second_half = survey.values[len(survey.values) // 2 :] / survey.limits
            within = score_replay(model, chosen.replay[0].sensors, second_half)
            if within is not None and within < 1 - delta:
                chosen = plan_checkpoints(*problem, method="exactly-once", query=question.query)
                reason = (
                    f"Replay: read everything again. With the planned sets {within:.1%} of the "
                    f"estimates were within ε in the back-test (guaranteed: {1 - delta:.0%})."
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


def compare_schemes(
    question: Question, sizes: Sequence[int], width: int, step_s: float, certified: float
) -> dict[str, Any]:
    """Compare exact recovery with the guard at the question's read rate.

    Arguments as `pays_below`. Returns the fields of plan.json's part `worth`. The longest recovery
    is that of the largest machine after a failure at the end of a window. A month has failures of
    the mean machine in the middle of a window. Times are None if no recovery ends, because the
    stream takes the whole read rate.
    """
    samples_per_s, failures = sum(sizes) / step_s, question.failures_per_month
    recovery_time = question.recovery_time(samples_per_s)
    start_windows, mean_size = question.fixed_ms / 1e3 / (width * step_s), sum(sizes) / len(sizes)
    schemes = []
    for scheme, estimated in ((EXACT, 0.0), (GUARD, certified)):
        longest, mean = ((1 - estimated) * n * width for n in (max(sizes), mean_size / 2))
        row: dict[str, Any] = {"scheme": scheme, "longest_s": None, "outage_minutes": None}
        row |= {"samples_read_again": 0.0, "samples_per_month": 0.0}
        if recovery_time is not None:
            row["longest_s"] = recovery_time(longest) / 1e3
            row["outage_minutes"] = failures * recovery_time(mean) / 60_000
            row["samples_read_again"] = longest
            row["samples_per_month"] = failures * mean
        # windows that begin while the replacement starts are estimated, too
        row["estimated_results"] = failures * mean_size * estimated * (1 + start_windows)
        schemes.append(row)
    recommended, reason = _recommend(question, *(row["longest_s"] for row in schemes))
    return {
        "read_rate": question.read_rate,
        "samples_per_s": samples_per_s,
        "failures_per_month": failures,
        "schemes": schemes,
        "recommended": recommended,
        "reason": reason,
    }


def _recommend(question: Question, slow: float | None, fast: float | None) -> tuple[str, str]:
    """Recommend a scheme, with the reason: exact recovery unless the guard gains something.

    The guard's time `fast` is for the mean certified share. After a failure in which fewer sensors
    are certified it takes longer, at most as long as exact recovery, `slow`.
    """
    if slow is None or fast is None:
        return NEITHER, (
            "No recovery ends, because the stream takes the whole read rate; raise the read rate "
            "or plan fewer sensors."
        )
    limit_s = question.t_sla_ms / 1e3
    need = f"Exact recovery takes up to {slow:.3g} s"
    if slow <= limit_s:
        return EXACT, f"{need}, within T_SLA = {limit_s:g} s, and estimates nothing."
    if fast > (1 - LEAST_SAVING) * slow:
        saves = f"does not save {LEAST_SAVING:.0%} of it"
        if fast == slow:
            saves = "certifies nothing, or its back-test failed"
        return EXACT, f"{need}, and the guard {saves}."
    kept = "within" if fast <= limit_s else "not within"
    return GUARD, (
        f"{need}, not within T_SLA = {limit_s:g} s. With the certified share of the back-test the "
        f"guard takes {fast:.3g} s, {kept} T_SLA; where it certifies nothing, as long as exact "
        "recovery."
    )
