"""D3: state shared through a database instead of a shuffle.

Sums change only together with the offsets of the tuples that they count, in memory under one lock,
in a file in one transaction. So after any failure, reading goes on at the offsets that are found
beside the sums, and no tuple is lost or counted twice.

Data pass through these modules in this order. `tuples` draws tuples and stores them as lines
``timestamp,key,value``, one file per partition. `parsing` turns lines into tuples and leaves out
late ones; a bad line is an error. `sums` adds tuples up by slice and key; its merge functions are
exact. All three are used by each of D3's three strategies.

`strategies` has these as Spark jobs. Upfront shuffles the tuples first. In late local the driver
merges the tasks' sums. In late global the tasks merge their sums into one `table`. The module also
runs the document's own design (D3 fig. 3): a `server` is a Spark task and its tasks are threads,
which share tables in memory by epoch. At a checkpoint barrier a server flushes the complete table
to a file of its own, and commits it with its offsets to the global `table`. The driver emits
complete windows from there, each once. Spark's retry is the replacement of a failed server.

`experiments` has the parameters, the inputs, the document's table 1 and stored runs. `throughput`
measures the strategies, and computes them for more tasks. `kills` kills tasks and servers.
`figures` draws, and `claims` judges.

A window is a union of slices, which are `Windows.pane` ticks long. Tuples are summed by slice: a
`part` in the compiled loops is the number of a slice, and `Partials.windows` has the starts of
slices until `window_sums` or `GlobalTable.emit` adds them up. Elsewhere `part` is a partition.

Not implemented: servers with keys of their own, for which the global table is only a backup;
multiplication as an aggregate; merges that contend, because a server has one lock.
"""
