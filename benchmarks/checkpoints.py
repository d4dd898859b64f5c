"""Speed of choosing what to replay, of computing its gains, and of estimating (D2), as JSON.

python -m benchmarks checkpoints
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.documents.checkpoint_planning.replay import select_replay
from benchmarks.timing import best_of

NUGGET = 0.3
HALF = 0.43562
"""Target for which `scattered` replays about half of its sensors, determined by trial."""


def run(largest: int = 10_000) -> dict[str, Any]:
    """All figures of this benchmark, for two models of `largest` sensors."""
    return {
        "scattered": large(scattered(largest), HALF),
        "five_groups": large(block_model(largest, 5, 60, 30), 30.02998),
    }


def large(model: GaussianModel, target: float) -> dict[str, Any]:
    """Seconds to select, to compute the gain matrix, and to estimate with it."""
    select_s, chosen = best_of(1, lambda: select_replay(model, target))
    gain_s, gain = best_of(1, chosen.gain)
    replayed = np.random.default_rng(1).standard_normal(len(chosen.sensors))
    estimate_s, _ = best_of(20, lambda: gain @ replayed)
    return {
        "n": model.size,
        "replayed": len(chosen.sensors),
        "select_replay_s": select_s,
        "gain_s": gain_s,
        "gain_megabytes": gain.nbytes / 1e6,
        "estimate_s": estimate_s,
    }


def scattered(n: int, seed: int = 0) -> GaussianModel:
    """Sensors at random in a square, correlation falling with distance; no zero, no tie."""
    at = np.random.default_rng(seed).random((n, 2)) * math.sqrt(n / 100)
    covariance = np.empty((n, n))
    for i in range(0, n, 500):
        distance = np.hypot(*(at[i : i + 500, None] - at[None]).transpose(2, 0, 1))
        np.exp(-distance, out=covariance[i : i + 500])
    covariance.flat[:: n + 1] += NUGGET
    return GaussianModel(np.zeros(n), covariance)
