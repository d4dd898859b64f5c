"""The file plan.json: what a machine reads from it, checked; the rest is for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from aftlib.core.paths import write_whole
from aftlib.sensor_plans.question import Question

VERSION = 2


class Data(BaseModel):
    """The samples for which the plan was made."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: str
    step_seconds: float | None  # None: the data have no times
    seasons_in_windows: list[float]  # seasonal periods, the strongest first


class Replay(BaseModel):
    """The sensors to read again after a failure of all machines between two steps of a window."""

    model_config = ConfigDict(strict=True)

    begin: int = Field(alias="from")
    until: int
    sensors: list[str]
    tuples: int
    ms: float | None  # recovery time; None: it never ends


class Plan(BaseModel):
    """A plan for sensors, with its guarantee back-tested.

    `Promise.from_plan` reads these fields as JSON, so their names and meaning stay:
    ``assignment`` (a list of the sensors' names of each worker), ``data.step_seconds``,
    ``data.seasons_in_windows`` and ``question`` with ``epsilon`` (by sensor), ``delta``,
    ``window`` and ``slide`` (in steps), ``query`` and ``horizons``.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    version: Literal[2]  # raised when a field changes its meaning
    data: Data
    question: dict[str, Any]
    assignment: list[Annotated[list[str], Field(min_length=1)]]
    checkpoints: list[int]  # steps since a window began
    replay: list[Replay]

    @field_validator("question")
    @classmethod
    def require_question(cls, question: dict[str, Any]) -> dict[str, Any]:
        """Refuse a question that is none."""
        Question(**{name: question[name] for name in Question.model_fields if name in question})
        return question


def write_plan(plan: dict[str, Any], path: Path | str) -> Path:
    """Write a plan as JSON, whole or not at all."""
    text = Plan.model_validate(plan).model_dump_json(by_alias=True, indent=1)
    return write_whole(path, text + "\n")


def read_plan(path: Path | str) -> dict[str, Any]:
    """Read a plan that `write_plan` wrote; ValueError for another file or version."""
    try:
        return Plan.model_validate_json(Path(path).read_bytes()).model_dump(by_alias=True)
    except (ValidationError, ValueError, OSError) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ValueError(
            f"plan must name a file that this version of aft plan wrote, got {str(path)!r} "
            f"({reason}); make a new plan"
        ) from error
