"""The plan as a value, which plan.json holds, and as the text that `aft plan` prints.

`SensorPlan` extends `StreamPlan`, the part that a stream needs. A share is between 0 and 1. Values
by horizon have one entry per window since the loss, 1 … H.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aftlib.core.planfile import StreamData, StreamPlan, StreamQuestion
from aftlib.notebook.texts import render

#: Least share of the longest recovery that the guard must save to be recommended.
#: Ours: for less, an operator does not accept estimates.
LEAST_SAVING = 0.05
#: Most names in a line, and sensors in the table, of which those below half are always shown.
LISTED = 12
#: Numbers; None where one is unknown.
Numbers = tuple[float | None, ...]


def or_none(number: float) -> float | None:
    """Return a number as plan.json has it: None where it is unknown or infinite."""
    return float(number) if np.isfinite(number) else None


def numbers_or_none(numbers: np.ndarray) -> Numbers:
    """Return numbers as plan.json has them."""
    return tuple(map(or_none, numbers))


@dataclass(frozen=True, kw_only=True)
class PlanData(StreamData):
    """The samples from which a plan was made."""

    name: str
    #: What was read, and what was changed while reading, in words.
    read: tuple[str, ...]
    steps: int


@dataclass(frozen=True, kw_only=True)
class PlanQuestion(StreamQuestion):
    """The user's `Question`, with values for what the user left open."""

    #: ε in standard deviations of the window results; None if ε was given in sensor units.
    epsilon_sd: float | None
    t_sla: str
    workers: int
    fixed_ms: float
    #: Processing of one sample in a recovery, and its reading if there is a read rate.
    per_tuple_ms: float
    read_rate: float | None
    failures_per_month: float


@dataclass(frozen=True)
class Machine:
    """A worker, under the user's name for it: its sensors, and how far these may be lost."""

    name: str
    sensors: tuple[str, ...]
    #: Share certified one window after its failure, unlike that of `Regrouping` and `Score`.
    certified: float
    #: Certified shares of the sensors below one half, the worst first.
    problems: Mapping[str, float]


@dataclass(frozen=True)
class Regrouping:
    """The best assignment that was found to as many machines as the user's."""

    assignment: tuple[tuple[str, ...], ...]
    #: As in `Score`, so that both groupings compare.
    certified: float


@dataclass(frozen=True)
class ReplayPart:
    """Sensors to read again if all machines fail between two steps of a window."""

    begin: int
    until: int
    sensors: tuple[str, ...]
    #: Longest recovery.
    ms: float


@dataclass(frozen=True)
class Score:
    """Shares of a method in the back-test, means over the horizons weighted H : … : 1."""

    method: str
    certified: float
    #: Share of the certified windows within ε; None if there are none.
    within: float | None
    #: 95 % interval of `within`.
    interval: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Backtest:
    """The guard in the back-test."""

    #: Windows of the second half, each judged as if it was lost.
    windows: int
    score: Score
    #: The sensor with the lowest share within ε, of those with enough certified estimates.
    worst_sensor: str | None
    worst_within: float | None
    #: Guarantees one window ahead in all `fed` windows, of which `windows` is a part.
    N: int
    #: Windows that the guard saw: the warm-up, which is not scored, and the `windows`.
    fed: int
    #: Wrong guarantees that the theorem permits beyond δN.
    slack_errors: float


@dataclass(frozen=True)
class SensorRow:
    """One sensor in the back-test."""

    name: str
    worker: int
    epsilon: float
    #: Share of the variance that other machines' sensors explain: the adjusted R².
    explained: float
    certified: tuple[float, ...]
    within: Numbers
    #: Horizons, from the first one on, at which at least half of the windows are certified.
    longest: int
    #: Guarantees one window ahead in all windows that the guard saw, the warm-up included.
    N: int
    #: The smallest useful ε.
    least_epsilon: float | None


@dataclass(frozen=True)
class Segment:
    """Shares in one segment of the second half."""

    start: str
    certified: float
    within: float | None


