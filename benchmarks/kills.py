"""A long series of kills of D3's tasks and servers, whose result claim D3-8 reads.

python -m benchmarks kills
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from aftlib.shared_state.experiments import kills
from aftlib.spark.session import session

TURNS = int(os.environ.get("AFT_KILL_TURNS", "30"))  # five kills each, and a broken control


def run() -> dict[str, Any]:
    """Return for each point the kills, and how many of them left wrong sums or disturbed a task."""
    spark = session("benchmark")
    with tempfile.TemporaryDirectory() as folder:
        frame = kills(spark, Path(folder), tuples=400_000, seed=11, turns=TURNS)
    frame[["wrong", "disturbed"]] = (frame[["wrong", "disturbed"]] > 0).astype(int)
    counts = {
        "kills": ("turn", "count"),
        "wrong": ("wrong", "sum"),
        "disturbed": ("disturbed", "sum"),
    }
    points = frame.groupby(["killed", "point"], sort=False, as_index=False).agg(**counts)
    return {"kills": points.to_dict("records")}
