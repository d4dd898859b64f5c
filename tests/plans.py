"""The smallest plan.json from which a pipeline runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aftlib.core.planfile import VERSION


def write_plan(place: Path, source: None, parts: list[tuple], /, **changes: Any) -> Path:
    """Write a plan of sensors a, b, … to a file; `parts` of a window are (from, until, sensors).

    The names of `changes` are "part" or "part.name".
    """
    plan: dict[str, Any] = {
        "version": VERSION,
        "learned": None,
        "data": {
            **{"name": "sensors.csv", "step_seconds": 3600, "seasons_in_windows": [4.8]},
        },
        "question": {
            **{"delta": 0.1, "window": parts[-1][1], "slide": 5, "query": "mean"},
            **{"t_sla_ms": 30, "fixed_ms": 2, "per_tuple_ms": 1, "workers": 2, "horizons": 5},
        },
        "checkpoints": [begin for begin, _, _ in parts[1:]],
        "replay": [
            {"from": begin, "until": end, "sensors": sensors, "tuples": 1, "ms": 1}
            for begin, end, sensors in parts
        ],
    }
    for name, value in changes.items():
        part, _, within = name.partition(".")
        plan |= {part: plan[part] | {within: value} if within else value}
    place.write_text(json.dumps(plan))
    return place
