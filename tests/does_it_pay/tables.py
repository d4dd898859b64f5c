"""Measurements as the cost model predicts them, with a little seeded noise."""

from itertools import product

import numpy as np
import pandas as pd

from aftlib.core.recovery_costs import RecoveryCosts
from aftlib.does_it_pay.break_even import COMPARED
from aftlib.does_it_pay.experiments import Measurements
from aftlib.does_it_pay.schemes import EXACT, EXACT_PROCESS, GUARD, MODEL, NOTHING, PARTIAL

SENSORS, WINDOWS, RATES = 12, (6, 24), (100.0, 400.0, 1600.0, np.inf)
SAMPLE_S = 1e-8
COSTS = {
    NOTHING: RecoveryCosts(0.010, SAMPLE_S, 0.0, 0.002),
    EXACT: RecoveryCosts(0.010, SAMPLE_S, 0.0, 0.002),
    MODEL: RecoveryCosts(0.010, SAMPLE_S, 0.020, 0.002),
    GUARD: RecoveryCosts(0.010, SAMPLE_S, 0.040, 0.002),
    EXACT_PROCESS: RecoveryCosts(0.012, SAMPLE_S, 0.0, 0.004),
    PARTIAL: RecoveryCosts(0.012, SAMPLE_S, 0.030, 0.004),
}
SHARES = {NOTHING: 0.0, EXACT: 0.5, MODEL: 0.0, GUARD: 0.0, EXACT_PROCESS: 0.8, PARTIAL: 0.15}
"""Share of a window's samples that is read again."""


def measurements(noise=0.0002, kills=9, seed=3):
    """Return `Measurements` of all schemes."""
    rng, rows, outcomes = np.random.default_rng(seed), [], []
    for (scheme, costs), width in product(COSTS.items(), WINDOWS):
        about = {"scheme": scheme, "width": width}
        again, approximate = SHARES[scheme] * SENSORS * width, scheme in COMPARED
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
    frames = map(pd.DataFrame, (rows, outcomes))
    return Measurements(*frames, sample_s=SAMPLE_S, workers=2, checkpoints=2)
