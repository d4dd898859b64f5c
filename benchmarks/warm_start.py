"""A guard that begins with what another learned, beside one that begins without.

python -m benchmarks warm_start
AFT_DATASETS=FOLDER python -m benchmarks warm_start    # more real sets, as Parquet files

The first half of a set is learned, the second half played: every window is predicted as if its
sensor had been lost one to five windows before. ε is half a standard deviation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aftlib import Guard
from aftlib.guard.accounts import CERTIFIED
from aftlib.guard.estimator import Rules
from aftlib.guard.guards import Guards
from benchmarks.guard_peers import DELTA, HORIZONS, WEIGHTS, real_sets
from benchmarks.timing import say

FIRST = 50
"""Windows in the beginning, of which the certified share is counted."""


def run() -> dict[str, Any]:
    """For each set: without a beginning, with it, and with one of other sensors."""
    return {name: measure(name, *real_set) for name, real_set in real_sets().items()}


def measure(name: str, windows: np.ndarray, seasons: tuple[float, ...]) -> dict[str, Any]:
    """Play the second half of a set with each beginning."""
    say(name)
    half = len(windows) // 2
    n = windows.shape[1]
    limits = 0.5 * np.nanstd(windows[:half], axis=0)
    names = [str(i) for i in range(n)]
    rules = Rules.check([[i] for i in range(n)], limits, DELTA, HORIZONS, seasons)
    beginnings = {
        "all": windows[:half],
        "other sensors": np.roll(windows[:half], 1, axis=1),
    }
    cold = Guard.of_guards(Guards.begin(rules), names)
    results = {"nothing": play(cold, windows[half:], limits)}
    for beginning, rows in beginnings.items():
        before = Guard.of_guards(Guards.begin(rules), names)
        before.update(rows)
        guard = Guard.of_guards(before.learned(names, {}).begin(rules, names), names)
        results[beginning] = play(guard, windows[half:], limits)
    return results


def play(guard: Guard, windows: np.ndarray, limits: np.ndarray) -> dict[str, Any]:
    """Return when the first window was certified, shares, errors, and the least errors left."""
    decisions = []
    wrong = []
    least = np.inf
    for window in windows:
        history = guard.replay(window)
        decisions.append(history.decisions[0] == CERTIFIED)
        wrong.append(np.abs(window - history.estimate[0]) > limits)
        number, errors, slack = guard.outcomes
        least = min(least, float((DELTA * number + slack - errors).min()))
    known = np.isfinite(windows)[:, np.newaxis]
    certified = np.array(decisions) & known
    missed = certified & np.array(wrong)
    parts = {f"windows 0 to {FIRST - 1}": slice(FIRST), "all windows": slice(None)}
    shares = {}
    for name, part in parts.items():
        pairs = (WEIGHTS * np.broadcast_to(known[part], certified[part].shape)).sum()
        shares[name] = {
            "certified": round(float((WEIGHTS * certified[part]).sum() / pairs), 3),
            "wrong": int(missed[part].sum()),
            "of": int(certified[part].sum()),
        }
    first = np.flatnonzero(certified.any((1, 2)))
    return {"first certified window": int(first[0]) if first.size else None, **shares} | {
        "least errors left": round(least, 2)
    }
