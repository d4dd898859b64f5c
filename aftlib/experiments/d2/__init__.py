"""D2: checkpoints and partial replay that keep ε, δ and a recovery time."""

from aftlib.experiments.d2.cases import Case, block_case
from aftlib.experiments.d2.costs import (
    Fit,
    compare_models,
    fastest,
    fit_recovery_time,
    recovery_times,
)
from aftlib.experiments.d2.counts import METHODS, checkpoint_counts, counts_table, plan_table
from aftlib.experiments.d2.examples import FIGURE_1, ThreeSensors, three_sensors
from aftlib.experiments.d2.recoveries import queries, recoveries, t_sla_kept
from aftlib.experiments.d2.restarts import PHASES, restarts
from aftlib.experiments.d2.success import success_rates
from aftlib.experiments.d2.verdicts import verdicts

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
