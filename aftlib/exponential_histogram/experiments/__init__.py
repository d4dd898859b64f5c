"""D5's experiments: the document's example, errors, the operator, memory, speed, and merging."""

from __future__ import annotations

from aftlib.exponential_histogram.experiments.costs import (
    DOCUMENT_RATE,
    break_even,
    long_run,
    parallel,
    rates,
    sizes,
)
from aftlib.exponential_histogram.experiments.errors import (
    FIGURE_3_WINDOW,
    counterexamples,
    error_curve,
    few_ones,
    figure_3,
    operator_demo,
    shown,
    sweep,
    variances,
)
from aftlib.exponential_histogram.experiments.parameters import NotebookParameters

__all__ = [
    "DOCUMENT_RATE", "FIGURE_3_WINDOW", "NotebookParameters", "break_even", "counterexamples",
    "error_curve", "few_ones", "figure_3", "long_run", "operator_demo", "parallel", "rates",
    "shown", "sizes", "sweep", "variances",
]  # fmt: skip
