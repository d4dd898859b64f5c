"""How well a lost minimum or maximum is told by those of other workers, beside a lost mean."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.experiments.cases import ROWS, SensorCase
from aftlib.core.extremes import DRAWS, WindowExtremes
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows

STEPS = 30_000
"""Steps of the log, at most, that estimates are compared with."""


def maxima(case: SensorCase, workers: int, width: int, delta: float, seed: int) -> pd.DataFrame:
    """Half-widths of lost means, minima and maxima, and how often they held on the log.

    Rows are samples, windows tumbling ones of `width`; every worker of h-best is lost once from
    every whole window of the log. `seed` is of the draws of extremes.

    query; half_width and prior: with probability 1 − δ, of an estimate from the others and of one
    from nothing, medians over the keys; within: the share of estimates whose half-width held;
    windows.
    """
    step, samples = case.readings[ROWS].model, case.log.read(None, 0, min(case.log.steps, STEPS))
    groups = assign_spread(step, workers, Requirement(1.0, delta), uneven=True).workers
    everyone, rows = np.arange(step.size), []
    for query in ("mean", "min", "max"):
        windows = Windows(width, width, query)
        due = windows.ending_in(0, len(samples))
        truth, counts = windows.aggregate(samples, 0, due)
        truth = truth[(counts == width).all(axis=1)]
        model = step.aggregate(width)
        if query != "mean":
            draws, rng = max(DRAWS, 2 * step.size + 2), np.random.default_rng(seed)
            model = WindowExtremes(step, width, query, rng, draws)
        off = truth - model.mean
        half, prior, held = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for keys in map(np.array, groups):
            others = np.setdiff1d(everyone, keys)
            for found, observed in ((half, others), (prior, others[:0])):
                if isinstance(model, WindowExtremes):
                    found.append(model.half_width(keys, observed, delta))
                else:
                    variance = model.conditional(observed, keys)[1].diagonal()
                    found.append(Requirement(1.0, delta).half_width(variance))
            gain, _ = model.conditional(others, keys)
            held.append(np.abs(off[:, keys] - off[:, others] @ gain.T) <= half[-1])
        widths = [float(np.median(np.concatenate(found))) for found in (half, prior)]
        rows.append((query, *widths, np.concatenate(held, axis=1).mean(), len(truth)))
    return pd.DataFrame(rows, columns=["query", "half_width", "prior", "within", "windows"])
