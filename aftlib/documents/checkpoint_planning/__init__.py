"""D2: checkpoints and partial replay that meet ε, δ and T_SLA.

T_SLA permits a number of tuples: sensors to replay × steps since the last checkpoint. So the fewer
sensors are replayed, and the more are estimated, the fewer checkpoints a window needs. ε and δ
permit an error variance. A failure late in a window leaves fewer steps to estimate, so that each
of them may err more and fewer sensors are replayed.

An *interval* lies between two checkpoints, and is one *batch* of the stream. It *fails* if the
process that began it is killed; a process that ends otherwise, also by an error, withdraws its
batch, which is then read from all sensors. Variances are of a value at one step in `replay` and
where a name has "step", of a running sum in `state` and `operator`, and of a mean (or sum) in a
plan's public attributes.

In the order in which data pass through the modules:

`replay` selects the sensors to replay, and `plan` the times τ of a window's checkpoints: it
alternates between a replay set O and the latest next τ that T_SLA permits. Its method "adaptive",
which is ours, cuts the window into equal intervals of which one may fail, and plans again after a
failure. In a plan τ counts from the window's first step, in a stored checkpoint from the stream's.
`state` has what survives a driver: running sums, batch number and finished windows in SQLite, one
transaction per batch; and the prepared replay sets as files.
`operator` aggregates a window, interval by interval. An interval in which an earlier process
crashed is recovered: O is read, the others are estimated, the result is committed, and the rest of
the window is planned. It runs in one process.
`pipeline` runs it on Structured Streaming, whose micro-batches end at the τ; the state is the same.
`cases` has sensors, samples and a grid to plan for, and the checkpoints of their plans (fig. 6).
`success_rates` has the share of results within ε (fig. 7): by formula, drawn and learned.
`timing` measures times in one process (fig. 5, throughput), and `drivers` kills processes.
`experiments` has the parameters of notebook 02, fig. 1, and a recovery that streams on Spark.
`figures` draws, and `captions` describes a run. `claims` judges by `judges` and `timed_judges`.
"""
