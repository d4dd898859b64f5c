"""D2: checkpoints and partial replay that meet ε, δ and T_SLA.

In the order in which data pass through the modules:

`replay` selects the sensors to replay, and `recovery_time` the tuples that T_SLA permits. From both
`plan` makes the times τ of a window's checkpoints, and for each interval a replay set O.
`operator`: aggregates a window, interval by interval. An interval in which an earlier process
crashed is recovered: O is read, the others are estimated (`steps`), the result is committed, and
the rest of the window is planned. `guarded_replay`: the same with a guard that chooses O.
`state`: running sums, batch number and finished windows in SQLite, one transaction per batch; and
the prepared replay sets on disk.
`pipeline`: the operator on Structured Streaming, whose micro-batches end at the τ, or in one
process. `driver` runs either in a process of its own that can be killed.
`experiments`: the experiments of notebook 02, in its order. `figures` draws their results, and
`claims` judges them; `time_judges` has the judges of times.
"""
