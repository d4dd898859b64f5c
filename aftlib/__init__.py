"""Approximate fault tolerance for data stream processing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftlib.core.gaussian import GaussianModel as GaussianModel
    from aftlib.core.gaussian import Posterior as Posterior
    from aftlib.core.requirement import Requirement as Requirement
    from aftlib.documents.approximately_once.assignment import Assignment as Assignment
    from aftlib.documents.approximately_once.assignment import assess as assess
    from aftlib.documents.approximately_once.assignment import assign_greedy as assign_greedy
    from aftlib.documents.approximately_once.assignment import assign_packed as assign_packed
    from aftlib.documents.approximately_once.assignment import assign_random as assign_random
    from aftlib.documents.approximately_once.assignment import assign_spread as assign_spread
    from aftlib.documents.approximately_once.best import assign_best as assign_best
    from aftlib.documents.approximately_once.error_rates import ErrorRates as ErrorRates
    from aftlib.documents.checkpoint_planning.plan import CheckpointPlan as CheckpointPlan
    from aftlib.documents.checkpoint_planning.plan import RecoveryTime as RecoveryTime
    from aftlib.documents.checkpoint_planning.plan import plan_checkpoints as plan_checkpoints
    from aftlib.documents.checkpoint_planning.replay import ReplaySet as ReplaySet
    from aftlib.documents.checkpoint_planning.replay import select_replay as select_replay
    from aftlib.documents.exponential_histogram import ExponentialHistogram as ExponentialHistogram
    from aftlib.guard.guard import Guard as Guard
    from aftlib.streaming.promise import Promise as Promise
    from aftlib.streaming.repair import repair as repair
    from aftlib.streaming.stream import recoverable as recoverable

__version__ = "0.1.0"

_PUBLIC = {
    "documents.approximately_once.assignment": "Assignment assess assign_greedy assign_packed "
    "assign_random assign_spread",
    "documents.approximately_once.best": "assign_best",
    "documents.approximately_once.error_rates": "ErrorRates",
    "documents.checkpoint_planning.plan": "CheckpointPlan RecoveryTime plan_checkpoints",
    "documents.checkpoint_planning.replay": "ReplaySet select_replay",
    "core.gaussian": "GaussianModel Posterior",
    "core.requirement": "Requirement",
    "documents.exponential_histogram": "ExponentialHistogram",
    "guard.guard": "Guard",
    "streaming.promise": "Promise",
    "streaming.repair": "repair",
    "streaming.stream": "recoverable",
}
"""Public names by the module that defines them."""
_HOMES = {name: f"aftlib.{home}" for home, names in _PUBLIC.items() for name in names.split()}
__all__ = [*sorted(_HOMES)]
_ON_SPARK = ("aftlib.streaming.stream", "aftlib.streaming.repair")
_SPARK = ("google", "pyspark", "pyarrow")
"""Packages of the extra `spark`."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, because most `aft` commands need none of them."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'aftlib' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if _HOMES[name] not in _ON_SPARK or (error.name or "").partition(".")[0] not in _SPARK:
            raise
        return _unavailable(name, error)


def _unavailable(name: str, error: ModuleNotFoundError) -> Any:
    """Return a function that is not there without Spark: a call of it names the extra."""
    from aftlib.core.checks import explain_missing

    def unavailable(*_: Any, **__: Any) -> None:
        message = explain_missing(name, str(error.name), "spark")
        raise ModuleNotFoundError(message, name=error.name) from error

    return unavailable


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
