"""The file plan.json: written whole, read back checked, described by a JSON schema."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from aftlib.core.paths import write_whole

VERSION = 1

_NUMBER, _INTEGER, _TEXT = ({"type": kind} for kind in ("number", "integer", "string"))
_MAYBE, _TEXT_OR_NONE = ({"type": [kind, "null"]} for kind in ("number", "string"))
_SHARE = _NUMBER | {"minimum": 0, "maximum": 1}
_POSITIVE = _NUMBER | {"exclusiveMinimum": 0}
_COUNT = _INTEGER | {"minimum": 1}


def _said(what: dict[str, Any], description: str) -> dict[str, Any]:
    return what | {"description": description}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _or_none(what: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [what, {"type": "null"}]}


_NAMES = _list(_TEXT)
_INTERVAL = {"type": ["array", "null"], "items": _NUMBER, "minItems": 2, "maxItems": 2}

_SOURCE = _object(
    path=_TEXT,
    sha256=_TEXT,
    long=_or_none(_NAMES),
    time=_TEXT_OR_NONE,
    resample=_TEXT_OR_NONE,
    drop=_NAMES,
    missing=_list(_NUMBER),
    decimal=_TEXT_OR_NONE,
)
_DATA = _object(
    name=_TEXT,
    taken=_said(_NAMES, "what was taken for time, step and sensors, in words"),
    steps=_INTEGER,
    step_seconds=_MAYBE,
    windows=_INTEGER,
    quality={"type": "object", "additionalProperties": _INTEGER},
)
_DATA["properties"]["source"] = _said(
    _SOURCE | {"type": ["object", "null"]},
    "which file it was, and how it was read; the pipelines read it again",
)
_QUESTION = _object(
    epsilon=_said(
        {"type": "object", "additionalProperties": _POSITIVE},
        "largest error of a window's result, sensor by sensor",
    ),
    delta=_POSITIVE | {"exclusiveMaximum": 1},
    t_sla_ms=_POSITIVE,
    window=_said(_COUNT, "steps"),
    slide=_said(_COUNT, "steps"),
    query={"enum": ["mean", "sum"]},
    workers=_COUNT,
    horizons=_COUNT,
    fixed_ms=_NUMBER,
    per_tuple_ms=_NUMBER,
)
_REPLAY = _object(
    **{"from": _INTEGER},
    until=_INTEGER,
    sensors=_NAMES,
    tuples=_INTEGER,
    ms=_said(_NUMBER, "how long that takes, at most T_SLA"),
)
_BACKTEST = _object(
    declared_recoverable=_said(
        _SHARE,
        "share of (sensor, window) pairs of the second half that were "
        "declared recoverable before the loss, horizons weighted H : … : 1",
    ),
    within_epsilon=_said(
        _or_none(_SHARE), "share of those whose estimate was within ε; null without any"
    ),
    interval=_said(_INTERVAL, "95 % interval of within_epsilon"),
    worst_sensor=_said(_MAYBE, "smallest share within ε of a sensor with 400 promises or more"),
    worst_sensor_name=_TEXT_OR_NONE,
    worst_stretch={"type": ["object", "null"]},
    promises=_said(_INTEGER, "declared pairs, all horizons"),
    N=_said(_INTEGER, "promises one window ahead, both halves"),
    slack_errors=_said(_NUMBER, "errors beyond δN that the theorem lets pass"),
    slack=_said(_MAYBE, "slack_errors / N"),
    replay_within=_said(
        _MAYBE,
        "share of window results of the second half within ε, had a whole "
        "window been lost and only the first replay set been read again; not guarded",
    ),
    replay_worst_sensor=_said(_MAYBE, "the same of the worst sensor"),
    excess_over_theorem=_NUMBER | {"maximum": 0},
)
_SENSOR = _object(
    name=_TEXT,
    worker=_INTEGER,
    epsilon=_NUMBER,
    explained=_said(_NUMBER, "share of its variance that sensors of other workers explain"),
    closest=_TEXT_OR_NONE,
    correlation=_NUMBER,
    declared=_said(_list(_SHARE), "horizons 1 … H"),
    within=_list(_MAYBE),
    longest=_said(_INTEGER, "windows that it may be lost for, at least half of the time"),
    now=_said(
        _list({"type": "boolean"}),
        "whether a loss after the file's end is declared recoverable",
    ),
    N=_list(_INTEGER),
    slack=_list(_MAYBE),
    least_epsilon=_said(_MAYBE, "smallest ε that would be worth asking"),
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A plan for sensors, with its promise back-tested",
    **_object(
        version={"const": VERSION, "description": "raised when a field changes its meaning"},
        data=_DATA,
        question=_QUESTION,
        assignment=_said(_list(_NAMES), "the sensors of each worker"),
        checkpoints=_said(
            _list(_INTEGER), "steps since a window began at which a checkpoint is taken"
        ),
        replay=_said(
            _list(_REPLAY), "sensors that are read again when the window fails between two times"
        ),
        backtest=_BACKTEST,
        compared=_list(_object(method=_TEXT, declared=_SHARE, within=_MAYBE, interval=_INTERVAL)),
        sensors=_list(_SENSOR),
        stretches=_list({"type": "object"}),
        cautions=_said(_NAMES, "what to know before trusting the plan"),
    ),
}


def write_plan(plan: dict, path: Path | str) -> Path:
    """Write a plan as JSON, whole or not at all."""
    text = json.dumps(_plain(plan), ensure_ascii=False, indent=1, allow_nan=False)
    return write_whole(path, text + "\n")


def read_plan(path: Path | str) -> dict:
    """Read a plan that `write_plan` wrote; ValueError when it is none, or of another version."""
    try:
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(plan, dict):
            raise ValueError(f"{type(plan).__name__} instead of an object")
    except (OSError, TypeError, ValueError, RecursionError) as error:
        told = str(path) if isinstance(path, Path) else path
        raise ValueError(
            f"plan must name a file that aft plan wrote, got {told!r} ({error})"
        ) from error
    missing = [name for name in SCHEMA["required"] if name not in plan]
    if missing and plan.get("version", VERSION) == VERSION:
        raise ValueError(f"plan {str(path)!r} lacks {', '.join(missing)}: make it anew by aft plan")
    if plan["version"] != VERSION:
        raise ValueError(
            f"plan {str(path)!r} is of version {plan['version']!r}, this library's is {VERSION}: "
            "make it anew by aft plan"
        )
    return plan


def _plain(value: Any) -> Any:
    """The value with numbers that JSON lacks as null."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
