"""A guarantee for any data: decide before a failure which sensors' windows may be lost.

While nothing fails, every window is predicted as if its worker had failed 1 … H windows ago.
`prediction` computes that window from the other workers' windows and from all earlier ones.
`proposal` learns from the errors which guarantees to propose. `accounts` allow a guarantee only
while few earlier ones were wrong; their theorem assumes nothing about the data. They also audit the
estimates of real failures. `rounds` applies these steps to one window after another. `changes`
moves a guard's statistics into a guard of other sensors, ε or δ. `guard` has the class `Guard`,
which users call.
Five modules put one guard per group behind any Spark stream of samples (docs/any_stream.md):
`promise` has the parameters, `keyed` the guard of one group, `groups` all guards in Spark's state,
`operator` is Spark's view of them, and `pipeline` joins them to a stream.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftlib.guard.guard import Guard, History, Recovered

__all__ = ["Guard", "History", "Recovered"]


def __getattr__(name: str) -> Any:
    """Import a class at its first use, because `operator` must load fast."""
    if name not in __all__:
        raise AttributeError(f"module 'aftlib.guard' has no attribute {name!r}")
    from aftlib.guard import guard

    return getattr(guard, name)
