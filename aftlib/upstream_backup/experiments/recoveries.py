"""D4 figs 5 and 6: what is sent again and how long that takes, by scheme and rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.core.intervals import t_interval
from aftlib.spark.sweep import sweep
from aftlib.upstream_backup.closed_form import expected_queue, expected_resent, four_hops
from aftlib.upstream_backup.experiments.cases import Case
from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.ns3 import tables
from aftlib.upstream_backup.parameters import Parameters
from aftlib.upstream_backup.schemes import SCHEMES, scheme_named
from aftlib.upstream_backup.simulation import simulate

MEASURES = ("queue_at_crash", "resent", "reprocessed", "recovery_ms", "restored_ms", "caught_up_ms")
_CHUNK = 5
Point = tuple[Parameters, str, float, Sequence[int], Sequence[float]]


def recoveries(
    spark: SparkSession, case: Case, schemes: Sequence[str] = tuple(SCHEMES)
) -> pd.DataFrame:
    """Let the primary fail at every failure time, under every scheme and rate, on Spark.

    Returns
    -------
    DataFrame
        scheme, rate, trial, failure_ms, queue_at_crash, resent, reprocessed, duplicates: results
        that came twice, recovery_ms: the experiment's, restored_ms: Hwang et al.'s, caught_up_ms:
        until downstream has everything. Trials are paired: the same failure time in every scheme.
    """
    times = case.failures_ms.tolist()
    points: list[Point] = [
        (case.at(rate), name, rate, range(i, min(i + _CHUNK, case.trials)), times[i : i + _CHUNK])
        for rate in case.rates
        for name in schemes
        for i in range(0, case.trials, _CHUNK)
    ]
    found = sweep(spark, one_point, points)
    return pd.DataFrame([row for rows in found for row in rows])


def one_point(point: Point) -> list[dict[str, object]]:
    """Some trials of one scheme at one rate, a row each."""
    parameters, name, rate, trials, times = point
    return [
        {"scheme": name, "rate": rate, "trial": trial, "failure_ms": time}
        | recovery_row(parameters, name, time)
        for trial, time in zip(trials, times, strict=True)
    ]


def recovery_row(parameters: Parameters, scheme: str, failure_ms: float) -> dict[str, float]:
    """One failure of the primary and its recovery."""
    found = simulate(parameters, scheme, [Failure(failure_ms)]).recoveries[0]
    return {
        "queue_at_crash": found.queue_at_crash,
        "resent": len(found.resent),
        "reprocessed": found.reprocessed,
        "duplicates": found.duplicates,
        "recovery_ms": found.recovery_ms,
        "restored_ms": found.restored_ms,
        "caught_up_ms": found.caught_up_ms,
    }


def summary(trials: pd.DataFrame) -> pd.DataFrame:
    """Means over trials with t intervals: scheme, rate, and each measure with …_low, …_high."""
    rows = []
    for (scheme, rate), group in trials.groupby(["scheme", "rate"], sort=False):
        row = {"scheme": scheme, "rate": rate, "trials": len(group)}
        for name in [m for m in MEASURES if m in group]:
            centre, low, high = t_interval(group[name].to_numpy(dtype=float))
            row |= {name: float(centre), f"{name}_low": float(low), f"{name}_high": float(high)}
        rows.append(row)
    return pd.DataFrame(rows)


def saved(trials: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Upstream backup minus the proposal, by trial: rate, mean, low, high, ratio of the means."""
    wide = trials.pivot_table(index=["rate", "trial"], columns="scheme", values=measure)
    less = (wide["upstream backup"] - wide["proposed"]).unstack("trial")
    centre, low, high = t_interval(less.to_numpy())
    means = wide.groupby("rate").mean()
    ratio = (means["proposed"] / means["upstream backup"]).to_numpy()
    return pd.DataFrame(
        {"rate": less.index, "mean": centre, "low": low, "high": high, "ratio": ratio}
    )


def against_closed_form(case: Case, means: pd.DataFrame) -> pd.DataFrame:
    """Simulated means by the closed form's: rates down, schemes across.

    Returns
    -------
    DataFrame
        Columns in three groups: queue at the crash; sent again; sent again by the rule of thumb
        that counts all hops.
    """
    rows = means[means["resent"] > 0].copy()
    points = [
        (case.at(r), scheme_named(s)) for r, s in zip(rows["rate"], rows["scheme"], strict=True)
    ]
    forms = {
        "queue at the crash": ("queue_at_crash", expected_queue),
        "sent again": ("resent", expected_resent),
        "sent again, all hops": ("resent", four_hops),
    }
    for title, (measure, form) in forms.items():
        rows[title] = rows[measure] / [form(*point) for point in points]
    return rows.pivot_table(index="rate", columns="scheme", values=[*forms], sort=False)


def against_ns3() -> pd.DataFrame:
    """The stored runs of ns-3, all of default parameters, beside the simulation of the same.

    Returns
    -------
    DataFrame
        rate, scheme, and for each of resent, recovery_ms and caught_up_ms the simulation's mean
        over the stored failure times, ns-3's (…_ns3) with its t interval's half-width
        (…_ns3_half), and the relative difference (…_error, NaN where ns-3 has 0); reprocessed_ns3.
    """
    stored = tables.recoveries()
    rates, schemes, times = (stored[c].tolist() for c in ("rate", "scheme", "failure_ms"))
    points = zip(rates, schemes, times, strict=True)
    rows = [recovery_row(Parameters(rate=rate), name, time) for rate, name, time in points]
    ours = pd.DataFrame(rows, index=stored.index)[["resent", "recovery_ms", "caught_up_ms"]]
    both = stored[["rate", "scheme"]].join(stored[ours.columns].add_suffix("_ns3")).join(ours)
    only_results = np.array([scheme_named(name).both for name in schemes])
    both["reprocessed_ns3"] = np.where(only_results, 0, both["resent_ns3"])
    grouped = both.groupby(["scheme", "rate"], sort=False)
    table = grouped.mean().reset_index()
    for measure in ("resent", "reprocessed", "recovery_ms", "caught_up_ms"):
        bounds = [t_interval(part.to_numpy(dtype=float)) for _, part in grouped[f"{measure}_ns3"]]
        table[f"{measure}_ns3_half"] = [float(high - centre) for centre, _, high in bounds]
    for name in ours:
        reference = table[f"{name}_ns3"]
        table[f"{name}_error"] = table[name] / reference.where(reference > 0) - 1
    return table


def same_system(table: pd.DataFrame, case: Case) -> pd.DataFrame:
    """The rows of `against_ns3` that the case's system has as well: stored runs are of defaults."""
    return table[[case.at(rate) == Parameters(rate=rate) for rate in table["rate"]]]


def agreement(table: pd.DataFrame) -> pd.DataFrame:
    """Relative differences from ns-3 with rates down; schemes across, for count and time."""
    columns = {"resent_error": "tuples sent again", "recovery_ms_error": "recovery time"}
    wide = table.pivot_table(index="rate", columns="scheme", values=[*columns], sort=False)
    return wide.rename(columns=columns, level=0)


def side_by_side(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Tables with the same index as one, its columns grouped by their names."""
    return pd.concat(tables, axis=1)
