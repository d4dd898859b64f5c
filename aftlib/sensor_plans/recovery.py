"""Recovery of a user's sensors: checkpoints and replay sets (D2), and whether estimating pays.

`plan_recovery` is for a failure of all machines. `find_criteria` and `weigh_costs` are for a
failure of one, whose input is read again at a limited rate: exact recovery reads all samples of the
machine's open windows; the guard reads the sensors that it did not certify, and estimates the rest.
Their cost model is `aftlib.core.recovery_costs`, as in notebook 07.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from aftlib.core.gaussian import GaussianModel
from aftlib.core.recovery_costs import (
    Alternatives,
    Operation,
    RecoveryCosts,
    Scheme,
    monthly_costs,
)
from aftlib.documents.checkpoint_planning.plan import plan_checkpoints, squared_divisor
from aftlib.notebook.texts import percent
from aftlib.sensor_plans.question import DOCUMENT_RECOVERY_TIME, Question
from aftlib.sensor_plans.sensor_plan import Criteria, ReplayPart, SchemeCosts, Worth
from aftlib.sensor_plans.window_results import Survey

EXACT = "exact recovery"
GUARD = "guard"
#: Least share of the longest recovery that the guard must save to be recommended.
#: Ours: for less, an operator does not accept estimates.
LEAST_SAVING = 0.05


@dataclass(frozen=True)
class Recovery:
    """Checkpoints and replay sets of a window, and the back-test of the latter."""

    replay: tuple[ReplayPart, ...]
    #: Share of the estimates within ε; None where nothing is estimated.
    within: float | None
    #: Why every sensor is read again; empty otherwise.
    read_everything: str

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Steps since the start of a window."""
        return tuple(part.begin for part in self.replay[1:])


