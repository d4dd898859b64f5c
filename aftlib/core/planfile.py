"""The file plan.json: its versioned model, and the samples for which a plan was made.

`aft plan` writes the file, and the pipelines of D1 and D2 run from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass as checked_dataclass

from aftlib.core.checks import listed, require_number
from aftlib.core.datasets import Reading
from aftlib.core.gaussian import GaussianModel
from aftlib.core.paths import write_whole
from aftlib.core.sensorlog import SensorLog
from aftlib.core.sensortable import SensorTable
from aftlib.core.windows import Windows

VERSION = 1
SHRINKAGE = 1e-4
"""Shrinkage of the model of window results; it permits sensors that repeat each other."""
_NEW_PLAN = "make a new plan by aft plan"

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True))
class Source(Reading):
    """The file of samples, and the options with which it was read."""

    path: str
    sha256: str

    @classmethod
    def of(cls, data: Path | str, reading: Reading = Reading()) -> Self:  # noqa: B008 - frozen
        """Return the source that describes a file as it is now."""
        path = Path(data).resolve()
        return cls(path=str(path), sha256=digest_of(path), **asdict(reading))

    def read_again(self, folder: Path) -> SensorTable:
        """Read the file at its old path or in `folder`; ValueError if it is missing or changed."""
        path = Path(self.path)
        places = [p for p in (path, folder / path.name) if p.exists() or glob(str(p))]
        if places and not places[0].is_file() and self.long is None:
            raise ValueError(
                f"data must be one file that fits into memory, got the files {str(path)!r}; "
                "plan for a part of them"
            )
        if not places:
            raise ValueError(
                f"data must be at {str(path)!r} or next to the plan, got no such file; put it "
                f"back, or {_NEW_PLAN}"
            )
        if digest_of(places[0]) != self.sha256:
            raise ValueError(f"data have changed, in {str(places[0])!r}: {_NEW_PLAN}")
        return self.read(places[0])


def digest_of(data: Path) -> str:
    """SHA-256 of a file, or of the names and contents of the files of a directory or pattern."""
    if data.is_file():
        with data.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    paths = data.iterdir() if data.is_dir() else map(Path, glob(str(data)))
    parts = [(path.name, digest_of(path)) for path in sorted(paths) if path.is_file()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class Part(BaseModel):
    """A part of plan.json; it converts no types, and keeps unknown fields of later versions."""

    model_config = ConfigDict(strict=True, extra="allow")


class Data(Part):
    """Description of the samples for which the plan was made."""

    name: str
    taken: list[str]  # time, step and sensors as they were read, in words
    steps: int
    step_seconds: float | None
    windows: int
    quality: dict[str, int]
    source: Source | None  # the file, which the pipelines read again
    seasons_in_windows: list[Positive] = []  # seasonal periods


class Question(Part):
    """The requirement that the plan must meet."""

    epsilon: dict[str, Positive]  # largest error of a window's result, by sensor
    delta: Annotated[float, Field(gt=0, lt=1)]
    t_sla_ms: Positive
    window: Count  # steps
    slide: Count  # steps
    query: Literal["mean", "sum"]
    workers: Count
    horizons: Count
    fixed_ms: NotNegative
    per_tuple_ms: NotNegative


class Replay(Part):
    """The sensors to read again after a failure between two steps of a window."""

    begin: int = Field(alias="from")
    until: int
    sensors: list[str]
    tuples: int
    ms: float  # recovery time, at most T_SLA


class Backtest(Part):
    """Every window of the second half, estimated as if it had been lost."""

    declared_recoverable: Share  # share of (sensor, window) pairs certified, weighted H : … : 1
    within_epsilon: Share | None  # share of those within ε; null without any
    interval: Interval | None  # 95 % interval of within_epsilon
    worst_sensor: float | None  # smallest within_epsilon of a sensor with 400 guarantees or more
    worst_sensor_name: str | None
    worst_stretch: dict[str, Any] | None
    promises: int  # certified pairs, all horizons
    N: int  # guarantees one window ahead, both halves
    slack_errors: float  # errors beyond δN that the theorem permits
    slack: float | None  # slack_errors / N
    replay_within: float | None  # share within ε when only the first replay set is read again
    replay_worst_sensor: float | None  # the same for the worst sensor; the guard covers neither
    excess_over_theorem: Annotated[float, Field(le=0)]


class Method(Part):
    """The back-test of one method; all methods have the same windows."""

    method: str
    declared: Share
    within: float | None
    interval: Interval | None


class Sensor(Part):
    """The back-test of one sensor; lists have an entry per horizon, 1 … H windows."""

    name: str
    worker: int
    epsilon: float
    explained: float | None  # share of its variance that other workers' sensors explain
    closest: str | None
    correlation: float | None  # with the closest sensor
    declared: list[Share]
    within: list[float | None]
    longest: int  # length in windows of the longest outage that is certified half of the time
    now: list[bool]  # whether a loss after the file's end is certified
    N: list[int]
    slack: list[float | None]
    least_epsilon: float | None  # smallest ε worth asking for


class Worth(Part):
    """Comparison of exact recovery and approximate recovery at the user's read rate."""

    read_rate: Positive  # samples per second, the running stream's included
    samples_per_s: Positive  # of the running stream
    failures_per_month: NotNegative
    constants: dict[str, NotNegative]  # seconds; see `recovery_costs.RecoveryCosts`
    schemes: list[dict[str, Any]]  # see `recovery_costs.MonthlyCost`
    recommended: str
    reason: str


