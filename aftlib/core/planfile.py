"""The file plan.json, which `aft plan` writes, and `Promise.from_plan` and notebook 06 read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aftlib.core.paths import write_whole

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
