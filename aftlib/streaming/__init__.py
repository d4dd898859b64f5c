"""An estimator on a Spark stream of samples (docs/any_stream.md).

`promise` has the parameters, `aggregation` makes windows of samples, and `rows` has the rows that
become of them. `keyed` has the guards of a bucket of groups, `cache` the memory that processes
share for them, and `groups` has them in Spark's state; `coordinator` has D1's known model in their
place. `operator` is Spark's view of the guards, `stream` has the function `recoverable`, `repair`
puts its windows right from an archive, and `metrics` has the table of what a stream did.
"""
