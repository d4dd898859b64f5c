"""Approximate fault tolerance for data stream processing."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftlib.approximately_once.assignment import (
        Assignment,
        assign_greedy,
        assign_packed,
        assign_random,
        assign_spread,
    )
    from aftlib.approximately_once.best import assign_best
    from aftlib.checkpoint_planning.plan import CheckpointPlan, plan_checkpoints
    from aftlib.checkpoint_planning.recovery_time import RecoveryTime
    from aftlib.checkpoint_planning.replay import ReplaySet, select_replay
    from aftlib.core.gaussian import GaussianModel
    from aftlib.core.requirement import Requirement
    from aftlib.exponential_histogram import ExponentialHistogram

__version__ = "0.1.0"

__all__ = [
    "Assignment",
    "CheckpointPlan",
    "ExponentialHistogram",
    "GaussianModel",
    "RecoveryTime",
    "ReplaySet",
    "Requirement",
    "assign_best",
    "assign_greedy",
    "assign_packed",
    "assign_random",
    "assign_spread",
    "plan_checkpoints",
    "select_replay",
]

_ROOMS = {
    **dict.fromkeys(["CheckpointPlan", "plan_checkpoints"], "checkpoint_planning.plan"),
    **dict.fromkeys(["ReplaySet", "select_replay"], "checkpoint_planning.replay"),
    "ExponentialHistogram": "exponential_histogram",
    "GaussianModel": "core.gaussian",
    "RecoveryTime": "checkpoint_planning.recovery_time",
    "Requirement": "core.requirement",
    "assign_best": "approximately_once.best",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is asked for: Spark's workers need few, and load them anew."""
    if name not in __all__:
        raise AttributeError(f"module 'aftlib' has no attribute {name!r}")
    room = _ROOMS.get(name, "approximately_once.assignment")
    return getattr(importlib.import_module(f"aftlib.{room}"), name)
