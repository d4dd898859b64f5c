"""The costs of each measured scheme in a user's operation, and whether estimating pays there."""

from __future__ import annotations

import pandas as pd

from aftlib.core.recovery_costs import Alternatives, Operation, Scheme, monthly_costs
from aftlib.recovery_comparison.experiments import Measurements, replayed_share
from aftlib.recovery_comparison.schemes import BY_PROCESS, NOTHING, exact_of


def own_numbers(measured: Measurements, operation: Operation) -> pd.DataFrame:
    """Return the cost of each measured scheme in the user's operation, one row per scheme."""
    schemes = list[Scheme]()
    for name, costs in measured.costs.items():
        if name == NOTHING:
            continue
        replayed = replayed_share(measured, name)
        if name in BY_PROCESS:
            schemes.append(Scheme(name, costs, 1.0, replayed, measured.checkpoints))
        else:
            lost = 1 / measured.case.workers
            skips = exact_of(name) is not None
            schemes.append(Scheme(name, costs, lost, replayed, skips_input=skips))
    return monthly_costs(operation, schemes)


def own_alternatives(measured: Measurements, operation: Operation) -> dict[str, Alternatives]:
    """Return each approximate recovery beside the exact one in the user's operation, by scheme.

    A failure hits at the end of an interval between two checkpoints, so the recoveries are the
    longest.
    """
    choices = dict[str, Alternatives]()
    for name, costs in measured.costs.items():
        exact = exact_of(name)
        if exact is None:
            continue
        lost = operation.samples_per_s * operation.window_s
        lost /= measured.checkpoints if name in BY_PROCESS else measured.case.workers
        again = replayed_share(measured, name) * lost
        choices[name] = Alternatives(measured.costs[exact], costs, lost, again)
    return choices


def own_table(measured: Measurements, operation: Operation, t_sla_s: float) -> pd.DataFrame:
    """Return the monthly costs of `own_numbers`, with both criteria as read rates.

    keeps_from, faster_below: total samples per second, live ones included, from which on the exact
    recovery keeps T_SLA, and below which the scheme is faster; NaN for exact schemes.
    """
    table = own_numbers(measured, operation).drop(columns=["price"])
    choices = own_alternatives(measured, operation)
    live = operation.samples_per_s
    keeps = {name: live + choice.keeps_from(t_sla_s) for name, choice in choices.items()}
    faster = {name: live + choice.faster_below() for name, choice in choices.items()}
    return table.assign(keeps_from=pd.Series(keeps), faster_below=pd.Series(faster))
