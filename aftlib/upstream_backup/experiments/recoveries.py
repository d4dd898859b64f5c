"""D4 figs 3 to 6: tuples sent again after a failure, recovery times, and costs.

Runs the simulation, and compares it with the closed form, with ns-3, and with ns-3 where one part
of TCP is changed at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.core.checks import require_number, require_numbers
from aftlib.core.intervals import t_interval
from aftlib.spark.sweep import sweep
from aftlib.upstream_backup.closed_form import expected_queue, expected_resent, four_hops, traffic
from aftlib.upstream_backup.failures import Failure, drawn_phases, failure_times
from aftlib.upstream_backup.parameters import NODES, Parameters, Phases, Tcp
from aftlib.upstream_backup.recursion import Simulated, simulate
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES, UPSTREAM, Scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Parameters(
    rate=1000 / 15, ack_ms=70, heartbeat_ms=20, switching_ms=45, checkpoint_ms=70, write_ms=15
)
"""Our choice, because the figures give no times: a tuple every 15 ms, from 0, three per turn."""

MEASURES = ("queue_at_crash", "resent", "reprocessed", "recovery_ms", "restored_ms", "caught_up_ms")
SHARES = ("share_of_all", "relative", "relative_to_input")
COUNT_LIMIT, TIME_LIMIT, BYTES_LIMIT = 0.10, 0.15, 0.05
"""Relative differences from ns-3 up to which counts, times and traffic agree."""
BASE, PROPOSAL = "as it is", "proposed"
STORED_RUNS = Path(__file__).parents[1] / "ns3"
"""Folder of the tables that ns-3 made (`make ns3`)."""
Cases = dict[str, tuple[Scheme, dict[str, object], dict[str, int]]]
SWITCHES: Cases = {
    "as it is": (UPSTREAM, {}, {}),
    "no handshake": (UPSTREAM, {"handshake": False}, {}),
    "no initial window": (UPSTREAM, {"initial_window": None}, {}),
    "initial window 1": (UPSTREAM, {"initial_window": 1}, {}),
    "Nagle on": (UPSTREAM, {}, {"nagle": 1}),
    "delayed ACKs": (UPSTREAM, {}, {"delayed_acks": 2}),
    "window 1, delayed ACKs": (UPSTREAM, {"initial_window": 1}, {"delayed_acks": 2}),
    "neither": (UPSTREAM, {"handshake": False, "initial_window": None}, {}),
    "proposed": (PROPOSED, {}, {}),
    "proposed, Nagle on": (PROPOSED, {}, {"nagle": 1}),
}
"""Changes to TCP, one at a time: scheme, fields of `Tcp`, options of the scenario."""


def example(scheme: str) -> Simulated:
    """Simulate the primary's failure in a stream slow enough to follow by eye (figs 3 and 4)."""
    return simulate(EXAMPLE, scheme, [Failure(182.0)], until_ms=330.0)


def example_table() -> pd.DataFrame:
    """The content of figs 3 and 4: scheme, tuples sent again, their number, recovery time."""
    by_scheme = {s.name: example(s.name).recoveries[0] for s in (UPSTREAM, PROPOSED)}
    rows = [
        (name, ", ".join(map(str, one.resent)), len(one.resent), one.recovery_ms)
        for name, one in by_scheme.items()
    ]
    return pd.DataFrame(rows, columns=["scheme", "sent again", "tuples", "recovery_ms"])


