"""What several rooms stand on. It knows no room, no Spark and no figures.

Samples come from `generators` (seeded) or `datasets` (a user's file put on an even grid) and lie
in a `sensorlog`, from which any keys over any steps can be read again. `windows` says which steps
a result stands for. `gaussian` says how sensors go together, and so what a lost one was
(`covariance` fits it to rows with gaps, `labels` are pandas'), `extremes` the same of minima and
maxima; `requirement` whether that is near enough; `intervals` how sure a measured rate is.
`planfile` is the file plan.json of `aft plan`, and `sensorplan` what a pipeline takes from it.

`claims` says what a claim is and how a finding becomes a verdict. A streaming query works in a
`query_directory`. Beside them: `paths` (where files go, and how one is made whole or not at all),
`checks` (of what a user gives) and `compiling` (numba, for kernels).
"""
