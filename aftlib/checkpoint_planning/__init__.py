"""D2: checkpoints and partial replay that keep ε, δ and a recovery time.

In the order in which data pass through the modules:

`replay`, `plan`, `recovery_time`: which sensors must be replayed, and how far that reaches within
T_SLA; from these the times τ of a window's checkpoints, and for each interval a replay set O.
`operator`: aggregates a window, interval by interval. An interval in which an earlier process
crashed is recovered: O is read, the others are estimated (`steps`), the result is committed, and
the rest of the window is planned. `guarded_replay`: the same with a guard that chooses O.
`state`: running sums, batch number and finished windows in SQLite, one transaction per batch; and
the prepared replay sets on disk.
`pipeline`: the operator on Structured Streaming, whose micro-batches end at the τ, or in one
process. `driver` runs either in a process of its own that can be killed.
`experiments`: what notebook 02 runs, in its order. `figures` draw it, `claims` judge it,
those on times by `time_judges`.
"""
