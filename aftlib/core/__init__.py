"""Modules that all packages share. They import no other package, no Spark and no Plotly.

D1 and D2 share an idea: after a failure some sensors' samples are read again, and a Gaussian model
estimates the others from them. An estimate counts if its posterior variance is at most (ε/z)².

In the order in which samples pass through them: `generators` makes seeded samples, and `sensorlog`
stores them, so that any sensors can be read again over any steps. `windows` has time windows and
their aggregates. `labels` puts a user's values into the order of their names. `covariance` fits
moments to rows, also with gaps; `gaussian` is the model, and estimates lost values. `requirement`
decides whether an estimate is precise enough.

`intervals` has confidence intervals of measured rates, means and ratios. `recovery_costs` computes
the duration of a recovery and the monthly cost of failures. `planfile` writes and reads plan.json,
the result of `aft plan`.

`paths` finds the project's folders and data. `storage` writes files, folders, rows of SQLite and
packed arrays whole or not at all. `processes` starts, kills and ends child processes. `checks`
validates arguments. `compiling` wraps numba, and `intrinsics` has the processor's instructions that
numba does not offer.
"""
