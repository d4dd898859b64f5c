"""The file plan.json, which `aft plan` writes, and `Promise.from_plan` and notebook 06 read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Self

from aftlib.core.storage import write_whole

VERSION = 2
"""Raised when a field changes its meaning."""


def write_plan(plan: Mapping[str, Any], path: Path | str) -> Path:
    """Write a plan as JSON, whole or not at all."""
    return write_whole(path, json.dumps(plan, allow_nan=False, ensure_ascii=False, indent=1) + "\n")


def read_plan(path: Path | str) -> dict[str, Any]:
    """Return the fields of a plan; ValueError when the file is no plan of this version.

    A program may rely on these: ``assignment`` (a list of the sensors' names of each worker);
    ``data.step_seconds`` (None without times) and ``data.seasons_in_windows``; ``question`` with
    ``epsilon`` (by sensor), ``delta``, ``window`` and ``slide`` (in steps), ``query`` and
    ``horizons``; ``checkpoints`` (steps since a window began); and ``replay``, the sensors to read
    again after a failure of all machines between two steps of a window.
    """
    try:
        plan = json.loads(Path(path).read_bytes())
        if plan["version"] != VERSION:
            raise ValueError(f"version {plan['version']} instead of {VERSION}")
        if lacking := {"assignment", "question", "data"} - {*plan}:
            raise ValueError(f"{min(lacking)} is missing")
        return dict(plan)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"plan must name a file that this version of aft plan wrote, got {str(path)!r} "
            f"({error}); make a new plan"
        ) from error


@dataclass(frozen=True)
class StreamPlan:
    """What a stream needs of a plan; durations are numbers of steps unless they say otherwise."""

    assignment: tuple[tuple[str, ...], ...]
    """The sensors of each worker."""
    epsilon: Mapping[str, float]
    """Limit ε of each sensor, in its unit."""
    delta: float
    window: int
    slide: int
    query: str
    horizons: int
    step_seconds: float | None
    """None without times."""
    seasons_in_windows: tuple[float, ...]

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read the file that ``aft plan`` wrote.

        ValueError when it is no plan of this version; the message names a field that is missing or
        has a value of another kind.
        """
        plan = read_plan(path)

        def field(name: str, kind: str, fits: Callable[[Any], bool]) -> Any:
            value: Any = plan
            for part in name.split("."):
                if not isinstance(value, dict) or part not in value:
                    raise ValueError(
                        f"plan must have {name}, got {str(path)!r} without it: make a new plan"
                    )
                value = value[part]
            if not fits(value):
                raise ValueError(
                    f"{name} must be {kind}, got {value!r:.80} in {str(path)!r}: make a new plan"
                )
            return value

        return cls(
            assignment=tuple(map(tuple, field("assignment", "lists of names", is_assignment))),
            epsilon=field("question.epsilon", "a number by sensor", is_numbers_by_name),
            delta=field("question.delta", "a number", is_number),
            window=field("question.window", "a number of steps", is_count),
            slide=field("question.slide", "a number of steps", is_count),
            query=field("question.query", "a text", lambda value: isinstance(value, str)),
            horizons=field("question.horizons", "a number of windows", is_count),
            step_seconds=field(
                "data.step_seconds", "a number or null", lambda x: x is None or is_positive(x)
            ),
            seasons_in_windows=tuple(
                field("data.seasons_in_windows", "a list of numbers", is_positive_list)
            ),
        )


def is_number(value: Any) -> bool:
    """Whether a value of JSON is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def is_positive(value: Any) -> bool:
    """Whether a value of JSON is a number above 0."""
    return is_number(value) and value > 0


def is_count(value: Any) -> bool:
    """Whether a value of JSON is a whole number above 0."""
    return isinstance(value, int) and is_positive(value)


def is_positive_list(value: Any) -> bool:
    """Whether a value of JSON is a list of numbers above 0."""
    return isinstance(value, list) and all(map(is_positive, value))


def is_numbers_by_name(value: Any) -> bool:
    """Whether a value of JSON has a number for each name."""
    return isinstance(value, dict) and all(map(is_number, value.values()))


def is_assignment(value: Any) -> bool:
    """Whether a value of JSON is a list of lists of names."""
    if not isinstance(value, list) or not all(isinstance(worker, list) for worker in value):
        return False
    return all(isinstance(name, str) for worker in value for name in worker)
