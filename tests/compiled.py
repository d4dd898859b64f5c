"""Compile the kernels before the tests: else each test process compiles them for itself.

python -m tests.compiled

numba stores compiled kernels beside the sources. The two halves take about as long as each other.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np


def guard() -> None:
    """Compile the guard's kernels, about half of all."""
    from aftlib.guard.guard import Guard

    Guard([[0], [1], [2]], 0.5, 0.05).update(np.random.default_rng(1).normal(size=(130, 3)))


def others() -> None:
    """Compile the kernels of histograms, the parser and sensor models."""
    from aftlib.exponential_histogram import ExponentialHistogram, VarianceHistogram
    from aftlib.sensor_plans.backtest import Conformal
    from aftlib.shared_state.task import load_kernels

    load_kernels()
    histogram = ExponentialHistogram(100, 0.1)
    histogram.update(np.ones(500, bool))
    histogram.estimates(np.ones(5, bool))
    VarianceHistogram(100, 0.1).update(np.arange(5_000.0))
    Conformal(np.ones(3), 0.05, 5).replay(np.ones((5, 5, 3)))


def main(half: str = "") -> None:
    """Compile both halves side by side, or one."""
    if half:
        {"guard": guard, "others": others}[half]()
        return
    command = [sys.executable, "-m", "tests.compiled"]
    halves = [subprocess.Popen([*command, name]) for name in ("guard", "others")]
    if any([process.wait() for process in halves]):
        raise SystemExit("the kernels could not be compiled")


if __name__ == "__main__":
    main(*sys.argv[1:])
