"""The file plan.json: written whole, read back checked, described by a JSON schema."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from aftlib.core.paths import write_whole

VERSION = 1

_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_MAYBE = {"type": ["number", "null"]}
_NAMES = {"type": "array", "items": {"type": "string"}}
_INTERVAL = {"type": ["array", "null"], "items": {"type": "number"}, "minItems": 2, "maxItems": 2}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A plan for sensors, with its promise back-tested",
    **_object(
        version={"const": VERSION, "description": "raised when a field changes its meaning"},
        data=_object(
            name={"type": "string"},
            taken={**_NAMES, "description": "what was taken for time, step and sensors, in words"},
            steps={"type": "integer"},
            step_seconds=_MAYBE,
            windows={"type": "integer"},
            quality={"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        question=_object(
            epsilon={
                "type": "object",
                "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
                "description": "largest error of a window's result, sensor by sensor",
            },
            delta={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            t_sla_ms={"type": "number", "exclusiveMinimum": 0},
            window={"type": "integer", "minimum": 1, "description": "steps"},
            slide={"type": "integer", "minimum": 1, "description": "steps"},
            query={"enum": ["mean", "sum"]},
            workers={"type": "integer", "minimum": 1},
            horizons={"type": "integer", "minimum": 1},
            fixed_ms={"type": "number"},
            per_tuple_ms={"type": "number"},
        ),
        assignment={
            "type": "array",
            "items": _NAMES,
            "description": "the sensors of each worker",
        },
        checkpoints={
            "type": "array",
            "items": {"type": "integer"},
            "description": "steps since a window began at which a checkpoint is taken",
        },
        replay={
            "type": "array",
            "description": "sensors that are read again when the window fails between two times",
            "items": _object(
                **{"from": {"type": "integer"}},
                until={"type": "integer"},
                sensors=_NAMES,
                tuples={"type": "integer"},
                ms={"type": "number", "description": "how long that takes, at most T_SLA"},
            ),
        },
        backtest=_object(
            declared_recoverable={
                **_SHARE,
                "description": "share of (sensor, window) pairs of the second half that were "
                "declared recoverable before the loss, horizons weighted H : … : 1",
            },
            within_epsilon={
                "anyOf": [_SHARE, {"type": "null"}],
                "description": "share of those whose estimate was within ε; null without any",
            },
            interval={**_INTERVAL, "description": "95 % interval of within_epsilon"},
            worst_sensor={
                **_MAYBE,
                "description": "smallest share within ε of a sensor with 400 promises or more",
            },
            worst_sensor_name={"type": ["string", "null"]},
            worst_stretch={"type": ["object", "null"]},
            promises={"type": "integer", "description": "declared pairs, all horizons"},
            N={"type": "integer", "description": "promises one window ahead, both halves"},
            slack_errors={
                "type": "number",
                "description": "errors beyond δN that the theorem lets pass",
            },
            slack={**_MAYBE, "description": "slack_errors / N"},
            replay_within={
                **_MAYBE,
                "description": "share of window results of the second half within ε, had a whole "
                "window been lost and only the first replay set been read again; not guarded",
            },
            replay_worst_sensor={**_MAYBE, "description": "the same of the worst sensor"},
            excess_over_theorem={"type": "number", "maximum": 0},
        ),
        compared={
            "type": "array",
            "items": _object(
                method={"type": "string"}, declared=_SHARE, within=_MAYBE, interval=_INTERVAL
            ),
        },
        sensors={
            "type": "array",
            "items": _object(
                name={"type": "string"},
                worker={"type": "integer"},
                epsilon={"type": "number"},
                explained={
                    "type": "number",
                    "description": "share of its variance that sensors of other workers explain",
                },
                closest={"type": ["string", "null"]},
                correlation={"type": "number"},
                declared={"type": "array", "items": _SHARE, "description": "horizons 1 … H"},
                within={"type": "array", "items": _MAYBE},
                longest={
                    "type": "integer",
                    "description": "windows that it may be lost for, at least half of the time",
                },
                now={
                    "type": "array",
                    "items": {"type": "boolean"},
                    "description": "whether a loss after the file's end is declared recoverable",
                },
                N={"type": "array", "items": {"type": "integer"}},
                slack={"type": "array", "items": _MAYBE},
                least_epsilon={**_MAYBE, "description": "smallest ε that would be worth asking"},
            ),
        },
        stretches={"type": "array", "items": {"type": "object"}},
        cautions={**_NAMES, "description": "what to know before trusting the plan"},
    ),
}
SCHEMA["properties"]["data"]["properties"]["source"] = {
    **_object(
        path={"type": "string"},
        sha256={"type": "string"},
        long={"anyOf": [_NAMES, {"type": "null"}]},
        time={"type": ["string", "null"]},
        resample={"type": ["string", "null"]},
        drop=_NAMES,
    ),
    "type": ["object", "null"],
    "description": "which file it was, and how it was read; the pipelines read it again",
}


def write_plan(plan: dict, path: Path | str) -> Path:
    """Write a plan as JSON, whole or not at all."""
    text = json.dumps(_plain(plan), ensure_ascii=False, indent=1, allow_nan=False)
    return write_whole(path, text + "\n")


def read_plan(path: Path | str) -> dict:
    """Read a plan that `write_plan` wrote.

    Raises
    ------
    ValueError
        When the file is no plan, or one of another version.
    """
    if not isinstance(path, str | Path):
        raise ValueError(f"plan must name a file that aft plan wrote, got {path!r}")
    try:
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"plan must name a file that aft plan wrote, got {path!r}") from error
    if not isinstance(plan, dict):
        raise ValueError(f"plan must name a file that aft plan wrote, got {str(path)!r}")
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
