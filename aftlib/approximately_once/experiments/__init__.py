"""D1: approximately-once recovery from a multivariate Gaussian, and who computes which key."""

from aftlib.approximately_once.experiments.cases import (
    ROWS,
    WINDOWS,
    Case,
    Reading,
    block_case,
    sensor_case,
)
from aftlib.approximately_once.experiments.examples import (
    FIGURE_8,
    SixSensors,
    six_sensors,
    two_variables,
)
from aftlib.approximately_once.experiments.grid import METHODS, coverage, grid, smallest_epsilons
from aftlib.approximately_once.experiments.recovery import recovery_cost
from aftlib.approximately_once.verdicts import verdicts

__all__ = [
    "FIGURE_8",
    "METHODS",
    "ROWS",
    "WINDOWS",
    "Case",
    "Reading",
    "SixSensors",
    "block_case",
    "coverage",
    "grid",
    "recovery_cost",
    "sensor_case",
    "six_sensors",
    "smallest_epsilons",
    "two_variables",
    "verdicts",
]