@dataclass(frozen=True)
class Sweep:
    """Input rates, and failures at the same random times for every scheme and rate.

    The times lie in [steady_ms, steady_ms + spread_ms); the document has 30 s for both. If the
    queues settle after steady_ms, this interval begins when they have settled.
    """

    rates: tuple[float, ...]  # tuples per second
    trials: int  # failures at each rate, each in a stream of its own; an interval needs two
    seed: int = 1  # of the failure times
    steady_ms: float = 2000.0
    spread_ms: float = 2000.0
    parameters: Parameters = field(default_factory=Parameters)  # all but the rate

    def __post_init__(self) -> None:
        require_numbers("rates", self.rates, above=0)
        require_number("trials", self.trials, least=2, whole=True)

    @property
    def failures_ms(self) -> np.ndarray:
        """Failure times, shape (trials,)."""
        steady = max(self.steady_ms, self.parameters.settling_ms + self.parameters.ack_ms)
        return failure_times(self.trials, self.seed, steady, self.spread_ms)

    def drawn(self, rate: float) -> list[tuple[Parameters, float]]:
        """Return, for each trial, the system with random phases and the failure time."""
        phases = drawn_phases(self.trials, self.seed)
        systems = [replace(self.at(rate), phases=one) for one in phases]
        return list(zip(systems, self.failures_ms.tolist(), strict=True))

    def at(self, rate: float) -> Parameters:
        """The system's parameters at one rate."""
        return replace(self.parameters, rate=float(rate))


Trial = tuple[dict[str, object], Parameters, float]


def recoveries(
    spark: SparkSession, case: Sweep, schemes: Sequence[str] = tuple(SCHEMES)
) -> pd.DataFrame:
    """Let the primary fail at every failure time, under every scheme and rate, on Spark.

    One row per trial: scheme, rate, trial, failure_ms, queue_at_crash, resent, reprocessed,
    duplicates (results that came twice), recovery_ms (the experiment's), restored_ms (Hwang et
    al.'s), caught_up_ms (until downstream has everything). Trials are paired: every scheme has the
    same failure times and phases.
    """
    points: list[Trial] = [
        ({"scheme": name, "rate": rate, "trial": trial}, system, time)
        for rate in case.rates
        for name in schemes
        for trial, (system, time) in enumerate(case.drawn(rate))
    ]
    return pd.DataFrame(sweep(spark, one_trial, points))


def one_trial(trial: Trial) -> dict[str, object]:
    """Simulate a failure of the primary; the row begins with the names of the trial."""
    names, system, time = trial
    return names | {"failure_ms": time} | recovery_row(system, str(names["scheme"]), time)


def recovery_row(
    parameters: Parameters, scheme: Scheme | str, failure_ms: float, node: str = NODES[0]
) -> dict[str, float]:
    """Simulate one failure of a node; return the measures of its recovery."""
    recovery = simulate(parameters, scheme, [Failure(failure_ms, node)]).recoveries[0]
    measures = {name: getattr(recovery, name) for name in (*MEASURES, "duplicates")}
    return measures | {"resent": len(recovery.resent)}


def summary(trials: pd.DataFrame) -> pd.DataFrame:
    """Means over trials with t intervals: scheme, rate, and each measure with …_low, …_high."""
    rows = []
    for (scheme, rate), group in trials.groupby(["scheme", "rate"], sort=False):
        row = {"scheme": scheme, "rate": rate, "trials": len(group)}
        for name in MEASURES:
            centre, low, high = t_interval(group[name].to_numpy(dtype=float))
            row |= {name: float(centre), f"{name}_low": float(low), f"{name}_high": float(high)}
        rows.append(row)
    return pd.DataFrame(rows)


