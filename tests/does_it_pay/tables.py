"""Expected measurements, from the cost model and a little seeded noise."""

from itertools import product

import numpy as np
import pandas as pd

from aftlib.core.recovery_costs import RecoveryCosts
from aftlib.does_it_pay.break_even import COMPARED
from aftlib.does_it_pay.experiments import Measurements
from aftlib.does_it_pay.process_recoveries import ADAPTIVE, EXACT_PROCESS, PROPOSED
from aftlib.does_it_pay.spark_recoveries import EXACT, GUARD, MODEL, ON_SPARK

SENSORS, WINDOWS, RATES = 12, (12, 48), (100.0, 400.0, 1600.0, np.inf)
COSTS = {
    EXACT: RecoveryCosts(0.5, 0.0, 0.0, 0.02),
    MODEL: RecoveryCosts(0.5, 0.0, 0.05, 0.02),
    GUARD: RecoveryCosts(0.5, 0.0, 0.1, 0.02),
    EXACT_PROCESS: RecoveryCosts(0.8, 0.0, 0.0, 0.004),
    PROPOSED: RecoveryCosts(0.8, 0.0, 0.05, 0.004),
    ADAPTIVE: RecoveryCosts(0.8, 0.0, 0.06, 0.004),
}
SHARES = {EXACT: 0.5, MODEL: 0.0, GUARD: 0.0, EXACT_PROCESS: 1.0, PROPOSED: 0.15, ADAPTIVE: 0.1}
"""Share of a window's samples that is read again."""


def measurements(noise=0.002, kills=9, calm=40, within=0.99, seed=3):
    """`Measurements` of all schemes."""
    rng, rows, rest, estimates = np.random.default_rng(seed), [], [], []
    for (scheme, costs), window in product(COSTS.items(), WINDOWS):
        about = {"scheme": scheme, "sensors": SENSORS, "window": window}
        again, approximate = int(SHARES[scheme] * SENSORS * window), scheme in COMPARED
        work = costs.estimate_s if approximate else 0.0
        commit = costs.checkpoint_s + (work if scheme in ON_SPARK else 0.0)
        for rate, _ in product(RATES, range(kills)):
            seconds = costs.recovery_s(again, approximate, rate) + noise * rng.standard_normal()
            times = {"seconds": seconds, "start_s": costs.start_s, "commit_s": commit}
            times |= {"restore_s": 0.0, "read_s": 0.0, "estimate_s": work}
            times["work_s"] = seconds - costs.start_s
            rows.append(about | {"rate": rate, "again": again, "planned": again} | times)
        for _ in range(calm):
            seconds = 0.2 + noise * rng.standard_normal()
            rest.append(about | {"seconds": seconds, "latency_s": 0.05, "samples": 12 * window})
        for batch in range(200 if approximate else 0):
            off = 0.5 if rng.random() < within else 1.2
            estimates += [about | {"batch": batch, "sensor": i, "off": off} for i in range(6)]
    frames = [pd.DataFrame(part) for part in (rows, rest, estimates)]
    plans = {EXACT_PROCESS: (1.0, 2), PROPOSED: (0.3, 2), ADAPTIVE: (0.2, 2)}
    return Measurements(*frames, delta=0.05, workers=2, plans=plans)
