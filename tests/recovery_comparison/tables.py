"""Measurements as the cost model predicts them, with a little seeded noise."""

from itertools import product

import numpy as np
import pandas as pd

from aftlib.core.recovery_costs import RecoveryCosts
from aftlib.recovery_comparison.experiments import Measurements, NotebookParameters
from aftlib.recovery_comparison.normal import UNPROTECTED, checkpoints_name
from aftlib.recovery_comparison.schemes import (
    EXACT,
    EXACT_PROCESS,
    GUARD,
    LAST,
    MODEL,
    NOTHING,
    PARTIAL,
    exact_of,
)

SENSORS, WINDOWS, RATES = 12, (6, 24), (100.0, 400.0, 1600.0, np.inf)
SAMPLE_S = 1e-8
COSTS = {
    NOTHING: RecoveryCosts(0.010, SAMPLE_S, 0.0, 0.002),
    EXACT: RecoveryCosts(0.010, SAMPLE_S, 0.0, 0.002),
    MODEL: RecoveryCosts(0.010, SAMPLE_S, 0.020, 0.002),
    GUARD: RecoveryCosts(0.010, SAMPLE_S, 0.040, 0.002),
    LAST: RecoveryCosts(0.010, SAMPLE_S, 0.025, 0.002),
    EXACT_PROCESS: RecoveryCosts(0.012, SAMPLE_S, 0.0, 0.004),
    PARTIAL: RecoveryCosts(0.012, SAMPLE_S, 0.030, 0.004),
}
SHARES = {NOTHING: 0.0, EXACT: 0.5, MODEL: 0.0, GUARD: 0.0, LAST: 0.0}
SHARES |= {EXACT_PROCESS: 0.8, PARTIAL: 0.15}
"""Share of a window's samples that is read again."""
SPEEDS = {UNPROTECTED: 1.0, checkpoints_name(1): 0.9, checkpoints_name(4): 0.5}
SPEEDS |= {checkpoints_name(24): 0.2, MODEL: 0.95, GUARD: 0.7, LAST: 1.0}
"""Throughput of each method while nothing fails."""


def measurements(noise=0.0002, kills=9, seed=3, turns=8):
    """Return `Measurements` of all schemes."""
    rng = np.random.default_rng(seed)
    rows, outcomes, accuracy = [], [], []
    for (scheme, costs), width in product(COSTS.items(), WINDOWS):
        about = {"scheme": scheme, "width": width}
        again = SHARES[scheme] * SENSORS * width
        approximate = exact_of(scheme) is not None
        for rate, _ in product(RATES, range(kills)):
            parts = {
                "start_s": costs.start_s + abs(noise * rng.standard_normal()),
                "read_s": again * (1 / rate + SAMPLE_S),
                "estimate_s": approximate * costs.estimate_s,
                "commit_s": costs.checkpoint_s + noise * rng.random(),
            }
            times = {"rate": rate, "seconds": sum(parts.values()), **parts}
            rows.append(about | times | {"again": again})
        harms = {"kills": 50, "lost": 100 if scheme == NOTHING else 0, "doubled": 0, "wrong": 0}
        harms |= {"added_ms": 2.0, "additions": 1}
        outcomes.append(about | harms | {"estimated": 60 * approximate, "within": 0.97})
        if exact_of(scheme) == EXACT:
            within = 0.7 if scheme == LAST else 0.97
            shares = {"within": within, "low": within - 0.02, "high": within + 0.02}
            accuracy.append(about | {"lost": 1000, "estimated": 1.0} | shares)
    backups = {"threshold": 1.0, "backups": 0.5, "again": 0, "largest": 0.9}
    backups |= {"restored": 1.0, "item_lost": 0.98, "outage": 0.43}
    normal = []
    for turn, (method, speed) in product(range(turns), SPEEDS.items()):
        count = int(method.split()[1]) if method.startswith("checkpoints") else 0
        times = {"per_s": 1e5 * speed * (1 + noise * rng.random()), "latency_s": 1e-3 / speed}
        normal.append({"turn": turn, "method": method, "checkpoints": count} | times)
    return Measurements(
        recoveries=pd.DataFrame(rows),
        outcomes=pd.DataFrame(outcomes),
        accuracy=pd.DataFrame(accuracy),
        thresholds=pd.DataFrame([{"width": width} | backups for width in WINDOWS]),
        normal=pd.DataFrame(normal),
        sample_s=SAMPLE_S,
        case=NotebookParameters().read_case(WINDOWS[-1]),
        checkpoints=2,
    )
