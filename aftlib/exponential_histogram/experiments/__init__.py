"""D5: the exponential histogram, its errors, its memory and its speed."""

from aftlib.exponential_histogram.experiments.errors import counterexamples, few_ones, sweep
from aftlib.exponential_histogram.experiments.examples import WINDOW as FIGURE_3_WINDOW
from aftlib.exponential_histogram.experiments.examples import figure_3, shown, steps
from aftlib.exponential_histogram.experiments.rates import (
    DOCUMENT_RATE,
    error_curve,
    long_run,
    rates,
)
from aftlib.exponential_histogram.experiments.ring import BitRing
from aftlib.exponential_histogram.experiments.sizes import break_even, sizes
from aftlib.exponential_histogram.experiments.streams import operator_demo, parallel
from aftlib.exponential_histogram.verdicts import verdicts

__all__ = [
    "DOCUMENT_RATE",
    "FIGURE_3_WINDOW",
    "BitRing",
    "break_even",
    "counterexamples",
    "error_curve",
    "few_ones",
    "figure_3",
    "long_run",
    "operator_demo",
    "parallel",
    "rates",
    "shown",
    "sizes",
    "steps",
    "sweep",
    "verdicts",
]
