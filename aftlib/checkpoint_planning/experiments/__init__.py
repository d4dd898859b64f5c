"""What notebook 02 runs, in its order."""

from aftlib.checkpoint_planning.experiments.cases import (
    METHODS,
    PlanningCase,
    block_case,
    checkpoint_counts,
    counts_table,
    maximum_counts,
)
from aftlib.checkpoint_planning.experiments.costs import (
    Fit,
    compare_models,
    fastest,
    fit_recovery_time,
    recovery_times,
)
from aftlib.checkpoint_planning.experiments.examples import FIGURE_1, ThreeSensors, three_sensors
from aftlib.checkpoint_planning.experiments.guarded import (
    GRID,
    WINDOW,
    GuardedStream,
    failing_streams,
    generated_stream,
    guarded_windows,
    planned_stream,
    promise_table,
    stream_table,
    wandering,
)
from aftlib.checkpoint_planning.experiments.parameters import check_parameters
from aftlib.checkpoint_planning.experiments.recoveries import (
    PHASES,
    planned_recoveries,
    queries,
    recoveries,
    restarts,
    t_sla_kept,
)
from aftlib.checkpoint_planning.experiments.success import success_rates

__all__ = [
    "FIGURE_1", "GRID", "METHODS", "PHASES", "WINDOW", "Fit", "GuardedStream", "PlanningCase",
    "ThreeSensors", "block_case", "check_parameters", "checkpoint_counts", "compare_models",
    "counts_table", "failing_streams", "fastest", "fit_recovery_time", "generated_stream",
    "guarded_windows", "maximum_counts", "planned_recoveries", "planned_stream",
    "promise_table", "queries", "recoveries", "recovery_times", "restarts", "stream_table",
    "success_rates", "t_sla_kept", "three_sensors", "wandering",
]  # fmt: skip
