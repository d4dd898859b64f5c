"""D3: state shared through a database instead of a shuffle.

Data pass through these modules in this order. `tuplelog` draws tuples and stores them as lines
``timestamp,key,value``, one file per partition. `parsing` turns lines into tuples, records
malformed lines with their offsets, and counts late tuples. `sums` adds tuples up by slice and key.
`aggregates` has the merge functions, which are exact and raise an OverflowError beyond 64 bits.

`strategies` has D3's three strategies on Spark. Upfront shuffles the tuples first; in late local
the driver merges the tasks' sums; in late global the tasks merge their sums into one shared table.
`pipelined` is upfront with the shuffle of a streaming system.

The document's own design runs without Spark (D3 fig. 3). A `supervisor` starts the processes of a
`job` and restarts those that crash; `liveness` checks processes and waits for stores. A `task`
merges batches into the table of its `server`, in `stores`. One transaction commits rows and
offsets. At a checkpoint barrier the server switches to a new table and flushes the old one. Each
complete table is committed to a global store once. The `output` task emits the complete windows.
The replacement of a crashed task continues at the offsets in the server's table. The replacement of
a crashed server continues at the offsets of its last flush. After a server's crash its own tasks
read again; no other process is disturbed. Not implemented: servers with keys of their own, for
which the global store is only a backup.

`experiments` run and time the strategies and the job. `paced` runs D3's designs on emulated cores.
`scaling` judges growth and skew, `claims` the other claims, and `figures` draws.
"""
