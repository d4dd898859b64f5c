"""D5: counts and sums over sliding windows, within a relative error ε, from few buckets.

The sizes of all buckets follow from the total. So the state is the total and the time of the newest
unit of each bucket, and a bucket is found by the rank of this unit, counted from the newest one. An
array of events is added by finding how many units expire, and then the units at these ranks.

`units` checks events and times, counts their units, and has the rule which buckets a total has.
`buckets` adds units one by one, or (by the compiled `kernels`) a whole array at once, with the same
result. `histogram` is the public class: estimates, merging, bytes. `operator` is one histogram per
key as state of a Spark stream.

`experiments` draws streams of bits, compares answers with exact counts, and returns frames, which
`figures` draws and `claims` judges.
"""

from aftlib.documents.exponential_histogram.histogram import ExponentialHistogram

__all__ = ["ExponentialHistogram"]
