"""A guarantee for any data: decide before a failure which sensors' windows may be lost.

While nothing fails, every window is predicted as if its worker had failed 1 … H windows ago.
`prediction` computes that window from the other workers' windows and from all earlier ones.
`proposal` learns from the errors which guarantees to propose. `accounts` allow a guarantee only
while few earlier ones were wrong; their theorem assumes nothing about the data. They also audit the
estimates of real failures. `rounds` applies these steps to one window after another. `changes`
moves a guard's statistics into a guard of other sensors, ε or δ. `guard` has the class `Guard`,
which users call. `partial` has accounts of its own for windows of which only a part is lost.
Three modules put one guard per group behind any Spark stream of samples (docs/any_stream.md):
`promise` has the parameters, `keyed` the guard of one group, `pipeline` Spark's keyed state.
"""

from aftlib.guard.guard import Guard, History, Recovered

__all__ = ["Guard", "History", "Recovered"]
