"""Speed of choosing what to replay, of planning, and of estimating (D2), as JSON.

    python -m benchmarks checkpoints

The candidate-by-candidate rule (22), (23) is run at growing n until the next n would not fit in a
minute; its time at n = 2,000 is extrapolated twice, by its order n⁵ (n candidates times n/2 choices
times a solve of O(n³)) and, more cautiously, by the growth seen between the last two sizes.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpstrf

from aftlib.checkpoint_planning.plan import DOCUMENT_RECOVERY_TIME, METHODS, plan_checkpoints
from aftlib.checkpoint_planning.replay import select_replay
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from benchmarks.timing import best_of

NUGGET = 0.3
HALF = 0.43562
"""Target for which `scattered` replays about half of its sensors, determined by trial."""

EPSILONS = (0.05, 0.08, 0.10, 0.11, 0.12, 0.13, 0.15)
T_SLAS_MS = (35, 50, 75, 100, 200)
STEPS = 1_000


def run(n: int = 2_000, largest: int = 3_000, budget_s: float = 60.0) -> dict[str, Any]:
    """All figures of this benchmark.

    Parameters
    ----------
    n : int
        Sensors of the comparison with the candidate-by-candidate rule.
    largest : int
        Sensors of the large selection.
    budget_s : float
        Seconds that one run of the slow rule may take.
    """
    return {
        "against_the_rule": against_the_rule(n, budget_s),
        "fig6_grid_s": best_of(3, fig6_grid)[0],
        "scattered": large(scattered(largest), HALF),
        "five_groups": large(block_model(largest, 5, 60, 30), 30.02998),
    }


def against_the_rule(n: int, budget_s: float) -> dict[str, Any]:
    """Seconds of `select_replay` at n against the rule's, extrapolated to n; and LAPACK's."""
    model = scattered(n)
    fast_s, chosen = best_of(3, lambda: select_replay(model, HALF))
    lapack_s, _ = best_of(3, lambda: dpstrf(model.covariance, tol=HALF, lower=1))
    measured = time_rule(budget_s)
    (m, before), (last, after) = list(measured.items())[-2:]
    growth = math.log(after / before) / math.log(last / m)
    by_growth, by_order = (after * (n / last) ** power for power in (growth, 5))
    return {
        "n": n,
        "replayed": len(chosen.sensors),
        "select_replay_s": fast_s,
        "lapack_pstrf_s": lapack_s,
        "rule_measured_s": measured,
        "rule_growth_exponent_seen": growth,
        "rule_extrapolated_by_growth_seen_s": by_growth,
        "rule_extrapolated_by_order_5_s": by_order,
        "times_faster_by_growth_seen": by_growth / fast_s,
        "times_faster_by_order_5": by_order / fast_s,
        "note": "the rule's time at n is extrapolated, not measured",
    }


def time_rule(budget_s: float) -> dict[int, float]:
    """Seconds of the rule by n, up to the largest n that takes no longer than the budget."""
    measured: dict[int, float] = {}
    n = 32
    while not measured or 2 ** (5 / 2) * measured[n] <= budget_s:
        n = round(n * math.sqrt(2)) if measured else n
        begin = time.perf_counter()
        by_candidate(scattered(n), HALF)
        measured[n] = time.perf_counter() - begin
    return measured


def by_candidate(model: GaussianModel, target: float) -> list[int]:
    """D2 fig. 3 as it is written: a posterior for every candidate of every choice."""
    chosen: list[int] = []
    variance = model.posterior_variance(chosen)
    while variance.max() > target:
        rest = [i for i in range(model.size) if i not in chosen]
        after = [model.posterior_variance([*chosen, i]) for i in rest]
        best = int(np.argmax([np.max(variance - a) for a in after]))
        chosen.append(rest[best])
        variance = after[best]
    return chosen


def fig6_grid() -> dict[str, list[int]]:
    """Checkpoints for each T_SLA, ε and method of figure 6."""
    model = block_model(100, 5, 60, 30)
    return {
        f"{method} {t_sla_ms} ms": [
            len(
                plan_checkpoints(
                    model,
                    10_000,
                    Requirement(epsilon, 0.05),
                    DOCUMENT_RECOVERY_TIME,
                    t_sla_ms,
                    method,
                ).checkpoints
            )
            for epsilon in EPSILONS
        ]
        for method in METHODS
        for t_sla_ms in T_SLAS_MS
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
        **all_tuples(model.size, len(chosen.sensors)),
    }


def all_tuples(n: int, replayed: int) -> dict[str, float]:
    """Seconds to read STEPS tuples of sensors from a warm file and to sum them."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, sensors in (("all", n), ("replayed", replayed)):
            path = Path(folder) / f"{name}.npy"
            np.save(path, np.random.default_rng(2).standard_normal((STEPS, sensors)))
            seconds[f"read_and_sum_{name}_s"] = best_of(5, lambda p=path: np.load(p).sum(axis=0))[0]
    return seconds


def scattered(n: int, seed: int = 0) -> GaussianModel:
    """Sensors at random in a square, correlation falling with distance; no zero, no tie."""
    at = np.random.default_rng(seed).random((n, 2)) * math.sqrt(n / 100)
    covariance = np.empty((n, n))
    for i in range(0, n, 500):
        distance = np.hypot(*(at[i : i + 500, None] - at[None]).transpose(2, 0, 1))
        np.exp(-distance, out=covariance[i : i + 500])
    covariance.flat[:: n + 1] += NUGGET
    return GaussianModel(np.zeros(n), covariance)
