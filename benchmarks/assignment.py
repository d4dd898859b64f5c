"""Greedy assignment against its direct twin: equation (2) against the complement per candidate.

The twin tries a key on a worker by one solve for all keys of the worker at once. It is timed on a
sample of the calls that greedy makes and counted over all of them, as it would take hours whole.
"""

from __future__ import annotations

import time

import numpy as np

from aftlib.approximately_once.assignment import assign_greedy
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement

EPSILON = 0.66


def run() -> dict:
    """Ratios at n = 120 and 480, seconds at n = 2,400."""
    return {
        "n120_m10": compare(120, 10),
        "n480_m40": compare(480, 40),
        "n2400_m200_seconds": round(seconds(block_model(2400, 200), 200), 3),
    }


def compare(n: int, m: int) -> dict:
    """Seconds of greedy, seconds of the twin from its calls, and their ratio."""
    model = block_model(n, n // 12)
    fast = min(seconds(model, m) for _ in range(5))
    calls, per_call = candidate_calls(n, m), twin_call_seconds(model, m)
    slow = calls * per_call
    return {
        "greedy_seconds": fast,
        "twin_calls": calls,
        "twin_ms_per_call": per_call * 1e3,
        "twin_seconds": slow,
        "ratio": round(slow / fast, 1),
    }


def seconds(model: GaussianModel, m: int) -> float:
    """Time of one greedy assignment, the precision matrix included."""
    fresh = GaussianModel(model.mean, model.covariance)
    began = time.perf_counter()
    assign_greedy(fresh, m, Requirement(EPSILON, 0.05))
    return time.perf_counter() - began


def candidate_calls(n: int, m: int) -> int:
    """Candidates that figure 9 tries: every open worker for every key, counted by a dry run."""
    from aftlib.approximately_once import assignment

    counted = []
    original = assignment._OpenWorkers.place

    def place(self: assignment._OpenWorkers, key: int, requirement: Requirement) -> int | None:
        counted.append(int(self.open.sum()))
        return original(self, key, requirement)

    assignment._OpenWorkers.place = place  # type: ignore[method-assign]
    try:
        assign_greedy(block_model(n, n // 12), m, Requirement(EPSILON, 0.05))
    finally:
        assignment._OpenWorkers.place = original  # type: ignore[method-assign]
    return sum(counted)


def twin_call_seconds(model: GaussianModel, m: int, sample: int = 60) -> float:
    """Mean time of one solve of (1)–(2), over workers from empty to full."""
    rng, capacity = np.random.default_rng(0), model.size // m
    blocks = [rng.choice(model.size, 1 + i % capacity, replace=False) for i in range(sample)]
    solve_against_complement(model, blocks[0])
    began = time.perf_counter()
    for block in blocks:
        solve_against_complement(model, block)
    return (time.perf_counter() - began) / sample


def solve_against_complement(model: GaussianModel, block: np.ndarray) -> np.ndarray:
    """Equation (2) as it stands."""
    rest, s = np.setdiff1d(np.arange(model.size), block), model.covariance
    gain = np.linalg.solve(s[np.ix_(rest, rest)], s[np.ix_(rest, block)])
    return np.diag(s[np.ix_(block, block)] - s[np.ix_(block, rest)] @ gain)
