"""What notebook 02 runs, in its order."""

from aftlib.checkpoint_planning.experiments.cases import (
    METHODS,
    PlanningCase,
    block_case,
    checkpoint_counts,
    counts_table,
    maximum_counts,
    plan_table,
)
from aftlib.checkpoint_planning.experiments.costs import (
    Fit,
    compare_models,
    fastest,
    fit_recovery_time,
    recovery_times,
)
from aftlib.checkpoint_planning.experiments.examples import FIGURE_1, ThreeSensors, three_sensors
from aftlib.checkpoint_planning.experiments.guarding import (
    GRID,
    WINDOW,
    guarded_windows,
    promise_table,
    wandering,
)
from aftlib.checkpoint_planning.experiments.parameters import check_parameters
from aftlib.checkpoint_planning.experiments.planned import planned_recoveries
from aftlib.checkpoint_planning.experiments.recoveries import (
    PHASES,
    queries,
    recoveries,
    restarts,
    t_sla_kept,
)
from aftlib.checkpoint_planning.experiments.success import success_rates

__all__ = [
    "FIGURE_1",
    "GRID",
    "METHODS",
    "PHASES",
    "WINDOW",
    "Fit",
    "PlanningCase",
    "ThreeSensors",
    "block_case",
    "check_parameters",
    "checkpoint_counts",
    "compare_models",
    "counts_table",
    "fastest",
    "fit_recovery_time",
    "guarded_windows",
    "maximum_counts",
    "plan_table",
    "planned_recoveries",
    "promise_table",
    "queries",
    "recoveries",
    "recovery_times",
    "restarts",
    "success_rates",
    "t_sla_kept",
    "three_sensors",
    "wandering",
]