class Plan(Part):
    """A plan for sensors, with its guarantee back-tested."""

    version: Literal[1]  # raised when a field changes its meaning
    data: Data
    question: Question
    assignment: list[Annotated[list[str], Field(min_length=1)]]  # the sensors of each worker
    checkpoints: list[int]  # steps since a window began
    replay: list[Replay]
    backtest: Backtest
    compared: list[Method]
    sensors: list[Sensor]
    stretches: list[dict[str, Any]]
    cautions: list[str]  # reasons to trust the plan less
    worth: Worth | None = None  # only with a read rate

    @property
    def times(self) -> tuple[int, ...]:
        """Steps at which a window begins, takes checkpoints and ends."""
        return (0, *self.checkpoints, self.question.window)

    @model_validator(mode="after")
    def require_consistent(self) -> Self:
        """Refuse parts with different sensors, and replay intervals that do not fill a window."""
        names = sorted(self.question.epsilon)
        assigned = sorted(name for worker in self.assignment for name in worker)
        if assigned != names:
            others = sorted(set(assigned) ^ set(names)) or names
            raise ValueError(
                "assignment and epsilon must have the same sensors, each once, got a difference "
                f"in {listed(others)}"
            )
        spans = [(part.begin, part.until) for part in self.replay]
        if list(self.times) != sorted(set(self.times)) or spans != list(pairwise(self.times)):
            raise ValueError(
                f"checkpoints must cut the window of {self.times[-1]} steps into the intervals of "
                f"replay, got {self.checkpoints} and {spans}"
            )
        for part in self.replay:
            if len(set(part.sensors)) < len(part.sensors) or not set(part.sensors) <= set(names):
                raise ValueError(f"replay must list sensors, each once, got {listed(part.sensors)}")
        return self


def write_plan(plan: dict, path: Path | str) -> Path:
    """Write a plan as JSON, whole or not at all; numbers that JSON lacks become null."""
    text = Plan.model_validate(plan).model_dump_json(by_alias=True, indent=1)
    return write_whole(path, text + "\n")


