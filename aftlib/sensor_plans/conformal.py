"""Adaptive conformal inference on the guard's own predictions, to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np

from aftlib.core.compiling import jit

MEMORY = 300
LEAST = 50
PACE = 0.005


@jit()
def _follow(
    errors: Any,
    limits: Any,
    delta: float,
    level: Any,
    ring: Any,
    ordered: Any,
    seen: Any,
    pending: Any,
    said: Any,
) -> None:
    rounds, horizons, n = errors.shape
    for r in range(rounds):
        for h in range(horizons):
            for i in range(n):
                slot = seen[h, i, 0] % (h + 1)
                seen[h, i, 0] += 1
                width, error = pending[h, i, slot], errors[r, h, i]
                said[r, h, i] = width <= limits[i]
                if not np.isnan(error):
                    level[h, i] += PACE * (delta - (1.0 if error > width else 0.0))
                    line, count = ordered[h, i], min(seen[h, i, 1], MEMORY)
                    if count == MEMORY:
                        old = ring[h, i, seen[h, i, 1] % MEMORY]
                        k = np.searchsorted(line, old)
                        line[k : MEMORY - 1] = line[k + 1 : MEMORY].copy()
                        count -= 1
                    k = np.searchsorted(line[:count], error)
                    line[k + 1 : count + 1] = line[k:count].copy()
                    line[k] = error
                    ring[h, i, seen[h, i, 1] % MEMORY] = error
                    seen[h, i, 1] += 1
                count = min(seen[h, i, 1], MEMORY)
                rank = int(np.ceil((1 - level[h, i]) * (count + 1)))
                pending[h, i, slot] = np.inf
                if count >= LEAST and rank <= count:
                    pending[h, i, slot] = ordered[h, i, max(rank, 1) - 1]


class Conformal:
    """Half-widths that follow the errors, and a promise wherever they are at most ε.

    α ← α + γ (δ − [|error| > half-width]), and the half-width is the 1 − α quantile of the last
    errors (Gibbs and Candès 2021), one a (horizon, sensor). What is guaranteed is the share over
    *all* windows: nothing is said of those for which the half-width is small. `limits` (n,) is ε of
    each sensor.
    """

    def __init__(self, limits: np.ndarray, delta: float, horizons: int) -> None:
        here = (horizons, len(limits))
        self._limits, self._delta = np.asarray(limits, float), float(delta)
        self._level = np.full(here, float(delta))
        self._ring, self._ordered = np.zeros((*here, MEMORY)), np.zeros((*here, MEMORY))
        self._seen = np.zeros((*here, 2), np.int64)
        self._pending = np.full((*here, horizons), np.inf)

    def replay(self, errors: np.ndarray) -> np.ndarray:
        """Whether each window was promised; absolute errors of shape (rounds, horizons, n)."""
        said = np.zeros(errors.shape, np.bool_)
        state = (self._level, self._ring, self._ordered, self._seen, self._pending)
        _follow(np.ascontiguousarray(errors), self._limits, self._delta, *state, said)
        return said
