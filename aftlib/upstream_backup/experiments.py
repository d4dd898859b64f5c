"""D4's experiments in the order of notebook 04: figs 3 to 6, ns-3, TCP's parts, the costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.intervals import ratio_interval, t_interval
from aftlib.spark.sweep import sweep
from aftlib.upstream_backup.closed_form import expected_queue, expected_resent, traffic
from aftlib.upstream_backup.simulation import NEVER, Route, Simulated, simulate
from aftlib.upstream_backup.system import (
    ACTIVE,
    MS,
    NODES,
    PASSIVE,
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
STORED_SEED = 1
"""Seed of the failure times and phases of ns-3's stored runs."""
DELAYED, ALL_DELAYED, AT_ONCE = "delayed", "all delayed", "at once"
ACKNOWLEDGEMENTS = {DELAYED: (2, True), ALL_DELAYED: (2, False), AT_ONCE: (1, True)}
"""TCP's acknowledgements in ns-3's stored runs: `DelAckCount`, and whether the first is at once.

"delayed" is the default of ns-3.37: an acknowledgement waits for a second segment, at most 200 ms,
but a connection's first segment is acknowledged at once. Older versions delayed that one, too.
"""


@dataclass(frozen=True)
class Switch:
    """One change to TCP in ns-3's stored runs.

    `tcp` has fields of `Tcp`. `nagle` names the connections with Nagle's algorithm: "off",
    "recovery" (upstream backup's connection to the secondary, opened at recovery) or "stream" (all
    that carry tuples or results, before the failure, too).
    """

    scheme: Scheme = UPSTREAM
    tcp: Mapping[str, Any] = field(default_factory=dict)
    nagle: str = "off"


SWITCHES = {
    "as it is": Switch(),
    "no handshake": Switch(tcp={"handshake": False}),
    "Nagle on": Switch(nagle="recovery"),
    "Nagle everywhere": Switch(nagle="stream"),
    "neither": Switch(tcp={"handshake": False, "initial_window": None}),
    "proposed": Switch(PROPOSED),
}
"""Changes to TCP, one at a time."""
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


def follow_tuples() -> pd.DataFrame:
    """Messages of `example` under both schemes, one row each, for `figures.recoveries`.

    Columns scheme; kind ("tuple", "result", "ACK", "request", "replayed tuple" or "failure");
    source and target: the nodes; sent_ms, arrived_ms; number: of its tuple, of an ACK the
    newest that it confirms, −1 where there is none.
    """
    return pd.DataFrame(
        [
            {"scheme": scheme.name, **message}
            for scheme in SIMULATED_SCHEMES
            for message in _list_messages(example(scheme))
        ]
    )


def _list_messages(run: Simulated) -> Iterator[dict[str, Any]]:
    """Yield the messages of a run, as `follow_tuples` has them."""
    outage = run.recovery.outage
    delay = EXAMPLE.link.delay_ns
    replayed = set(run.recovery.resent.tolist())

    def message(
        kind: str, source: str, target: str, sent: int, arrived: int, number: int = -1
    ) -> dict[str, Any]:
        times = {"sent_ms": sent / MS, "arrived_ms": arrived / MS}
        return {"kind": kind, "source": source, "target": target, **times, "number": number}

    for route in (run.failed, run.survivor):
        for i, number in enumerate(route.ids.tolist()):
            again = route is run.survivor and number in replayed
            kind = "replayed tuple" if again else "tuple"
            arrived = route.sent[i] + delay
            yield message(kind, "upstream", route.node, route.queued[i], arrived, number)
            if route.delivered[i] < NEVER:
                times = route.emitted[i], route.delivered[i]
                yield message("result", route.node, "downstream", *times, number)
        for tick, newest in _list_acks(route):
            passed = tick + EXAMPLE.hop_ns
            yield message("ACK", "downstream", route.node, tick, passed, newest)
            if passed < route.crash:
                back = passed + EXAMPLE.hop_ns
                yield message("ACK", route.node, "upstream", passed, back, newest)
    yield message("request", outage.survivor, "upstream", outage.detected, outage.request)
    yield message("failure", outage.node, outage.node, outage.crash, outage.crash)


