"""D5: the exponential histogram, its errors, its memory and its speed."""

from aftlib.experiments.d5.errors import counterexamples, few_ones, sweep
from aftlib.experiments.d5.examples import WINDOW as FIGURE_3_WINDOW
from aftlib.experiments.d5.examples import figure_3, shown, steps
from aftlib.experiments.d5.rates import DOCUMENT_RATE, error_curve, long_run, rates
from aftlib.experiments.d5.ring import BitRing
from aftlib.experiments.d5.sizes import break_even, sizes
from aftlib.experiments.d5.streams import operator_demo, parallel
from aftlib.experiments.d5.verdicts import verdicts

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
