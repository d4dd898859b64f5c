"""The file plan.json: the part of a plan that a stream needs, and plans as JSON.

`aft plan` writes the file; its own plan, `aftlib.sensor_plans.sensor_plan.SensorPlan`, extends
`StreamPlan`. `Promise.from_plan` reads the `StreamPlan` of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Self, get_args, get_origin, get_type_hints

from aftlib.core.storage import write_whole

#: Raised when a field changes its name or meaning.
VERSION = 4
ABOVE_0 = "above 0"
Count = Annotated[int, ABOVE_0]
Positive = Annotated[float, ABOVE_0]
KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


@dataclass(frozen=True, kw_only=True)
class StreamQuestion:
    """The requirement; durations are numbers of steps of the samples, or of windows."""

    #: Limit ε of each sensor, in its unit.
    epsilon: Mapping[str, float]
    #: Permitted share δ of wrong guarantees.
    delta: float
    #: Steps of a window.
    window: Count
    #: Steps from the start of a window to the start of the next one.
    slide: Count
    #: Aggregate of a window's samples.
    query: str
    #: Windows of the longest outage with guarantees.
    horizons: Count


@dataclass(frozen=True, kw_only=True)
class StreamData:
    """Times of the samples from which the plan was made."""

    #: Seconds of a step; None if the samples have no times.
    step_seconds: Positive | None
    #: Seasonal periods, the strongest first.
    seasons_in_windows: tuple[Positive, ...]


@dataclass(frozen=True, kw_only=True)
class StreamPlan:
    """What a stream needs of a plan."""

    #: The sensors of each worker.
    assignment: tuple[tuple[str, ...], ...]
    question: StreamQuestion
    data: StreamData
    #: What the guard learned, as `aftlib.guard.learned` writes it; None without times. It is part
    #: of the file, which may so be moved and copied alone.
    learned: str | None

    def terms(self) -> dict[str, Any]:
        """Return the windows as a stream has them, durations in microseconds.

        The query is None where a window is one sample, because then it may have been any.
        ValueError when the samples have no times.
        """
        if self.data.step_seconds is None:
            raise ValueError("plan must have times, got one without step_seconds")
        step = 1e6 * self.data.step_seconds
        question = self.question
        seasons = [number * question.slide for number in self.data.seasons_in_windows]
        return {
            "window": round(question.window * step),
            "slide": round(question.slide * step),
            "query": question.query if question.window > 1 else None,
            "seasons": [round(steps * step) for steps in seasons],
        }

    def to_json(self) -> str:
        """Return the text of plan.json."""
        plan = {"version": VERSION, **asdict(self)}
        plan["learned"] = plan.pop("learned")  # one long line, at the end
        return json.dumps(plan, allow_nan=False, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the plan of a text of JSON; more fields than this class has are permitted.

        ValueError for another version, and for a missing field or one of another kind, which the
        message names.
        """
        plan = json.loads(text)
        if not isinstance(plan, dict):
            raise ValueError(f"plan must be an object of JSON, got {plan!r:.80}")
        if (version := plan.get("version")) != VERSION:
            raise ValueError(f"version must be {VERSION}, got {version!r:.80}")
        return cls(**_read_fields(cls, plan, ""))

    def write(self, path: Path | str) -> Path:
        """Write the plan to a file, whole or not at all."""
        return write_whole(path, self.to_json())

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read the file that ``aft plan`` wrote; ValueError, with the fix, for any other file."""
        try:
            return cls.from_json(Path(path).read_bytes())
        except (OSError, ValueError, OverflowError) as error:
            raise ValueError(
                f"plan must name a file that this version of aft plan wrote, got {str(path)!r} "
                f"({error}): make a new plan with aft plan"
            ) from error


def _read_fields(kind: type, values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the fields of a dataclass from an object of JSON."""
    hints = get_type_hints(kind, include_extras=True)
    read = {}
    for field in fields(kind):
        name = f"{prefix}{field.name}"
        if field.name not in values:
            raise ValueError(f"{name} is missing")
        read[field.name] = _read_value(hints[field.name], values[field.name], name)
    return read


def _read_value(kind: Any, value: Any, name: str) -> Any:
    """Return a value of JSON as a field's type; ValueError, with the field's name, for others."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is Annotated:
        number = _read_value(arguments[0], value, name)
        if number <= 0:
            raise ValueError(f"{name} must be above 0, got {value!r}")
        return number
    if origin is UnionType or type(None) in arguments:
        return None if value is None else _read_value(arguments[0], value, name)
    if origin is tuple and isinstance(value, list):
        return tuple(_read_value(arguments[0], x, f"{name}[{i}]") for i, x in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: _read_value(arguments[1], x, f"{name}.{key}") for key, x in value.items()}
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        return kind(**_read_fields(kind, value, f"{name}."))
    number = kind is float and type(value) in (int, float) and isfinite(value)
    if number or (kind is not float and type(value) is kind):
        return value
    wanted = KINDS.get(kind, "a list" if origin is tuple else "an object")
    raise ValueError(f"{name} must be {wanted}, got {value!r:.80}")
