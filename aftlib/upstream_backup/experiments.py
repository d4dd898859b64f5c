"""D4's experiments in the order of notebook 04: figs 3 to 6, ns-3, TCP's parts, the costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.intervals import t_interval
from aftlib.spark.sweep import sweep
from aftlib.upstream_backup.closed_form import expected_queue, expected_resent, traffic
from aftlib.upstream_backup.simulation import Simulated, simulate
from aftlib.upstream_backup.system import (
    NODES,
    PROPOSED,
    SCHEMES,
    SIMULATED_SCHEMES,
    STEADY_MS,
    UPSTREAM,
    Failure,
    Parameters,
    Phases,
    Scheme,
    Tcp,
    drawn_phases,
    failure_times,
)
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Parameters(rate=1000 / 15, ack_ms=70, heartbeat_ms=20, switching_ms=45, write_ms=15)
"""Our choice, because figs 3 and 4 give no times: a tuple every 15 ms, from 0, three per turn."""
LAG = 10
"""Tuples between the two partners of a join."""
MEASURES = ("queue_at_crash", "resent", "recovery_ms")
TIME_LIMIT = 0.15
"""Relative difference from ns-3 up to which times agree."""
STORED_RUNS = Path(__file__).parent / "ns3"
"""Folder of the tables that ns-3 made (benchmarks/ns3)."""
SWITCHES: dict[str, tuple[Scheme, dict[str, Any], dict[str, int]]] = {
    "as it is": (UPSTREAM, {}, {}),
    "no handshake": (UPSTREAM, {"handshake": False}, {}),
    "Nagle on": (UPSTREAM, {}, {"nagle": 1}),
    "neither": (UPSTREAM, {"handshake": False, "initial_window": None}, {}),
    "proposed": (PROPOSED, {}, {}),
}
"""Changes to TCP, one at a time: scheme, fields of `Tcp`, options of ns-3's scenario."""
_INTERVAL: Any = {"least": 0.1, "most": 10_000}


class NotebookParameters(ParameterModel):
    """Parameters of notebook 04."""

    rates: list[int | float] = parameter(
        [200, 500, 1000, 2000, 5000, 10000, 15000, 20000],
        "tuples/s",
        above=0,
        smoke=[200, 1000, 20000],
    )
    rate: int | float = parameter(1000, "of the tables, tuples/s", above=0)
    trials: int = parameter(
        100, "failures at each rate, for intervals", least=5, smoke=10, full=1000
    )
    ack_ms: float = parameter(25.0, "interval of level-0 ACKs", **_INTERVAL)
    heartbeat_ms: float = parameter(100.0, "interval of heartbeats", **_INTERVAL)
    switching_ms: float = parameter(100.0, "a node's turn in the proposal", **_INTERVAL)
    seed: int = parameter(1, "of the failure times", least=0)

    @model_validator(mode="after")
    def describe_systems(self) -> Self:
        """Refuse impossible systems: a link or node too slow for a rate, a turn without a tuple."""
        for rate in [*self.rates, self.rate]:
            replace(self.system, rate=rate)
        return self

    @property
    def system(self) -> Parameters:
        """The system at the rate of the tables."""
        shared = {"rate", "ack_ms", "heartbeat_ms", "switching_ms"}
        return Parameters(**self.model_dump(include=shared))

    @property
    def sweep(self) -> Sweep:
        """The rates and failures of figs 5 and 6."""
        rates = tuple(sorted({*self.rates, self.rate}))
        return Sweep(rates, self.trials, self.seed, parameters=self.system)


def example(scheme: Scheme) -> Simulated:
    """Simulate the primary's failure in a stream slow enough to follow by eye (figs 3 and 4)."""
    return simulate(EXAMPLE, scheme, Failure(182.0))


@dataclass(frozen=True)
class Sweep:
    """Input rates, and failures at the same random times for both schemes and every rate.

    The times are `failure_times`, but not before the queues have settled.
    """

    rates: tuple[float, ...]  # tuples per second
    trials: int  # failures at each rate, each in a stream of its own; an interval needs two
    seed: int = 1  # of the failure times
    parameters: Parameters = field(default_factory=Parameters)  # all but the rate

    @property
    def failures_ms(self) -> np.ndarray:
        """Failure times, shape (trials,)."""
        steady = max(STEADY_MS, self.parameters.settling_ms + self.parameters.ack_ms)
        return failure_times(self.trials, self.seed, steady)

    def drawn(self, rate: float) -> list[tuple[Parameters, float]]:
        """Return, for each trial, the system with random phases and the failure time."""
        phases = drawn_phases(self.trials, self.seed)
        systems = [replace(self.at(rate), phases=one) for one in phases]
        return list(zip(systems, self.failures_ms.tolist(), strict=True))

    def at(self, rate: float) -> Parameters:
        """The system's parameters at one rate."""
        return replace(self.parameters, rate=float(rate))


