"""A guarantee for any data: decide before a failure which sensors' windows may be lost.

While nothing fails, every window is predicted as if its worker had failed 1 … H windows ago.
`accounts` allow a guarantee only while few earlier ones were wrong; their theorem assumes nothing
about the data. `prediction` computes a window from the other workers' windows and from all earlier
ones. `proposal` learns from the errors which guarantees to propose. `rounds` applies these steps to
one window after another. `guard` has the class `Guard`, which users call. `known` is D1's estimator
with the same interface: a known Gaussian model, from which nothing is learned.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftlib.guard.guard import Guard, History, Recovered

__all__ = ["Guard", "History", "Recovered"]


def __getattr__(name: str) -> Any:
    """Import a class at its first use, because `aftlib.streaming.operator` must load fast."""
    if name not in __all__:
        raise AttributeError(f"module 'aftlib.guard' has no attribute {name!r}")
    from aftlib.guard import guard

    return getattr(guard, name)
