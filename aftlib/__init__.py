"""Approximate fault tolerance for data stream processing."""

from aftlib.assignment import (
    Assignment,
    assign_greedy,
    assign_packed,
    assign_random,
    assign_spread,
)
from aftlib.checkpoints import CheckpointPlan, plan_checkpoints
from aftlib.gaussian import GaussianModel
from aftlib.histogram import ExponentialHistogram
from aftlib.recovery_time import RecoveryTime
from aftlib.replay import ReplaySet, select_replay
from aftlib.requirement import Requirement

__all__ = [
    "Assignment",
    "CheckpointPlan",
    "ExponentialHistogram",
    "GaussianModel",
    "RecoveryTime",
    "ReplaySet",
    "Requirement",
    "assign_greedy",
    "assign_packed",
    "assign_random",
    "assign_spread",
    "plan_checkpoints",
    "select_replay",
]
