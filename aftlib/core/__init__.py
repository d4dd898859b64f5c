"""Shared by all packages; imports none of them, no Spark and no Plotly.

`generators` (seeded) and `datasets` (a user's files on an even grid, a `sensortable`) make samples.
`textfile` and `tablefile` read the files. `sensorlog` stores samples, so that any sensors can be
read again over any steps, and `readlimit` makes reading cost something. `windows` lists the steps
of a result and has its aggregates.

`gaussian` models how sensors depend on each other and estimates a lost one; `covariance` fits it to
rows with gaps, `labels` aligns pandas objects and names the rows of results. `extremes` models
minima and maxima.
`requirement` decides whether an estimate is precise enough, `intervals` bounds a rate.
`recovery_costs` has the duration of a recovery and the cost of a month of failures.
`planfile` is the plan.json that `aft plan` writes and that pipelines run from.

`claims` turns a finding into a verdict. `query_directory` holds the identity, lock and state of a
streaming query. `paths` writes files whole or not at all, `checks` validates arguments, and
`compiling` wraps numba for the kernels.
"""
