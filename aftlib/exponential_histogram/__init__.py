"""D5: counts, sums and variances over sliding windows, within a relative error ε, from few buckets.

An event's way: `events` checks what is fed and counts its units. `buckets` holds the canonical
form and takes the units in, one by one or (by `kernels`) a whole array at once, with the same
result. `histogram` is the public face: estimates, merging, and bytes sealed by `record`. `variance`
does the like for real values. `ring` is the exact rival.

On Spark: `source` draws the bits of `bits` as a stream. `pipeline` runs it into `operator`, whose
histogram a key is state that Spark commits with each micro-batch. `parallel` merges one of each
partition.
"""

from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.variance import VarianceHistogram

__all__ = ["ExponentialHistogram", "VarianceHistogram"]