def read_plan(path: Path | str) -> Plan:
    """Read a plan that `write_plan` wrote; ValueError for another file or version."""
    try:
        return Plan.model_validate_json(Path(path).read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
        if first["loc"] and first["type"] != "missing":
            reason += f", got {first['input']!r:.80}"
    except OSError as error:
        reason = str(error)
    raise ValueError(
        f"plan must name a file that aft plan wrote, got {str(path)!r} ({reason}); {_NEW_PLAN}"
    )


class Headline(str):
    """A text that a notebook shows as a paragraph in bold, not as a string in quotes."""

    def _repr_markdown_(self) -> str:
        return f"**{self}**"


def headline(path: Path | str) -> Headline:
    """Return a plan's answer in two sentences; errors are those of `read_plan`."""
    plan = read_plan(path)
    test, least = plan.backtest, 1 - plan.question.delta
    answer = f"{plan.data.name}: {test.declared_recoverable:.1%} of the losses were certified"
    if test.within_epsilon is not None:
        answer += f", of these {test.within_epsilon:.1%} within ε (guaranteed: {least:.0%})"
    if plan.worth is None:
        return Headline(f"{answer}. Whether that pays, aft plan --read-rate compares.")
    return Headline(f"{answer}. Take {plan.worth.recommended}. {plan.worth.reason}")


def fitted(rows: np.ndarray, names: Sequence[str]) -> GaussianModel:
    """Fit a model to rows with gaps, also to fewer rows than sensors."""
    shrinkage: float | str = "auto" if len(rows) <= 2 * rows.shape[1] else SHRINKAGE
    frame = pd.DataFrame(rows, columns=list(names))
    return GaussianModel.fit(frame, missing="pairwise", shrinkage=shrinkage)


@dataclass(frozen=True, eq=False)
class SensorPlan:
    """The part of plan.json that the pipelines need, with samples in units of ε.

    A sample is divided by its sensor's ε, so that the tolerance is 1 for all sensors. Sensors are
    key indices.
    """

    table: SensorTable  # all samples of the plan's data, in units of ε
    digest: str  # of the data's contents
    epsilon: np.ndarray  # (n,), in the sensors' own units
    delta: float
    windows: Windows
    workers: tuple[tuple[int, ...], ...]  # the sensors of each worker
    times: tuple[int, ...]  # steps at which a window begins, takes checkpoints and ends
    replay: tuple[
        tuple[int, ...], ...
    ]  # sensors that are read again after a failure between two of these times
    seasons: tuple[float, ...]  # known seasonal periods, in windows
    t_sla_ms: float
    fixed_ms: float  # of the recovery time that the plan assumes
    per_tuple_ms: float

    @cached_property
    def model(self) -> GaussianModel:
        """Model of the first half's window results, for which the plan was made."""
        first, windows = self.table.split()[0].values, self.windows
        rows, samples = windows.aggregate(first, 0, windows.ending_in(0, len(first)))
        least = windows.width if windows.query == "sum" else windows.width / 2
        return fitted(np.where(samples >= least, rows, np.nan), self.table.names)

    def write_log(self, directory: Path) -> SensorLog:
        """Write the second half as a log below `directory`, or return the log if it exists."""
        about = (self.table.names, self.epsilon.tolist(), self.table.values.shape)
        content = hashlib.sha256(repr(about).encode())
        content.update(np.ascontiguousarray(self.table.values).data)  # differs by reading options
        path = directory / f"plan-{self.digest[:12]}-{content.hexdigest()[:12]}-second-half"
        if path.exists():
            return SensorLog.open(path)
        return self.table.split()[1].write_log(path)


def open_plan(path: Path | str) -> SensorPlan:
    """Read a plan, and the data for which it was made.

    The data must be at their old path or next to the plan, with every byte unchanged. ValueError
    when they are not, or the file is no plan of this version, or its sensors are not the data's.
    """
    plan = read_plan(path)
    question, source = plan.question, plan.data.source
    if source is None:
        raise ValueError(f"plan {str(path)!r} names no file of data: {_NEW_PLAN}")
    try:
        table = source.read_again(Path(path).parent)
        if sorted(question.epsilon) != sorted(table.names):
            others = sorted(set(question.epsilon) ^ set(table.names))
            raise ValueError(
                f"epsilon must have the data's sensors, got a difference in {listed(others)}"
            )
        require_number("window", question.window, most=len(table.values) // 4)
    except ValueError as error:
        raise ValueError(f"plan {str(path)!r}: {error}") from error
    epsilon = np.array([question.epsilon[name] for name in table.names])
    key = {name: i for i, name in enumerate(table.names)}
    return SensorPlan(
        table=SensorTable(table.values / epsilon, table.names, table.time, table.quality),
        digest=source.sha256,
        epsilon=epsilon,
        delta=question.delta,
        windows=Windows(question.window, question.slide, question.query),
        workers=tuple(tuple(sorted(key[name] for name in part)) for part in plan.assignment),
        times=plan.times,
        replay=tuple(tuple(key[name] for name in part.sensors) for part in plan.replay),
        seasons=tuple(plan.data.seasons_in_windows),
        t_sla_ms=question.t_sla_ms,
        fixed_ms=question.fixed_ms,
        per_tuple_ms=question.per_tuple_ms,
    )
