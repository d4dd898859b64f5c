"""Recovery of a user's sensors: checkpoints and replay sets (D2), and whether estimating pays.

`plan_recovery` is for a failure of all machines. `find_criteria` and `weigh_costs` are for a
failure of one, whose input is read again at a limited rate: exact recovery reads all samples of the
machine's open windows; the guard reads the sensors that it did not certify, and estimates the rest.
Their cost model is `aftlib.core.recovery_costs`, as in notebook 07. Its start is the user's, by
default document D2's measurement. Its processing time per sample is always D2's.
"""

from __future__ import annotations

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
from aftlib.core.windows import result_per_mean
from aftlib.documents.checkpoint_planning.plan import (
    EXACTLY_ONCE,
    plan_checkpoints,
    squared_divisor,
)
from aftlib.notebook.texts import percent
from aftlib.sensor_plans.backtest import GUARD
from aftlib.sensor_plans.question import DOCUMENT_RECOVERY_TIME, Question
from aftlib.sensor_plans.sensor_plan import (
    LEAST_SAVING,
    Criteria,
    ReplayPart,
    SchemeCosts,
    Worth,
    or_none,
)
from aftlib.sensor_plans.window_results import Survey, aggregate

EXACT = "exact recovery"


@dataclass(frozen=True)
class Recovery:
    """Checkpoints and replay sets of a window, and the back-test of the latter."""

    replay: tuple[ReplayPart, ...]
    #: Share of the estimates within ε with the worst set; None where nothing is estimated.
    within: float | None
    #: Why every sensor is read again; empty otherwise.
    read_everything: str

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Steps since the start of a window."""
        return tuple(part.begin for part in self.replay[1:])


def plan_recovery(survey: Survey) -> Recovery:
    """Plan checkpoints and replay sets of a window, for a failure of all machines (D2).

    Every set is tested on the second half. If one fails, none is offered: then every sensor is read
    again, and `read_everything` says why.

    The planner assumes independent steps and takes the covariance of one. It gets w times the
    covariance of window means, or that of window sums divided by w. So the variance of a whole
    window is correct even if samples are correlated in time.
    """
    model = survey.model
    question = survey.question
    scale = squared_divisor(question.query, survey.width) / survey.width
    choose = partial(
        plan_checkpoints,
        GaussianModel(np.zeros(model.size), model.covariance * scale, model.names),
        survey.width,
        survey.scaled_requirement,
        survey.recovery_time,
        question.t_sla_ms,
        query=question.query,
    )
    one_step_ms = survey.recovery_time(model.size)

    def without_sets(reason: str) -> Recovery:
        """Read every sensor again, for a reason."""
        if question.t_sla_ms >= one_step_ms:
            times = choose(method=EXACTLY_ONCE).times
        else:
            times = (0, survey.width)
            reason += (
                f" No checkpoints keep T_SLA = {question.t_sla}: reading one step of all sensors "
                f"again takes {one_step_ms / 1e3:.3g} s."
            )
        all_sensors = [range(model.size)] * (len(times) - 1)
        return Recovery(describe_replay(survey, times, all_sensors), None, reason.strip())

    try:
        chosen = choose()
    except ValueError:
        if question.t_sla_ms >= one_step_ms:
            raise  # the reason is another one than a T_SLA that is too short for one step
        return without_sets("")
    sets = [part.sensors for part in chosen.replay]
    tested = [score_replay(survey, *each) for each in zip(chosen.times, sets, strict=False)]
    within = min((share for share in tested if share is not None), default=None)
    if within is not None and within < 1 - question.delta:
        return without_sets(
            f"Replay: read everything again. With the planned sets {percent(within, 1)} of the "
            f"estimates were within ε in the back-test (guaranteed: {percent(1 - question.delta)})."
        )
    return Recovery(describe_replay(survey, chosen.times, sets), within, "")


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


def score_replay(survey: Survey, begin: int, read: Sequence[int]) -> float | None:
    """Share of the estimates within ε in the second half, if only the sensors `read` are read.

    A set must suffice from its checkpoint `begin` to the end of the window, because all later
    intervals may fail, too. So the other sensors' results of that part are estimated; before it,
    they are known. None where nothing is estimated.
    """
    model = survey.model
    read = list(read)
    others = np.setdiff1d(np.arange(model.size), read)
    query = survey.question.query
    steps = survey.width - begin
    left = steps / survey.width
    samples = survey.table.values[len(survey.values) // 2 * survey.width :]
    part = aggregate(samples, survey.width, query, begin) / survey.limits
    # the result of a whole window of such steps; a mean is that already
    part *= result_per_mean(query, survey.width) / result_per_mean(query, steps)
    off = part[:, read] - model.mean[read]
    estimates = model.mean[others] + off @ model.gain(read, others).T
    errors = left * np.abs(part[:, others] - estimates)
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
        """Constants of the cost model, the same for both recoveries; reading comes on top.

        So the guard is faster wherever it reads less; `LEAST_SAVING` asks for more than that.
        """
        return RecoveryCosts(
            start_s=self.question.fixed_ms / 1e3,
            sample_s=DOCUMENT_RECOVERY_TIME.per_tuple_ms / 1e3,
            estimate_s=0.0,
            checkpoint_s=0.0,
        )

    @property
    def largest_machine(self) -> Alternatives:
        """Both recoveries of the machine with most sensors, which takes longest."""
        lost = float(max(self.sizes) * self.width)
        return Alternatives(self.costs, self.costs, lost=lost, again=(1 - self.certified) * lost)


def find_criteria(failure: Failure) -> Criteria:
    """Return the rates from which exact recovery suffices, and below which the guard is faster.

    The guard is faster if it saves at least `LEAST_SAVING` of the longest recovery.
    """
    choice = failure.largest_machine
    keeps = failure.live + choice.keeps_from(failure.question.t_sla_ms / 1e3)
    saving = choice.faster_below(LEAST_SAVING)
    faster = failure.live + saving if saving else 0.0
    return Criteria(keeps_t_sla=or_none(keeps), is_faster=or_none(faster))


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
    replayed = 1 - failure.certified
    exact = Scheme(EXACT, failure.costs, share, replayed=1)
    guard = Scheme(GUARD, failure.costs, share, replayed, skips_input=True)
    monthly = monthly_costs(operation, [exact, guard])
    spare = question.read_rate - failure.live
    choice = failure.largest_machine
    longest = {
        EXACT: choice.exact.recovery_s(choice.lost, False, spare),
        GUARD: choice.approximate.recovery_s(choice.again, True, spare),
    }
    schemes = tuple(
        SchemeCosts(scheme, longest[scheme], float(minutes), float(estimated))
        for scheme, minutes, estimated in monthly[
            ["outage_minutes", "estimated_results"]
        ].itertuples()
    )
    below = find_criteria(failure).pays_below
    pays = below is None or question.read_rate < below
    return Worth(schemes, GUARD if pays else EXACT)
