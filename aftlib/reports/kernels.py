"""Compile all kernels once, at set-up: numba stores them beside their modules.

python -m aftlib.reports.kernels
"""

from __future__ import annotations

import numpy as np

from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.shared_state.strategies import deal_out


def compile_kernels() -> None:
    """Use each kernel once."""
    tuples = np.ones((3, 5), np.int64)
    deal_out(*tuples, 2)  # its import has compiled D3's kernels
    histogram = ExponentialHistogram(100, 0.1)
    histogram.update(np.ones(500, bool))
    histogram.estimates(np.ones(5, bool))


if __name__ == "__main__":
    compile_kernels()
