"""Late global merge by processes that die and come back (D3 fig. 3).

A `supervisor` starts the processes of a `stage`. A `task` reads its partitions and merges batches
into its `server`'s own store, over a `wire`. Barriers switch that store's tables (`cycle`),
complete ones are handed over to the global store, and the `output` task writes finished windows.
Each process dies with the supervisor (`lifetime`); what happened stands in the `journal`.

Left out of the document: servers with keys of their own, for which the global store is a backup.
"""
