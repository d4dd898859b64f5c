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

TURNS = int(os.environ.get("AFT_KILL_TURNS", "60"))  # five kills each, and a broken control


def run() -> dict[str, Any]:
    """Return one row per kill: what was killed and where, wrong sums, disturbed tasks."""
    spark = session("benchmark")
    with tempfile.TemporaryDirectory() as folder:
        frame = kills(spark, Path(folder), tuples=400_000, seed=11, turns=TURNS)
    columns = ["killed", "point", "turn", "wrong", "again", "disturbed"]
    return {"kills": frame[columns].to_dict("records")}
