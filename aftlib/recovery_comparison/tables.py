"""The measurements of notebook 07 as tables: outcomes, normal operation, and a user's operation."""

from __future__ import annotations

import pandas as pd

from aftlib.core.recovery_costs import Alternatives, Operation, Scheme, monthly_costs
from aftlib.recovery_comparison.break_even import expected_again
from aftlib.recovery_comparison.experiments import Measurements
from aftlib.recovery_comparison.normal import UNPROTECTED
from aftlib.recovery_comparison.schemes import BY_PROCESS, EXACT, NOTHING, exact_of


def scheme_table(measured: Measurements) -> pd.DataFrame:
    """Return one row per scheme, in the longest windows: outcomes, samples and times.

    Outcomes count all kills. At the slowest rate, recovery_s is the median time of a recovery. Of
    it, reading_s is the wait for the samples, and fixed_ms the rest.
    """
    rows = measured.recoveries
    width = rows["width"].max()
    rate = rows["rate"].min()
    slow = rows[(rows["width"] == width) & (rows["rate"] == rate)]
    medians = slow.groupby("scheme")[["again", "seconds"]].median()
    wait = medians["again"] / rate
    outcomes = measured.outcomes[measured.outcomes["width"] == width].set_index("scheme")
    table = outcomes[["lost", "doubled", "estimated"]].join(medians["again"])
    table["fixed_ms"] = 1e3 * (medians["seconds"] - wait)
    table["reading_s"] = wait
    table["recovery_s"] = medians["seconds"]
    return table.join(outcomes["added_ms"])


def normal_table(measured: Measurements) -> pd.DataFrame:
    """Return one row per method in normal operation, over the turns.

    Columns: per_s: samples per second, the mean; speed: the same as a share of that without fault
    tolerance, as claim D1-7 compares speeds; latency_ms, the median; outage_s: the longest recovery
    at the slowest rate by the cost model, NaN without fault tolerance. With checkpoints, exact
    replay reads the samples since the last one.
    """
    rows = measured.recoveries
    slowest = float(rows["rate"].min())
    window = expected_again(rows, EXACT, int(rows["width"].max()))
    by_method = measured.normal.groupby("method", sort=False)
    per_s = by_method["per_s"].mean()
    outages = dict[str, float]()
    for method, checkpoints in by_method["checkpoints"].first().items():
        name = str(method)
        if checkpoints:
            again = window / checkpoints
            outages[name] = measured.costs[EXACT].recovery_s(again, False, slowest)
        elif name != UNPROTECTED:
            again = replayed_share(measured, name) * window
            outages[name] = measured.costs[name].recovery_s(again, True, slowest)
    table = pd.DataFrame(
        {
            "per_s": per_s,
            "speed": per_s / float(per_s[UNPROTECTED]),
            "latency_ms": 1e3 * by_method["latency_s"].median(),
        }
    )
    return table.assign(outage_s=pd.Series(outages))  # in the order of the methods


def replayed_share(measured: Measurements, scheme: str) -> float:
    """Return the share of the lost samples that a scheme reads again, in the longest windows."""
    rows = measured.recoveries
    width = int(rows["width"].max())
    exact = exact_of(scheme) or scheme
    again = expected_again(rows, scheme, width)
    return again / expected_again(rows, exact, width) if again else 0.0


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
    table = own_numbers(measured, operation)
    choices = own_alternatives(measured, operation)
    live = operation.samples_per_s
    keeps = {name: live + choice.keeps_from(t_sla_s) for name, choice in choices.items()}
    faster = {name: live + choice.faster_below() for name, choice in choices.items()}
    return table.assign(keeps_from=pd.Series(keeps), faster_below=pd.Series(faster))