Trial = tuple[dict[str, Any], Parameters, float]


def recoveries(spark: SparkSession, case: Sweep, nodes: Sequence[str] = NODES[:1]) -> pd.DataFrame:
    """Let each of `nodes` fail at every failure time, under both schemes and every rate, on Spark.

    One row per trial: scheme, rate, node, trial, failure_ms, queue_at_crash, resent, recovery_ms.
    Trials are paired: both schemes have the same failure times and phases.
    """
    points: list[Trial] = [
        ({"scheme": scheme.name, "rate": rate, "node": node, "trial": trial}, system, time)
        for rate, scheme, node in product(case.rates, SIMULATED_SCHEMES, nodes)
        for trial, (system, time) in enumerate(case.drawn(rate))
    ]
    return pd.DataFrame(sweep(spark, run_trial, points))


def run_trial(trial: Trial) -> dict[str, Any]:
    """Simulate one failure; the row begins with the names of the trial."""
    names, system, time = trial
    measures = measure_recovery(system, SCHEMES[names["scheme"]], time, names["node"])
    return names | {"failure_ms": time} | measures


def measure_recovery(
    parameters: Parameters, scheme: Scheme, failure_ms: float, node: str = NODES[0]
) -> dict[str, float]:
    """Simulate one failure of a node; return the measures of its recovery."""
    recovery = simulate(parameters, scheme, Failure(failure_ms, node)).recovery
    measures = {name: getattr(recovery, name) for name in MEASURES}
    return measures | {"resent": len(recovery.resent)}  # there the tuples, here their number


def summarize(trials: pd.DataFrame) -> pd.DataFrame:
    """Means over trials with t intervals: scheme, rate, and each measure with …_low, …_high."""
    rows = []
    for (scheme, rate), group in trials.groupby(["scheme", "rate"], sort=False):
        row = {"scheme": scheme, "rate": rate, "trials": len(group)}
        for name in MEASURES:
            centre, low, high = t_interval(group[name].to_numpy(dtype=float))
            row |= {name: float(centre), f"{name}_low": float(low), f"{name}_high": float(high)}
        rows.append(row)
    return pd.DataFrame(rows)


def read_runs(name: str) -> pd.DataFrame:
    """Read a stored table of ns-3's runs: rate, scheme or switch, failure_ms, measures, phases."""
    return pd.read_csv(STORED_RUNS / f"{name}.csv", comment="#")


def read_systems(table: pd.DataFrame) -> list[Parameters]:
    """Return the system of each row of a stored table."""
    drawn = table[[f"{one.name}_phase" for one in fields(Phases)]].to_numpy().tolist()
    rows = zip(table["rate"].tolist(), drawn, strict=True)
    return [Parameters(rate=rate, phases=Phases(*phases)) for rate, phases in rows]


def compare_with_ns3() -> pd.DataFrame:
    """Compare ns-3's stored runs of both schemes, of default parameters, with simulations of them.

    Columns rate; scheme; resent and recovery_ms: means of the simulation over the stored failure
    times; for each …_ns3: mean of ns-3, …_ns3_half: half-width of its t interval, …_error: relative
    difference.
    """
    stored = read_runs("recoveries")
    stored = stored[stored["scheme"].isin([scheme.name for scheme in SIMULATED_SCHEMES])]
    points = zip(read_systems(stored), stored["scheme"], stored["failure_ms"], strict=True)
    rows = [measure_recovery(system, SCHEMES[name], time) for system, name, time in points]
    ours = pd.DataFrame(rows, index=stored.index)[["resent", "recovery_ms"]]
    both = stored[["rate", "scheme"]].join(stored[ours.columns].add_suffix("_ns3")).join(ours)
    grouped = both.groupby(["scheme", "rate"], sort=False)
    table = grouped.mean().reset_index()
    for name in ours:
        bounds = [t_interval(part.to_numpy(dtype=float)) for _, part in grouped[f"{name}_ns3"]]
        table[f"{name}_ns3_half"] = [float(high - centre) for centre, _, high in bounds]
        table[f"{name}_error"] = table[name] / table[f"{name}_ns3"] - 1
    return table


