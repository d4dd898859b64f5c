"""A drill's table with the expected results, written by hand."""

import pandas as pd

from aftlib.failure_drill.experiments import COLUMNS

USUAL = {
    "basis": "measured", "faults": 6, "due": 1000, "lost": 0, "doubled": 0, "estimated": 0,
    "wrong": 0, "largest_error": 0.0, "rows": 24_000, "again": 500, "restart_ms": 400.0,
    "rework_ms": 300.0, "recovery_ms": 700.0,
}  # fmt: skip
ESTIMATES = {
    "estimated": 72, "estimated_windows": 12, "within": 0.96, "share_low": 0.88, "share_high": 0.98,
}  # fmt: skip
CALM = {"overhead": 0.02, "overhead_low": 0.01, "overhead_high": 0.03}
LIKE = {
    "no fault tolerance": {"lost": 300, "again": 0, "recovery_ms": None},
    "at most once": {"lost": 40, "again": 0},
    "at least once": {"doubled": 50, "planned": 1.0, "read": 1.0},
    "exactly once": {"planned": 1.0, "read": 1.0},
    "D1 by model": ESTIMATES | {"planned": 0.28, "read": 0.28} | CALM,
    "D1 by guard": ESTIMATES | {"overhead": 0.04, "overhead_low": -0.03, "overhead_high": 0.07},
    "D2 proposed": ESTIMATES | {"planned": 0.25, "read": 0.25, "checkpoint_ms": 0.4},
    "D2 adaptive": ESTIMATES | {"planned": 0.125, "read": 0.13},
    "D3 shared state": {"restart_ms": None, "rework_ms": None, "recovery_ms": 900.0},
    "D1, its driver killed": {"restart_ms": 9000.0},
    "D3, its supervisor killed": {"restart_ms": None, "rework_ms": None},
    "D4 proposed": {"overhead": 0.04},
    "D4 active standby, simulated": {"basis": "simulated", "overhead": 0.53},
}


def long_windows(proposed_s=0.030, adaptive_s=0.021):
    """Windows of 20 ms without checkpoints, as `schemes_process.long_windows`."""
    seconds = {"no checkpoints": 0.020, "D2 proposed": proposed_s, "D2 adaptive": adaptive_s}
    turns = [
        pd.DataFrame({"plan": name, "seconds": s, "repeat": range(4)})
        for name, s in seconds.items()
    ]
    return pd.concat(turns, ignore_index=True).assign(checkpoints=3)


def good_table():
    """One row per scheme, as in `experiments.DrillResult.table`."""
    rows = [USUAL | {"scheme": name} | own for name, own in LIKE.items()]
    return pd.DataFrame(rows).set_index("scheme").reindex(columns=COLUMNS)
