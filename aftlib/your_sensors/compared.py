"""The guard beside what else one could do: shares promised and kept, a line a method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aftlib.core.gaussian import GaussianModel
from aftlib.your_sensors.backtest import (
    ALWAYS,
    CONFORMAL,
    DECLARED,
    GUARD,
    LAST,
    LINEAR,
    PAIRS,
    PLAIN,
    PLAIN_ALL,
    WRONG,
    Walk,
)

HINDSIGHT = "plain model, honest in hindsight"
SHOWN = (GUARD, PLAIN, ALWAYS, CONFORMAL, LINEAR, LAST)


def compared(walk: Walk, plain: GaussianModel, workers: Sequence[Sequence[int]]) -> list[dict]:
    """Share promised and share of those within ε, of every method, on the same windows."""
    lines = []
    for method in SHOWN:
        summary = walk.summary(method)
        shown = {name: summary[name] for name in ("declared", "within", "interval")}
        lines.append({"method": method} | shown)
    return [*lines, {"method": HINDSIGHT} | hindsight(walk, plain, workers)]


def hindsight(walk: Walk, plain: GaussianModel, workers: Sequence[Sequence[int]]) -> dict:
    """Most sensors that the plain model could have promised for without breaking the promise.

    It ranks them by the error that it foresees, and the number is chosen afterwards: no real
    system could. That is what the guard's share is fairly held against.
    """
    variance = np.empty(plain.size)
    for keys in map(list, workers):
        variance[keys] = plain.block_variance(keys)
    sensors = walk.of(PLAIN_ALL).sum(axis=0)
    order = np.argsort(variance / np.diag(plain.covariance))
    total = np.cumsum(sensors[order], axis=0)
    honest = total[:, WRONG] <= walk.delta * total[:, DECLARED]
    most = int(np.flatnonzero(honest).max(initial=-1)) + 1
    if not most:
        return {"declared": 0.0, "within": None, "interval": None}
    declared, wrong = total[most - 1, DECLARED], total[most - 1, WRONG]
    share = float(declared / sensors[:, PAIRS].sum())
    return {"declared": share, "within": float(1 - wrong / declared), "interval": None}
