"""D5: approximate counts, sums and variances over sliding windows."""

from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.variance import VarianceHistogram

__all__ = ["ExponentialHistogram", "VarianceHistogram"]
