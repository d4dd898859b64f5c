"""D1: approximately-once recovery from a multivariate Gaussian, and who computes which key."""

from aftlib.experiments.d1.cases import ROWS, WINDOWS, Case, Reading, block_case, sensor_case
from aftlib.experiments.d1.examples import FIGURE_8, SixSensors, six_sensors, two_variables
from aftlib.experiments.d1.grid import METHODS, coverage, grid, smallest_epsilons
from aftlib.experiments.d1.recovery import recovery_cost
from aftlib.experiments.d1.verdicts import verdicts

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
