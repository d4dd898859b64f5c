"""An estimator on a Spark stream of samples (docs/any_stream.md).

`promise` has the parameters, `aggregation` makes windows of samples, and `rows` has the rows that
become of them. `keyed` has the guards of a bucket of groups, `cache` the memory that processes
share for them, and `groups` has them in Spark's state; `coordinator` has D1's known model in their
place. `operator` is Spark's view of the guards, `stream` has the function `recoverable`, `repair`
puts its windows right from an archive, and `metrics` has the table of what a stream did.

A task has one `GuardProcessor`, which Spark calls for each bucket. A call makes the bucket's
`StoredGuards`, the records in Spark's state; these have `KeyedGuards`, the guards of its groups
with their token; and these have `guard.Guards`, the arrays.

Words
-----
group
    What the user's column of groups has: a site, say. It has one guard.
key
    The value of a group in a frame; in `operator` the key of Spark's state, which is a bucket.
bucket
    The groups whose key has the same hash; one key of Spark's state.
place
    A group's index among those of its bucket.
round
    A window of a group, of all its sensors, as a guard receives it, also if nothing came.
content
    A promise as JSON. A query's content has the name of the group's column as well.
record
    An entry of a bucket's state: a part of its log, say.
tally
    The counts of a frame's rows, so that Spark need not count them.
token
    A hash of the promise and of a bucket's windows so far, micro-batch by micro-batch. It
    identifies the guards' state; two buckets with equal windows have the same one.
log part, snapshot, chunk
    The windows of a micro-batch; a group's whole state; a piece of a snapshot, of bounded size.
shadow audit, repair audit
    Predictions of windows that came, as if they had been lost; estimates of lost windows, compared
    with an archive.
recoverable
    How many windows long a loss may be if it begins now: the column and the field of `Rounds`. A
    guard's `recoverable` is true or false for each length. The metric `certified` counts the rows
    in which it is above 0.
"""
