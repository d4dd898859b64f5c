"""What a machine reads from plan.json, which `aft plan` writes in `sensor_plans`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

VERSION = 2


def read_plan(path: Path | str) -> Any:
    """Return a plan's `assignment`, and `question` and `data` with their fields as attributes.

    ValueError when the file is no plan of this version.
    """
    try:
        plan = json.loads(Path(path).read_bytes())
        if plan["version"] != VERSION:
            raise ValueError(f"version {plan['version']} instead of {VERSION}")
        parts = {name: SimpleNamespace(**plan[name]) for name in ("question", "data")}
        return SimpleNamespace(assignment=plan["assignment"], **parts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"plan must name a file that this version of aft plan wrote, got {str(path)!r} "
            f"({error}); make a new plan"
        ) from error
