"""D2: checkpoints and partial replay that keep ε, δ and a recovery time.

What goes through the room, in order:

`replay`, `plan`, `recovery_time`: which sensors must be replayed, and how far that reaches within
T_SLA. From these the times τ of a window's checkpoints, and for each interval a replay set O.
`preparation`: each O with the matrix that estimates the others, on disk before anything fails.
`guarded_plan`, `guarded_replay`: the same where steps depend on those before them: O follows the
accounts of a guard.
`operator`: adds a window up, interval by interval. An interval in which an earlier process died is
recovered: O is read, the others are estimated (`steps`), that is committed, the rest is planned.
`state`: running sums, batch number and finished windows in SQLite, one transaction a batch.
`pipeline`: the operator on Structured Streaming, whose micro-batches end at the τ, or in one
process. `driver` runs either in a process of its own that can be killed.
`experiments`: what notebook 02 runs, in its order. `figures` draw it, `claims` judge it.
"""
