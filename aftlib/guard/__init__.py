"""A guarantee for any data: which sensors' windows may be lost, decided before they are.

While nothing fails, every window is predicted as if its worker had failed 1 … H windows ago.
`prediction` computes that window from the other workers' windows and from all earlier ones.
`proposal` learns from the errors which guarantees to propose. `accounts` allow a guarantee only
while the earlier ones were satisfied, with a theorem that assumes nothing about the data; they
audit the estimates of real failures, too. `rounds` applies these steps to one window after another.
`changes` moves the statistics into a guard of other sensors, ε or δ. `guard` has the class `Guard`,
which users call. `partial` has accounts of its own for windows of which only a part is lost.
`promise`, `keyed` and `pipeline` put one guard per group behind any Spark stream of samples
(docs/any_stream.md): the parameters, the guard of one group, and Spark's keyed state.
"""

from aftlib.guard.guard import Guard, History, Recovered

__all__ = ["Guard", "History", "Recovered"]
