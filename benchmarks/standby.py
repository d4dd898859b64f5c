"""D4's recursion, its event simulation and ns-3 side by side, as JSON.

    python -m benchmarks standby

Recursion and event simulation take the same stream with the same failure in one process; the
agreement with ns-3 is over its stored runs.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import numpy as np

from aftlib.upstream_backup.experiments.recoveries import COUNT_LIMIT, TIME_LIMIT, against_ns3
from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.parameters import Parameters
from aftlib.upstream_backup.recursion import Simulated, simulate
from aftlib.upstream_backup.schemes import SCHEMES
from benchmarks.timing import best_of, say
from tests.upstream_backup import event_simulation

RATES = (200, 1000, 5000, 20_000)
EVENT_TUPLES, SWEEP_TUPLES, REPEATS = 20_000, 1_000_000, 5


def run() -> dict[str, Any]:
    """Tuples per second of both engines, their ratio, and the agreement with ns-3."""
    return {"engines": [engines(rate) for rate in RATES], "ns3": agreement()}


def engines(rate: int) -> dict[str, Any]:
    """Both engines over all schemes at one rate, on equal streams; the vectorised on long ones."""
    parameters, fast, slow, alike = Parameters(rate=rate), 0.0, 0.0, 0.0
    for name in SCHEMES:
        say(f"{rate} tuples/s, {name}")
        short = [Failure(max(500.0, 700 * EVENT_TUPLES / rate))]
        until = short[0].at_ms + 300
        stream = (parameters, name, short, until)
        seconds, reference = best_of(1, partial(event_simulation.simulate, *stream))
        slow += seconds
        seconds, same = best_of(REPEATS, partial(simulate, *stream))
        alike += seconds
        equal(reference, same)
        long = [Failure(500.0 + 1000 * SWEEP_TUPLES / rate)]
        seconds, _ = best_of(REPEATS, partial(simulate, parameters, name, long))
        fast += seconds
    tuples = len(same.written)
    return {
        "rate": rate,
        "events_tuples_per_s": round(len(SCHEMES) * tuples / slow),
        "vectorised_tuples_per_s_same_stream": round(len(SCHEMES) * tuples / alike),
        "vectorised_tuples_per_s": round(len(SCHEMES) * SWEEP_TUPLES / fast),
        "ratio_same_stream": round(slow / alike, 1),
        "ratio": round(slow / fast * SWEEP_TUPLES / tuples, 1),
    }


def equal(one: Simulated, other: Simulated) -> None:
    """Stop unless both engines give the same results."""
    if not np.array_equal(one.delivered, other.delivered):
        sys.exit("the engines differ: their speeds cannot be compared")


def agreement() -> dict[str, Any]:
    """Largest relative differences from ns-3, and whether every rate is inside the limits."""
    table = against_ns3()
    count, duration = table["resent_error"].abs(), table["recovery_ms_error"].abs()
    rows = table[["scheme", "rate", "resent_error", "recovery_ms_error"]]
    return {
        "largest_count_error": float(count.max()),
        "largest_time_error": float(duration.max()),
        "within_limits": bool(count.max() <= COUNT_LIMIT and duration.max() <= TIME_LIMIT),
        "table": json.loads(rows.to_json(orient="records", double_precision=4)),
    }
