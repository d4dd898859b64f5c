"""D5: counts, sums and variances over sliding windows, within a relative error ε, from few buckets.

`sketch` checks inputs and counts their units. `buckets` holds the canonical form and adds the
units, one by one or (by `kernels`) a whole array at once, with the same result. `histogram` is the
public class: estimates, merging and bytes. `variance` does the same for real values. `bits` has
seeded streams and their exact counts.

On Spark: `source` reads bits as a stream or per partition. `pipeline` runs a stream into
`operator`, whose histograms, one per key, are state that Spark commits with each micro-batch. It
also merges one histogram of each partition. `experiments` produce frames, `figures` draw them, and
`claims` judge.
"""

from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.variance import VarianceHistogram

__all__ = ["ExponentialHistogram", "VarianceHistogram"]