@dataclass(frozen=True)
class DrawnSensor:
    """One sensor of an outage; `truth` by drawn window, the others by lost window."""

    name: str
    truth: Numbers
    estimate: Numbers
    half_width: Numbers
    certified: tuple[bool, ...]


@dataclass(frozen=True)
class Outage:
    """One outage of a machine, for a figure."""

    machine: int
    #: Starts of the windows that are drawn.
    times: tuple[str, ...]
    #: Starts of the windows that were lost.
    lost: tuple[str, ...]
    sensors: tuple[DrawnSensor, ...]


@dataclass(frozen=True)
class Criteria:
    """Read rates, samples per second with the live ones, that decide whether estimating pays."""

    #: A rate, not a flag: from it on exact recovery of the largest machine keeps T_SLA. None: at no
    #: rate.
    keeps_t_sla: float | None
    #: A rate, not a flag: below it the guard saves at least `LEAST_SAVING`. None: at any rate.
    is_faster: float | None

    @property
    def pays_below(self) -> float | None:
        """The rate below which both criteria speak for the guard; None is infinite."""
        finite = [rate for rate in (self.keeps_t_sla, self.is_faster) if rate is not None]
        return min(finite, default=None)


@dataclass(frozen=True)
class SchemeCosts:
    """Costs of one recovery scheme at the user's read rate."""

    scheme: str
    longest_s: float
    #: Per month.
    outage_minutes: float
    #: Per month.
    estimated_results: float


@dataclass(frozen=True)
class Worth:
    """Exact recovery and the guard at the user's read rate."""

    schemes: tuple[SchemeCosts, ...]
    recommended: str


@dataclass(frozen=True, kw_only=True)
class SensorPlan(StreamPlan):
    """What `aft plan` makes.

    `StreamPlan` has its `assignment`, what its guard `learned`, the windows as a stream has them
    (`terms`), and `write` and `read`.
    """

    question: PlanQuestion
    data: PlanData
    machines: tuple[Machine, ...]
    #: None if the user gave no grouping.
    regrouping: Regrouping | None
    #: Steps since the start of a window.
    checkpoints: tuple[int, ...]
    replay: tuple[ReplayPart, ...]
    #: Share of the estimates within ε in the back-test of the replay sets, with the worst set.
    replay_within: float | None
    #: Why every sensor is read again, as a sentence; empty otherwise.
    read_everything: str
    backtest: Backtest
    #: Every method on the same windows.
    compared: tuple[Score, ...]
    sensors: tuple[SensorRow, ...]
    segments: tuple[Segment, ...]
    outage: Outage
    #: None without times.
    criteria: Criteria | None
    #: None without a read rate.
    worth: Worth | None
    cautions: tuple[str, ...]


def spaced(value: Any, form: str) -> str:
    """Return the value in a format of Python, with a blank before the sign of a percentage.

    >>> spaced(0.978, ".1%"), spaced(12, "4.0f")
    ('97.8 %', '  12')
    """
    return format(value, form).replace("%", " %")


def show_rate(rate: float) -> str:
    """Return a read rate with three digits.

    >>> show_rate(5.0834), show_rate(19234.0)
    ('5.08', '19,200')
    """
    return f"{float(f'{rate:.3g}'):,.0f}" if rate >= 1000 else f"{rate:.3g}"


def report_text(plan: SensorPlan) -> str:
    """Return the plan as text; control characters of names in the file appear as escapes."""
    problems = [sensor for sensor in plan.sensors if sensor.certified[0] < 0.5]
    others = [sensor for sensor in plan.sensors if sensor.certified[0] >= 0.5]
    test = plan.backtest
    permitted = math.floor(plan.question.delta * test.N + test.slack_errors + 1e-9)
    return render(
        Path(__file__).with_name("templates"),
        "plan.txt.j2",
        plan=plan,
        question=plan.question,
        test=test,
        permitted=permitted,
        shown=problems + others[:LISTED],
        most=LISTED,
        least_saving=LEAST_SAVING,
        f=spaced,
        rate=show_rate,
    )
