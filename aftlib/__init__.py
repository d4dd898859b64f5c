"""Approximate fault tolerance for data stream processing."""

from aftlib.assignment import (
    Assignment,
    assign_greedy,
    assign_packed,
    assign_random,
    assign_spread,
)
from aftlib.gaussian import GaussianModel
from aftlib.requirement import Requirement

__all__ = [
    "Assignment",
    "GaussianModel",
    "Requirement",
    "assign_greedy",
    "assign_packed",
    "assign_random",
    "assign_spread",
]