def plan_recovery(survey: Survey) -> Recovery:
    """Plan checkpoints and replay sets of a window, for a failure of all machines (D2).

    The sets are tested on the second half. A set that fails is not offered: then every sensor is
    read again, and `read_everything` says why.

    The planner assumes independent steps. The covariance of a step is w times the covariance of
    window means, not that of single samples. So the variance of a whole window is correct even if
    samples are correlated in time.
    """
    model = survey.model
    question = survey.question
    scale = squared_divisor(question.query, survey.width) / survey.width
    step = GaussianModel(model.mean * scale, model.covariance * scale, model.names)
    choose = partial(
        plan_checkpoints,
        step,
        survey.width,
        survey.unit,
        survey.recovery_time,
        question.t_sla_ms,
        query=question.query,
    )
    try:
        chosen = choose()
    except ValueError:
        one_step_ms = survey.recovery_time(model.size)
        if question.t_sla_ms >= one_step_ms:
            raise  # the reason is another one than a T_SLA that is too short for one step
        reason = (
            f"No checkpoints keep T_SLA = {question.t_sla}: reading one step of all sensors again "
            f"takes {one_step_ms / 1e3:.3g} s."
        )
        everything = describe_replay(survey, (0, survey.width), [range(model.size)])
        return Recovery(everything, None, reason)
    second_half = survey.values[len(survey.values) // 2 :] / survey.limits
    within = score_replay(model, chosen.replay[0].sensors, second_half)
    reason = ""
    if within is not None and within < 1 - question.delta:
        reason = (
            f"Replay: read everything again. With the planned sets {percent(within, 1)} of the "
            f"estimates were within ε in the back-test (guaranteed: {percent(1 - question.delta)})."
        )
        within = None
        chosen = choose(method="exactly-once")
    sets = [part.sensors for part in chosen.replay]
    return Recovery(describe_replay(survey, chosen.times, sets), within, reason)


def describe_replay(
    survey: Survey, times: Sequence[int], sets: Sequence[Sequence[int]]
) -> tuple[ReplayPart, ...]:
    """Return the sensors to read again between two `times` of a window, and how long that takes."""
    parts = []
    for (begin, until), sensors in zip(pairwise(times), sets, strict=True):
        names = tuple(survey.names[i] for i in sensors)
        ms = survey.recovery_time(len(sensors) * (until - begin))
        parts.append(ReplayPart(int(begin), int(until), names, float(ms)))
    return tuple(parts)


def score_replay(model: GaussianModel, read: Sequence[int], scaled: np.ndarray) -> float | None:
    """Share of the estimates within ε where only the sensors `read` are read again.

    `scaled` are window results in units of ε, (N, n). None where nothing is estimated.
    """
    others = np.setdiff1d(np.arange(model.size), read)
    off = scaled[:, list(read)] - model.mean[list(read)]
    errors = np.abs(scaled[:, others] - model.mean[others] - off @ model.gain(list(read), others).T)
    known = np.isfinite(errors)
    return float((errors <= 1).sum() / known.sum()) if known.any() else None


@dataclass(frozen=True)
class Failure:
    """A failure of one machine at the end of a window, and the share of it that is certified."""

    question: Question
    #: Numbers of sensors of the machines.
    sizes: Sequence[int]
    #: Steps of a window.
    width: int
    step_s: float
    #: Share of the windows that the guard certified and need not read again.
    certified: float

    @property
    def live(self) -> float:
        """Samples per second of the running stream."""
        return sum(self.sizes) / self.step_s

    @property
    def costs(self) -> RecoveryCosts:
        """The plan's recovery time as constants of the cost model."""
        per_sample_s = DOCUMENT_RECOVERY_TIME.per_tuple_ms / 1e3
        return RecoveryCosts(self.question.fixed_ms / 1e3, per_sample_s, 0.0, 0.0)

    @property
    def longest(self) -> Alternatives:
        """Both recoveries of the largest machine."""
        lost = float(max(self.sizes) * self.width)
        return Alternatives(self.costs, self.costs, lost=lost, again=(1 - self.certified) * lost)


def find_criteria(failure: Failure) -> Criteria:
    """Return the rates from which exact recovery suffices, and below which the guard is faster.

    The guard is faster if it saves at least `LEAST_SAVING` of the longest recovery.
    """
    keeps = failure.live + failure.longest.keeps_from(failure.question.t_sla_ms / 1e3)
    saving = failure.longest.faster_below(LEAST_SAVING)
    faster = failure.live + saving if saving else 0.0
    return Criteria(
        keeps_t_sla=keeps if math.isfinite(keeps) else None,
        is_faster=faster if math.isfinite(faster) else None,
    )


def weigh_costs(failure: Failure) -> Worth | None:
    """Compare both recoveries at the question's read rate; None without one.

    The longest recovery is that of the largest machine after a failure at the end of a window. A
    month has failures of the mean machine in the middle of a window.
    """
    question = failure.question
    if question.read_rate is None:
        return None
    operation = Operation(
        sensors=sum(failure.sizes),
        samples_per_s=failure.live,
        window_s=failure.width * failure.step_s,
        read_rate=question.read_rate,
        failures_per_month=question.failures_per_month,
    )
    share = 1 / len(failure.sizes)
    monthly = monthly_costs(
        operation,
        [
            Scheme(EXACT, failure.costs, share, replayed=1),
            Scheme(GUARD, failure.costs, share, 1 - failure.certified, skips_input=True),
        ],
    ).to_dict("index")
    spare = question.read_rate - failure.live
    choice = failure.longest
    longest = {
        EXACT: choice.exact.recovery_s(choice.lost, False, spare),
        GUARD: choice.approximate.recovery_s(choice.again, True, spare),
    }
    schemes = tuple(
        SchemeCosts(
            scheme,
            longest[scheme],
            monthly[scheme]["outage_minutes"],
            monthly[scheme]["estimated_results"],
        )
        for scheme in (EXACT, GUARD)
    )
    below = find_criteria(failure).pays_below
    pays = below is None or question.read_rate < below
    return Worth(schemes, GUARD if pays else EXACT)
