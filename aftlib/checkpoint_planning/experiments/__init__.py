"""D2: checkpoints and partial replay that keep ε, δ and a recovery time."""

from aftlib.checkpoint_planning.experiments.cases import Case, block_case
from aftlib.checkpoint_planning.experiments.costs import (
    Fit,
    compare_models,
    fastest,
    fit_recovery_time,
    recovery_times,
)
from aftlib.checkpoint_planning.experiments.counts import (
    METHODS,
    checkpoint_counts,
    counts_table,
    plan_table,
)
from aftlib.checkpoint_planning.experiments.examples import FIGURE_1, ThreeSensors, three_sensors
from aftlib.checkpoint_planning.experiments.recoveries import queries, recoveries, t_sla_kept
from aftlib.checkpoint_planning.experiments.restarts import PHASES, restarts
from aftlib.checkpoint_planning.experiments.success import success_rates
from aftlib.checkpoint_planning.verdicts import verdicts

__all__ = [
    "FIGURE_1",
    "METHODS",
    "PHASES",
    "Case",
    "Fit",
    "ThreeSensors",
    "block_case",
    "checkpoint_counts",
    "compare_models",
    "counts_table",
    "fastest",
    "fit_recovery_time",
    "plan_table",
    "queries",
    "recoveries",
    "recovery_times",
    "restarts",
    "success_rates",
    "t_sla_kept",
    "three_sensors",
    "verdicts",
]
