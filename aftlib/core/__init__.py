"""Modules that all packages share. They import no other package, no Spark and no Plotly.

`generators` makes seeded samples, and `sensorlog` stores them, so that any sensors can be read
again over any steps. `windows` has time windows and their aggregates.

`gaussian` models how sensors depend on each other and estimates lost values; `covariance` fits it
to rows with gaps. `labels` puts values into the order of their names, names rows of results, and
packs arrays into one value. `requirement` decides whether an estimate is precise enough,
`intervals` bounds a rate. `recovery_costs` computes the duration of a recovery and the monthly cost
of failures. `planfile` writes and reads plan.json, the result of `aft plan`.

`paths` writes files whole or not at all, `sqlite` opens a file with durable transactions, `checks`
validates arguments, and `compiling` wraps numba.
"""
