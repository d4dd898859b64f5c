"""Recovery of a user's sensors: checkpoints and replay sets (D2), and whether estimating pays.

`plan_recovery` is for a failure of all machines. `weigh_costs` is for a failure of one, whose input
is read again at a limited rate: exact recovery reads all samples of the machine's open windows; the
guard reads the sensors that it did not certify, and estimates the rest. Both have the plan's one
recovery time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aftlib.core.gaussian import GaussianModel
from aftlib.core.recovery_costs import IS_FASTER, KEEPS_T_SLA, Alternatives, RecoveryCosts
from aftlib.documents.checkpoint_planning.plan import plan_checkpoints, squared_divisor
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
    except ValueError:
        if question.t_sla_ms >= recovery_time(model.size):
            raise  # the reason is another one than a T_SLA that is too short for one step
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


def alternatives(question: Question, sensors: int, width: int, certified: float) -> Alternatives:
    """Exact recovery and the guard's of one failed machine with so many sensors.

    The failure comes at the end of a window of `width` steps. The guard reads the share of the
    samples again that it did not certify.
    """
    costs = RecoveryCosts(
        start_s=question.fixed_ms / 1e3,
        sample_s=DOCUMENT_RECOVERY_TIME.per_tuple_ms / 1e3,
        estimate_s=0.0,
        checkpoint_s=0.0,
    )
    lost = float(sensors * width)
    return Alternatives(costs, costs, lost=lost, again=(1 - certified) * lost)


def find_criteria(
    question: Question, sizes: Sequence[int], width: int, step_s: float, certified: float
) -> dict[str, float | None]:
    """The read rates of both criteria, in samples per second with the live ones; None: infinite.

    "keeps T_SLA": from this rate on exact recovery of the largest machine keeps T_SLA. "is faster":
    below this rate the guard saves at least `LEAST_SAVING` of its time; 0 where it never does.
    `sizes` are the numbers of sensors of the machines, and `certified` is the share of windows that
    the guard certified.
    """
    choice = alternatives(question, max(sizes), width, certified)
    live = sum(sizes) / step_s
    keeps = choice.keeps_from(question.t_sla_ms / 1e3)
    faster = choice.faster_below(LEAST_SAVING)
    rates = {KEEPS_T_SLA: live + keeps, IS_FASTER: live + faster if faster else 0.0}
    return {name: rate if math.isfinite(rate) else None for name, rate in rates.items()}


def pays_below(
    question: Question, sizes: Sequence[int], width: int, step_s: float, certified: float
) -> float | None:
    """Read rate, samples per second, below which the guard is recommended; None: at any rate.

    Below it both criteria of `find_criteria` speak for the guard: exact recovery misses T_SLA, and
    the guard is faster.
    """
    criteria = find_criteria(question, sizes, width, step_s, certified)
    finite = [rate for rate in criteria.values() if rate is not None]
    return min(finite, default=None)


def weigh_costs(
    question: Question, sizes: Sequence[int], width: int, step_s: float | None, certified: float
) -> dict[str, Any]:
    """Below which read rate estimating pays, by both criteria, and a comparison at the question's.

    Arguments as `find_criteria`; `step_s` is None where the data have no times. The longest
    recovery is that of the largest machine after a failure at the end of a window. A month has
    failures of the mean machine in the middle of a window.
    """
    if step_s is None:
        return {"pays_below": None, "criteria": None, "worth": None}
    criteria = find_criteria(question, sizes, width, step_s, certified)
    below = pays_below(question, sizes, width, step_s, certified)
    answer = {"pays_below": below, "criteria": criteria}
    if question.read_rate is None:
        return answer | {"worth": None}
    spare = question.read_rate - sum(sizes) / step_s
    question.recovery_time(sum(sizes) / step_s)  # refuses a rate that leaves nothing
    failures, mean_size = question.failures_per_month, sum(sizes) / len(sizes)
    costs = alternatives(question, max(sizes), width, certified).exact
    schemes = []
    for scheme, estimated in ((EXACT, 0.0), (GUARD, certified)):
        longest_s, mean_s = (
            costs.recovery_s((1 - estimated) * n * width, bool(estimated), spare)
            for n in (max(sizes), mean_size / 2)
        )
        schemes.append(
            {
                "scheme": scheme,
                "longest_s": longest_s,
                "outage_minutes": failures * mean_s / 60,
                "estimated_results": failures * mean_size * estimated,
            }
        )
    recommended = GUARD if below is None or question.read_rate < below else EXACT
    return answer | {"worth": {"schemes": schemes, "recommended": recommended}}