def saved(trials: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Mean of upstream backup minus the proposal over paired trials, with its interval, by rate.

    Columns mean, low, high; ratio: the proposal's mean over upstream backup's, 1 if both are 0.
    """
    wide = trials.pivot_table(index=["rate", "trial"], columns="scheme", values=measure)
    less = (wide[UPSTREAM.name] - wide[PROPOSED.name]).unstack("trial")
    centre, low, high = t_interval(less.to_numpy())
    means = wide.groupby("rate").mean()
    ratio = (means[PROPOSED.name] / means[UPSTREAM.name]).fillna(1.0)
    return pd.DataFrame({"mean": centre, "low": low, "high": high, "ratio": ratio})


def savings(trials: pd.DataFrame) -> pd.DataFrame:
    """Savings of the proposal, one row per rate: `saved`, in tuples and in ms of recovery."""
    measures = {"tuples": "resent", "ms of recovery": "recovery_ms"}
    return pd.concat({title: saved(trials, name) for title, name in measures.items()}, axis=1)


def overheads(case: Sweep) -> pd.DataFrame:
    """Bandwidth overhead while nothing fails, with each denominator (D4 section 2.2).

    Columns scheme; rate; share_of_all; relative: to the stream without fault tolerance;
    relative_to_input: to the stream into the node.
    """
    rows = []
    for rate, scheme in product(case.rates, SCHEMES.values()):
        costs = traffic(case.at(rate), scheme)
        row = {"scheme": scheme.name, "rate": rate}
        rows.append(row | {name: getattr(costs, name) for name in SHARES})
    return pd.DataFrame(rows)


def comparison(means: pd.DataFrame, costs: pd.DataFrame, rate: float) -> pd.DataFrame:
    """All schemes at one rate that was simulated: three recovery times and three overheads."""
    times = ["scheme", "resent", "reprocessed", "recovery_ms", "restored_ms", "caught_up_ms"]
    left = means[means["rate"] == rate][times]
    right = costs[costs["rate"] == rate][["scheme", *SHARES]]
    return left.merge(right, on="scheme").set_index("scheme")


def read_runs(name: str) -> pd.DataFrame:
    """Read a stored table of ns-3's runs.

    Columns: rate, scheme or switch, failure_ms, the measures of a run, and the phases.
    """
    return pd.read_csv(STORED_RUNS / f"{name}.csv", comment="#")


def systems(table: pd.DataFrame) -> list[Parameters]:
    """The system of each row of a stored table."""
    drawn = table[[f"{one.name}_phase" for one in fields(Phases)]].to_numpy().tolist()
    rows = zip(table["rate"].tolist(), drawn, strict=True)
    return [Parameters(rate=rate, phases=Phases(*phases)) for rate, phases in rows]


def against_closed_form(case: Sweep, means: pd.DataFrame) -> pd.DataFrame:
    """Ratios of simulated means to the closed form: a row per rate, a column per group and scheme.

    The groups are the queue at the crash and the tuples sent again, each divided by its closed
    form. The third group divides the tuples sent again by a rule of thumb that counts all hops.
    """
    rows = means[means["resent"] > 0].copy()
    points = [(case.at(r), SCHEMES[s]) for r, s in zip(rows["rate"], rows["scheme"], strict=True)]
    forms = {
        "queue at the crash": ("queue_at_crash", expected_queue),
        "sent again": ("resent", expected_resent),
        "sent again, all hops": ("resent", four_hops),
    }
    for title, (measure, form) in forms.items():
        rows[title] = rows[measure] / [form(*point) for point in points]
    return rows.pivot_table(index="rate", columns="scheme", values=[*forms], sort=False)


def against_ns3() -> pd.DataFrame:
    """Compare the stored runs of ns-3, which have default parameters, with simulations of them.

    Columns rate; scheme; resent, recovery_ms and caught_up_ms: means of the simulation over the
    stored failure times; for each of these …_ns3: mean of ns-3, …_ns3_half: half-width of its t
    interval, …_error: relative difference, NaN if ns-3 has 0; reprocessed_ns3.
    """
    stored = read_runs("recoveries")
    schemes, times = stored["scheme"].tolist(), stored["failure_ms"].tolist()
    points = zip(systems(stored), schemes, times, strict=True)
    rows = [recovery_row(*point) for point in points]
    ours = pd.DataFrame(rows, index=stored.index)[["resent", "recovery_ms", "caught_up_ms"]]
    both = stored[["rate", "scheme"]].join(stored[ours.columns].add_suffix("_ns3")).join(ours)
    only_results = stored["scheme"].isin([name for name, one in SCHEMES.items() if one.both])
    both["reprocessed_ns3"] = both["resent_ns3"].mask(only_results, 0)
    grouped = both.groupby(["scheme", "rate"], sort=False)
    table = grouped.mean().reset_index()
    for measure in ("resent", "reprocessed", "recovery_ms", "caught_up_ms"):
        bounds = [t_interval(part.to_numpy(dtype=float)) for _, part in grouped[f"{measure}_ns3"]]
        table[f"{measure}_ns3_half"] = [float(high - centre) for centre, _, high in bounds]
    for name in ours:
        reference = table[f"{name}_ns3"]
        table[f"{name}_error"] = table[name] / reference.where(reference > 0) - 1
    return table


def same_system(table: pd.DataFrame, case: Sweep) -> pd.DataFrame:
    """Rows of `against_ns3` at whose rate the case's parameters are the defaults.

    The stored runs of ns-3 used only the defaults.
    """
    return table[[case.at(rate) == Parameters(rate=rate) for rate in table["rate"]]]


def agreement(table: pd.DataFrame) -> pd.DataFrame:
    """Relative differences from ns-3: one row per rate, one column per measure and scheme."""
    columns = {"resent_error": "tuples sent again", "recovery_ms_error": "recovery time"}
    wide = table.pivot_table(index="rate", columns="scheme", values=[*columns], sort=False)
    return wide.rename(columns=columns, level=0)


def tcp_parts() -> pd.DataFrame:
    """Recovery times of upstream backup with one part of TCP changed at a time (D4-4).

    Columns switch; rate; failure_ms; ns3_ms: of ns-3's stored run; ms: of the simulation of the
    same failure. The simulation has neither Nagle's algorithm nor delayed ACKs, so ms is NaN for
    them.
    """
    stored = read_runs("switches")
    ours, drawn = [], systems(stored)
    for system, switch, time in zip(drawn, stored["switch"], stored["failure_ms"], strict=True):
        scheme, tcp, options = SWITCHES[switch]
        changed = replace(system, tcp=replace(Tcp(), **tcp))  # type: ignore[arg-type]
        row = {} if options else recovery_row(changed, scheme.name, time)
        ours.append(row.get("recovery_ms", float("nan")))
    table = stored.assign(ms=ours, ns3_ms=stored["recovery_ms"])
    return table[["switch", "rate", "failure_ms", "ns3_ms", "ms"]]


def tcp_table(parts: pd.DataFrame) -> pd.DataFrame:
    """Mean recovery times: one row per switch, one column per rate, for ns-3 and the simulation."""
    wide = parts.pivot_table(index="switch", columns="rate", values=["ns3_ms", "ms"], sort=False)
    return wide.rename(columns={"ns3_ms": "ns-3", "ms": "simulation"}, level=0)


def explained(
    parts: pd.DataFrame, column: str = "ns3_ms", by: Sequence[str] = ("rate",)
) -> pd.DataFrame:
    """Parts of the gap between upstream backup and the proposal, by rate, in ms.

    Means over failures, or with `by` one row per failure.

    gap = handshake + initial_window + tuples. Column handshake is the part that opening the
    connection makes, initial_window the part that the window's limit makes, and tuples is the rest.
    nagle_adds, window_1_adds: time that each adds to upstream backup; gap_with_nagle: the gap with
    Nagle's algorithm in both schemes.
    """
    ms = parts.pivot_table(index=[*by], columns="switch", values=column, dropna=False)
    return pd.DataFrame(
        {
            "gap": ms[BASE] - ms[PROPOSAL],
            "handshake": ms[BASE] - ms["no handshake"],
            "initial_window": ms["no handshake"] - ms["neither"],
            "tuples": ms["neither"] - ms[PROPOSAL],
            "nagle_adds": ms["Nagle on"] - ms[BASE],
            "gap_with_nagle": ms["Nagle on"] - ms["proposed, Nagle on"],
            "window_1_adds": ms["initial window 1"] - ms[BASE],
        }
    )


def counted_traffic() -> pd.DataFrame:
    """Traffic for availability by the closed form and as ns-3 counted it, bytes per second.

    Columns scheme; rate; derived: by the closed form; counted: mean over ns-3's stored runs; error:
    the relative difference.
    """
    parts = [f"{name}_bps" for name in ("copies", "acks", "checkpoints", "heartbeats")]
    means = read_runs("traffic").groupby(["scheme", "rate"], sort=False)[parts].mean()
    table = means.sum(axis=1).rename("counted").reset_index()
    points = zip(table["scheme"], table["rate"].tolist(), strict=True)
    table["derived"] = [traffic(Parameters(rate=r), SCHEMES[s]).availability for s, r in points]
    return table.assign(error=table["derived"] / table["counted"] - 1)
