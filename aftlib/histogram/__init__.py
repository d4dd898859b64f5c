"""D5: approximate counts, sums and variances over sliding windows."""

from aftlib.histogram.exponential import ExponentialHistogram
from aftlib.histogram.variance import VarianceHistogram

__all__ = ["ExponentialHistogram", "VarianceHistogram"]
