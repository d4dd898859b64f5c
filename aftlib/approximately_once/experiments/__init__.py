"""D1's experiments: what they run on, the grid of figs 10–13, and streams with real kills."""

from aftlib.approximately_once.experiments.cases import (
    ROWS,
    WINDOWS,
    SensorCase,
    block_case,
    check_parameters,
    drifting_case,
    planned_case,
    sensor_case,
)
from aftlib.approximately_once.experiments.grid import (
    METHODS,
    bests,
    coverage,
    crashes_survived,
    grid,
    maxima,
    smallest_epsilons,
)
from aftlib.approximately_once.experiments.streams import (
    recovery_cost,
    six_sensors,
    ways_to_recover,
)

__all__ = [
    "METHODS", "ROWS", "WINDOWS", "SensorCase", "bests", "block_case", "check_parameters",
    "coverage", "crashes_survived", "drifting_case", "grid", "maxima", "planned_case",
    "recovery_cost", "sensor_case", "six_sensors", "smallest_epsilons", "ways_to_recover",
]  # fmt: skip
