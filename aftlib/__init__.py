"""Approximate fault tolerance for data stream processing."""

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
