"""Approximate fault tolerance for data stream processing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftlib.approximately_once.assignment import (
        Assignment,
        assess,
        assign_greedy,
        assign_packed,
        assign_random,
        assign_spread,
    )
    from aftlib.approximately_once.best import assign_best
    from aftlib.checkpoint_planning.plan import CheckpointPlan, RecoveryTime, plan_checkpoints
    from aftlib.checkpoint_planning.replay import ReplaySet, select_replay
    from aftlib.core.gaussian import GaussianModel, Posterior
    from aftlib.core.requirement import Requirement
    from aftlib.exponential_histogram import ExponentialHistogram
    from aftlib.guard.guard import Guard
    from aftlib.guard.promise import Promise
    from aftlib.guard.stream import recoverable

__version__ = "0.1.0"

__all__ = [
    "Assignment",
    "CheckpointPlan",
    "ExponentialHistogram",
    "GaussianModel",
    "Guard",
    "Posterior",
    "Promise",
    "RecoveryTime",
    "ReplaySet",
    "Requirement",
    "assess",
    "assign_best",
    "assign_greedy",
    "assign_packed",
    "assign_random",
    "assign_spread",
    "plan_checkpoints",
    "recoverable",
    "select_replay",
]

_HOMES = {
    "Assignment": "aftlib.approximately_once.assignment",
    "CheckpointPlan": "aftlib.checkpoint_planning.plan",
    "ExponentialHistogram": "aftlib.exponential_histogram",
    "GaussianModel": "aftlib.core.gaussian",
    "Guard": "aftlib.guard.guard",
    "Posterior": "aftlib.core.gaussian",
    "Promise": "aftlib.guard.promise",
    "RecoveryTime": "aftlib.checkpoint_planning.plan",
    "ReplaySet": "aftlib.checkpoint_planning.replay",
    "Requirement": "aftlib.core.requirement",
    "assess": "aftlib.approximately_once.assignment",
    "assign_best": "aftlib.approximately_once.best",
    "assign_greedy": "aftlib.approximately_once.assignment",
    "assign_packed": "aftlib.approximately_once.assignment",
    "assign_random": "aftlib.approximately_once.assignment",
    "assign_spread": "aftlib.approximately_once.assignment",
    "plan_checkpoints": "aftlib.checkpoint_planning.plan",
    "recoverable": "aftlib.guard.stream",
    "select_replay": "aftlib.checkpoint_planning.replay",
}


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
        if name != "recoverable" or (error.name or "").partition(".")[0] not in _SPARK:
            raise
        return _unavailable(error)


def _unavailable(error: ModuleNotFoundError) -> Any:
    """Return `recoverable` without Spark: a call of it names the extra."""

    def recoverable(*_: Any, **__: Any) -> None:
        raise ModuleNotFoundError(
            f"recoverable needs {error.name}, which is not installed: pip install 'aftlib[spark]'",
            name=error.name,
        ) from error

    return recoverable


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
