"""D3: state shared through a database instead of a shuffle.

Data pass through these modules in this order. `tuplelog` draws tuples and stores them as lines
``timestamp,key,value``, one file per partition. `parsing` makes tuples of lines: it records
malformed ones by their offsets, and counts tuples behind the watermark. `sums` adds tuples up by
slice and key. `aggregates` defines how sums merge: exactly, with an OverflowError beyond 64 bits.

On Spark, `strategies` are shuffle first (upfront), sums merged by the driver (late local), or by
the tasks into a table that all of them share (late global); `pipelined` is the shuffle of a
streaming system.

The document's own design runs without Spark (D3 fig. 3). A `supervisor` starts the processes of a
`job` and restarts those that crash; `liveness` checks processes and waits for stores. A `task`
merges batches into the table of its `server`, in `stores`; rows and the offsets they stand for are
one transaction. A checkpoint barrier switches tables and flushes them; each complete one is
committed to a global store once. The `output` task emits the windows that are complete. The
replacement of a crashed task continues at the table's offsets, that of a server where it last
flushed; no other process is disturbed. Not implemented: the document's servers with keys of their
own, whose backup is the global store.

`experiments` run and time all this; `paced` runs it on emulated cores. `scaling` judges growth and
skew; then `figures`, `claims`.
"""
