"""Whether the notebook's parameters can be run to the end, asked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aftlib.checkpoint_planning.experiments.costs import require_judged
from aftlib.checkpoint_planning.experiments.guarded import require_guarded
from aftlib.checkpoint_planning.experiments.recoveries import require_planned
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME
from aftlib.core.checks import require_number, require_numbers
from aftlib.core.requirement import Requirement

MOST_SENSORS = 20_000
"""Sensors whose covariance, and gain matrix, still fit into memory."""


def check_parameters(
    *,
    epsilons: Sequence[float],
    deltas: Sequence[float],
    t_slas: Sequence[float],
    epsilon: float,
    delta: float,
    t_sla: float,
    sensors: int,
    groups: int,
    variance: float,
    covariance: float,
    window: int,
    slide: int,
    rows: int,
    replications: int,
    seed: int,
    ns: Sequence[int],
    spark_ns: Sequence[int],
    shares: Sequence[float],
    repeats: int,
    kept_epsilon: float,
    budgets: Sequence[int],
    calibration: int,
    recoveries: int,
    restarts: int,
    memory: float,
    guard_epsilon: float,
    guard_windows: int,
    guard_budget: int,
    plan: str | None = None,
) -> None:
    """Refuse what would fail later; the parameters are those of the notebook."""
    counts = {"replications": replications, "repeats": repeats, "calibration": calibration}
    counts |= {"recoveries": recoveries, "restarts": restarts, "groups": groups, "slide": slide}
    counts |= {"window": window, "rows": rows}
    for name, count in counts.items():
        require_number(name, count, least=1, whole=True)
    require_number("seed", seed, least=0, whole=True)
    require_number("sensors", sensors, least=1, most=MOST_SENSORS, whole=True)
    require_numbers("epsilons", epsilons, above=0, below=1e100)
    require_number("epsilon", epsilon, above=0, below=1e100)
    require_numbers("deltas", deltas, above=0, below=1)
    require_number("delta", delta, above=0, below=1)
    shortest = DOCUMENT_RECOVERY_TIME(sensors)  # replays every sensor over one step
    require_numbers("t_slas", t_slas, least=shortest)
    require_number("t_sla", t_sla, least=shortest)

    require_number("variance", variance, above=0, below=1e100)
    if sensors % groups:
        raise ValueError(
            f"groups must divide sensors = {sensors}, got {groups!r}; groups are equally large"
        )
    require_number("covariance", covariance)
    lowest = -variance / max(1, sensors // groups - 1)
    if not lowest * 0.999 < covariance < variance * 0.999:
        raise ValueError(
            f"covariance must lie between {lowest:g} and variance = {variance:g}, got "
            f"{covariance!r}; no {sensors // groups} sensors of a group can go together like that"
        )

    if slide > window:
        raise ValueError(f"slide must be at most window = {window}, got {slide!r}")
    if rows < window:
        raise ValueError(f"rows must hold a window of {window} steps, got {rows!r}")

    require_numbers("budgets", budgets, least=sensors, whole=True)
    require_number("kept_epsilon", kept_epsilon, above=0, below=1e100)
    enough = Requirement(1, delta).z * np.sqrt(variance / window)
    if not kept_epsilon < enough:
        raise ValueError(
            f"kept_epsilon must be below {enough:.4g}, where nothing need be replayed with delta = "
            f"{delta!r}, variance = {variance!r} and window = {window!r}, got {kept_epsilon!r}"
        )

    require_number("memory", memory, least=0, below=1)
    require_guarded(guard_epsilon, guard_windows, guard_budget)
    require_numbers("ns", ns, least=1, most=MOST_SENSORS, whole=True)
    require_numbers("spark_ns", spark_ns, least=1, most=MOST_SENSORS, whole=True)
    require_numbers("shares", shares, above=0, most=1)
    require_judged(ns, shares)
    if plan is not None:
        require_planned(plan)
