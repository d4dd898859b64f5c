"""D3: state shared through a database instead of a shuffle.

Data pass through these modules in this order. `tuplelog` draws tuples and stores them as lines
``timestamp,key,value``, one file per partition. `parsing` makes tuples of lines and `sums` adds
them up by slice and key, both in compiled `loops`; an `intake` does both for a task. It records
malformed lines by their offsets, and leaves out and counts tuples behind the watermark.
`aggregates` defines how sums merge: exactly, or with an error where they leave 64 bits.

On Spark, `strategies` are shuffle first (upfront), sums merged by the driver (late local), or by
the tasks into a table that all of them share (late global); `pipelined` is a streaming system's
shuffle.

The document's own design runs without Spark (D3 fig. 3). A `supervisor` starts the processes of a
`job` and restarts those that crash; `liveness` says who is alive and who is waited for. A `task`
merges batches into the table of its `server`, in `stores`; rows and the offsets they stand for are
one transaction. A checkpoint barrier switches tables and flushes them; each complete one is
committed to a global store once. The `output` task emits the windows that are complete. A crashed
task's replacement continues where the table says, a crashed server where it last flushed; no other
process is disturbed. Left out of the document: servers with keys of their own, for which the global
store is a backup.

`experiments` run and time all this, `scaling` models more tasks; then `figures`, `claims`.
"""