def same_system(table: pd.DataFrame, case: Sweep) -> pd.DataFrame:
    """Rows of `compare_with_ns3` at whose rate the case has the defaults, as ns-3 had."""
    return table[[case.at(rate) == Parameters(rate=rate) for rate in table["rate"]]]


def agreement(case: Sweep, means: pd.DataFrame, ns3: pd.DataFrame) -> pd.DataFrame:
    """Largest relative difference over rates and schemes from the closed form and from ns-3.

    One row per measure: the control of every simulated verdict.
    """
    points = [(case.at(r), SCHEMES[s]) for r, s in zip(means["rate"], means["scheme"], strict=True)]
    queue, resent = (
        (means[measure] / [form(*point) for point in points] - 1).abs().max()
        for measure, form in (("queue_at_crash", expected_queue), ("resent", expected_resent))
    )
    rows = {
        "queue at the failure, closed form": queue,
        "tuples sent again, closed form": resent,
        "tuples sent again, ns-3": ns3["resent_error"].abs().max(),
        "recovery time, ns-3": ns3["recovery_ms_error"].abs().max(),
        "bytes on all links, closed form against ns-3": counted_traffic()["error"].abs().max(),
    }
    return pd.Series(rows, name="largest difference").to_frame()


def tcp_parts() -> pd.DataFrame:
    """Recovery times of upstream backup with one part of TCP changed at a time (D4-4).

    Columns switch; rate; failure_ms; ns3_ms: of ns-3's stored run; ms: of the simulation of the
    same failure. The simulation has no Nagle's algorithm, so ms is NaN with it.
    """
    stored = read_runs("switches")
    ours, drawn = [], read_systems(stored)
    for system, switch, time in zip(drawn, stored["switch"], stored["failure_ms"], strict=True):
        scheme, tcp, options = SWITCHES[switch]
        changed = replace(system, tcp=replace(Tcp(), **tcp))
        ours.append(np.nan if options else measure_recovery(changed, scheme, time)["recovery_ms"])
    table = stored.assign(ms=ours, ns3_ms=stored["recovery_ms"])
    return table[["switch", "rate", "failure_ms", "ns3_ms", "ms"]]


def explain_gap(parts: pd.DataFrame, by: Sequence[str] = ("rate",)) -> pd.DataFrame:
    """Parts of the gap between upstream backup and the proposal in ns-3, by rate, in ms.

    Means over failures, or one row per failure where `by` has "failure_ms". gap = handshake +
    initial_window + tuples. nagle: what Nagle's algorithm adds to upstream backup.
    """
    ms = parts.pivot_table(index=[*by], columns="switch", values="ns3_ms", dropna=False)
    return pd.DataFrame(
        {
            "gap": ms["as it is"] - ms["proposed"],
            "handshake": ms["as it is"] - ms["no handshake"],
            "initial_window": ms["no handshake"] - ms["neither"],
            "tuples": ms["neither"] - ms["proposed"],
            "nagle": ms["Nagle on"] - ms["as it is"],
        }
    )


def compare_costs(case: Sweep, rate: float) -> pd.DataFrame:
    """All five schemes at one rate: traffic for availability by two denominators (2.2)."""
    costs = [traffic(case.at(rate), scheme) for scheme in SCHEMES.values()]
    columns = {
        "of all traffic": [one.share_of_all for one in costs],
        "of the stream without fault tolerance": [one.relative for one in costs],
    }
    return pd.DataFrame(columns, index=list(SCHEMES))


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


def wrong_joins(case: Sweep, rate: float, trials: int = 10) -> pd.Series:
    """Mean wrong pairs per failure of the primary by scheme, without sorting the results.

    An operator joins results i and i + `LAG` and remembers the last `LAG` results. A pair is
    missing when the first of the two is forgotten before the second comes. Tuples sent again
    arrive after later tuples that went to the survivor.
    """
    wrong = {}
    for scheme in SIMULATED_SCHEMES:
        counts = []
        for system, time in case.drawn(rate)[:trials]:
            delivered = simulate(system, scheme, Failure(time)).delivered
            rank = np.empty(len(delivered), dtype=np.int64)
            rank[np.argsort(delivered, kind="stable")] = np.arange(len(delivered))
            counts.append(int((np.abs(rank[LAG:] - rank[:-LAG]) > LAG).sum()))
        wrong[scheme.name] = float(np.mean(counts))
    return pd.Series(wrong, name="wrong pairs per failure")