def _list_acks(route: Route) -> Iterator[tuple[int, int]]:
    """Yield the times of a route's level-0 ACKs, and the newest tuple that each confirms."""
    every, phase = EXAMPLE.cycle("ack")
    confirmed = 0
    for tick in range(phase + every, int(route.queued[-1]), every):
        count = int(np.searchsorted(route.delivered, tick, side="right"))
        if count > confirmed:
            confirmed = count
            yield tick, int(route.ids[count - 1])


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

    In percent, one row per measure: the control of every simulated verdict.
    """
    points = [(case.at(r), SCHEMES[s]) for r, s in zip(means["rate"], means["scheme"], strict=True)]
    queue, resent = (
        (means[measure] / [form(*point) for point in points] - 1).abs().max()
        for measure, form in (("queue_at_crash", expected_queue), ("resent", expected_resent))
    )
    rows = {
        "queue at the failure, closed form": queue,
        "replayed tuples, closed form": resent,
        "replayed tuples, ns-3": ns3["resent_error"].abs().max(),
        "recovery time, ns-3": ns3["recovery_ms_error"].abs().max(),
        "bytes on all links, closed form against ns-3": counted_traffic()["error"].abs().max(),
    }
    return 100 * pd.Series(rows, name="largest difference (%)").to_frame()


def compare_schemes() -> pd.DataFrame:
    """Recovery of all five schemes in ns-3's stored runs, means over failures of the primary.

    Columns scheme; rate; resent: tuples sent again, of active standby the results that the
    secondary held back; recovery_ms: D4's recovery time, from the request until the last of the
    tuples is processed (0 where nothing is requested); caught_up_ms: from the detection until the
    last of their results is downstream (D4-6's order; 0 where every result is sent twice anyway).
    """
    columns = ["resent", "recovery_ms", "caught_up_ms"]
    grouped = read_runs("recoveries").groupby(["scheme", "rate"], sort=False)
    return grouped[columns].mean().reset_index()


def order_of_recovery(schemes: pd.DataFrame) -> list[str]:
    """Return the rates of `compare_schemes` that have D4-6's order, as text.

    Active standby is faster than passive standby, and that is faster than upstream backup.
    """
    times = schemes.pivot_table(index="rate", columns="scheme", values="recovery_ms")
    ordered = times[ACTIVE.name] < times[PASSIVE.name]
    ordered &= times[PASSIVE.name] < times[UPSTREAM.name]
    return [f"{rate:,}" for rate in times.index[ordered]]


def schemes_at(schemes: pd.DataFrame, rate: float) -> pd.DataFrame:
    """Rows of `compare_schemes` at the stored rate nearest to `rate`, one line per scheme."""
    nearest = min(schemes["rate"].unique().tolist(), key=lambda stored: abs(stored - rate))
    names = {
        "resent": "tuples or results sent again",
        "recovery_ms": "request to last tuple processed (ms)",
        "caught_up_ms": "detection to last result downstream (ms)",
    }
    rows = schemes[schemes["rate"] == nearest].set_index("scheme")[[*names]].rename(columns=names)
    return rows.rename_axis(f"ns-3 at {nearest:,} tuples/s")


def tcp_parts() -> pd.DataFrame:
    """Recovery times with one part of TCP changed at a time, in ns-3's stored runs (D4-4).

    Columns acknowledgements: a key of `ACKNOWLEDGEMENTS`; switch: a key of `SWITCHES`; rate; trial;
    ns3_ms: of ns-3's run; ms: of the simulation of the same failure. The simulation has neither
    delayed acknowledgements nor Nagle's algorithm, so ms is NaN with them.
    """
    stored = read_runs("switches")
    keys = ["acknowledgements", "rate", "trial"]
    parts = stored.melt(keys, var_name="switch", value_name="ns3_ms")
    trials = int(stored["trial"].max()) + 1
    times = failure_times(trials, STORED_SEED).tolist()
    phases = drawn_phases(trials, STORED_SEED)
    ours = []
    for row in parts.to_dict("records"):
        switch = SWITCHES[row["switch"]]
        if row["acknowledgements"] != AT_ONCE or switch.nagle != "off":
            ours.append(np.nan)
            continue
        tcp = replace(Tcp(), **switch.tcp)
        system = Parameters(rate=row["rate"], tcp=tcp, phases=phases[row["trial"]])
        measures = measure_recovery(system, switch.scheme, times[row["trial"]])
        ours.append(measures["recovery_ms"])
    return parts.assign(ms=ours)


def explain_gap(
    parts: pd.DataFrame, acknowledgements: str = DELAYED, by: Sequence[str] = ("rate",)
) -> pd.DataFrame:
    """Parts of the gap between upstream backup and the proposal in ns-3, by rate, in ms.

    Means over failures, or one row per failure where `by` has "trial". gap = nagle + handshake +
    initial_window + tuples, where Nagle's algorithm works on the connection opened at recovery.
    everywhere: what the algorithm adds if it works on all connections of the stream instead, before
    the failure, too.
    """
    chosen = parts[parts["acknowledgements"] == acknowledgements]
    ms = chosen.pivot_table(index=[*by], columns="switch", values="ns3_ms", dropna=False)
    return pd.DataFrame(
        {
            "gap": ms["Nagle on"] - ms["proposed"],
            "nagle": ms["Nagle on"] - ms["as it is"],
            "handshake": ms["as it is"] - ms["no handshake"],
            "initial_window": ms["no handshake"] - ms["neither"],
            "tuples": ms["neither"] - ms["proposed"],
            "everywhere": ms["Nagle everywhere"] - ms["as it is"],
        }
    )


def share_of_nagle(parts: pd.DataFrame) -> pd.DataFrame:
    """Share of the gap that Nagle's algorithm makes, with intervals that hold jointly over rates.

    Columns acknowledgements, rate, share, low, high; most_ms: the most that it adds to a failure;
    trials.
    """
    rows = []
    for kind in ACKNOWLEDGEMENTS:
        failures = explain_gap(parts, kind, by=("rate", "trial"))
        rates = failures.index.unique("rate")
        for rate in rates:
            at = failures.loc[rate].dropna()
            added = at["nagle"].to_numpy()
            whole = at["gap"].to_numpy()
            share, (low, high) = ratio_interval(added, whole, paired=True, family=len(rates))
            row = {"acknowledgements": kind, "rate": rate, "share": share, "low": low, "high": high}
            rows.append(row | {"most_ms": added.max(), "trials": len(at)})
    return pd.DataFrame(rows)


def show_gap(gaps: pd.DataFrame) -> pd.DataFrame:
    """Name the parts of `explain_gap` for readers, in ms."""
    names = {
        "gap": "gap (ms)",
        "nagle": "Nagle's algorithm (ms)",
        "handshake": "open the connection (ms)",
        "initial_window": "TCP's first window (ms)",
        "tuples": "more tuples (ms)",
    }
    return gaps[[*names]].rename(columns=names).rename_axis("tuples/s")


def show_shares(shares: pd.DataFrame) -> pd.DataFrame:
    """Lay out `share_of_nagle` for readers: a line per rate, a column per acknowledgement."""
    names = {
        DELAYED: "delayed (ns-3's default)",
        ALL_DELAYED: "the first delayed, too (older ns-3)",
        AT_ONCE: "not delayed",
    }
    texts = [
        f"{100 * row['share']:.0f} % [{100 * row['low']:.0f}, {100 * row['high']:.0f}]"
        for row in shares.to_dict("records")
    ]
    table = shares.assign(text=texts).pivot(index="rate", columns="acknowledgements", values="text")
    return table[[*names]].rename(columns=names).rename_axis("tuples/s").rename_axis(None, axis=1)


def compare_costs(case: Sweep, rate: float) -> pd.DataFrame:
    """All five schemes at one rate: traffic for availability by two denominators, in percent."""
    costs = [traffic(case.at(rate), scheme) for scheme in SCHEMES.values()]
    columns = {
        "of all traffic (%)": [100 * one.share_of_all for one in costs],
        "of the stream without fault tolerance (%)": [100 * one.relative for one in costs],
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


def compare_either(either: pd.DataFrame) -> pd.DataFrame:
    """Means per failure when each node fails equally often, by rate.

    Columns for replayed tuples and for recovery time (ms): both schemes, and the ratio of the
    proposal's to upstream backup's.
    """
    tables = {}
    for measure, name in (("resent", "replayed tuples"), ("recovery_ms", "recovery time (ms)")):
        means = either.pivot_table(index="rate", columns="scheme", values=measure)
        means = means[[UPSTREAM.name, PROPOSED.name]].rename_axis(columns=None)
        means["ratio"] = means[PROPOSED.name] / means[UPSTREAM.name]
        tables[name] = means
    return pd.concat(tables, axis=1).rename_axis("tuples/s")


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
