"""D4 in the stored runs of the network simulator ns-3: all schemes, and parts of TCP.

`benchmarks/ns3` makes the tables in the folder ``ns3``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.intervals import ratio_interval, t_interval
from aftlib.documents.upstream_backup.closed_form import expected_queue, expected_resent, traffic
from aftlib.documents.upstream_backup.experiments import NotebookParameters, measure_recovery
from aftlib.documents.upstream_backup.system import (
    ACTIVE,
    PASSIVE,
    PROPOSED,
    SCHEMES,
    SIMULATED_SCHEMES,
    UPSTREAM,
    Phases,
    Scheme,
    System,
    Tcp,
    drawn_phases,
    failure_times,
)

TIME_LIMIT = 0.15
"""Relative difference from ns-3 up to which times agree."""
STORED_RUNS = Path(__file__).parent / "ns3"
"""Folder of the tables that ns-3 made (benchmarks/ns3)."""
STORED_SEED = 1
"""Seed of the failure times and phases of ns-3's stored runs."""
DELAYED = "delayed"
ALL_DELAYED = "all delayed"
AT_ONCE = "at once"
ACKNOWLEDGEMENTS = {DELAYED: (2, True), ALL_DELAYED: (2, False), AT_ONCE: (1, True)}
"""TCP's acknowledgements in ns-3's stored runs: `DelAckCount`, and whether the first is at once.

"delayed" is the default of ns-3.37: an acknowledgement waits for a second segment, at most 200 ms,
but a connection's first segment is acknowledged at once. Older versions delayed that one, too.
"""


@dataclass(frozen=True)
class Switch:
    """One change to TCP in ns-3's stored runs.

    `nagle` names the connections with Nagle's algorithm: "off",
    "recovery" (upstream backup's connection to the secondary, opened at recovery) or "stream" (all
    that carry tuples or results, before the failure, too).
    """

    scheme: Scheme = UPSTREAM
    tcp: Tcp = Tcp()
    nagle: str = "off"


SWITCHES = {
    "as it is": Switch(),
    "no handshake": Switch(tcp=Tcp(handshake=False)),
    "Nagle on": Switch(nagle="recovery"),
    "Nagle everywhere": Switch(nagle="stream"),
    "neither": Switch(tcp=Tcp(handshake=False, initial_window=None)),
    "proposed": Switch(PROPOSED),
}
"""Changes to TCP, one at a time."""
GAP_PARTS = {
    "nagle": "Nagle's algorithm",
    "handshake": "open the connection",
    "initial_window": "TCP's first window",
    "tuples": "more tuples",
}
"""Parts of the gap between the schemes' recovery times, with their names for readers."""


def read_runs(name: str) -> pd.DataFrame:
    """Read a stored table of ns-3's runs: rate, scheme or switch, failure_ms, measures, phases."""
    return pd.read_csv(STORED_RUNS / f"{name}.csv", comment="#")


def compare_with_ns3() -> pd.DataFrame:
    """Compare ns-3's stored runs of both schemes, of default parameters, with simulations of them.

    Columns rate; scheme; resent and recovery_ms: means of the simulation over the stored failure
    times; for each …_ns3: mean of ns-3, …_ns3_half: half-width of its t interval, …_error: relative
    difference.
    """
    stored = read_runs("recoveries")
    stored = stored[stored["scheme"].isin([scheme.name for scheme in SIMULATED_SCHEMES])]
    rows = []
    for run in stored.to_dict("records"):
        phases = Phases(*(run[f"{one.name}_phase"] for one in fields(Phases)))
        system = System(rate=run["rate"], phases=phases)
        rows.append(measure_recovery(system, SCHEMES[run["scheme"]], run["failure_ms"]))
    ours = pd.DataFrame(rows, index=stored.index)[["resent", "recovery_ms"]]
    both = stored[["rate", "scheme"]].join(stored[ours.columns].add_suffix("_ns3")).join(ours)
    grouped = both.groupby(["scheme", "rate"], sort=False)
    table = grouped.mean().reset_index()
    for name in ours:
        bounds = [t_interval(part.to_numpy(dtype=float)) for _, part in grouped[f"{name}_ns3"]]
        table[f"{name}_ns3_half"] = [float(high - centre) for centre, _, high in bounds]
        table[f"{name}_error"] = table[name] / table[f"{name}_ns3"] - 1
    return table


def same_system(table: pd.DataFrame, p: NotebookParameters) -> pd.DataFrame:
    """Rows of `compare_with_ns3` if the run has the default system, as ns-3 had; else none."""
    return table[[p.at(rate) == System(rate=rate) for rate in table["rate"]]]


def agreement(p: NotebookParameters, means: pd.DataFrame, ns3: pd.DataFrame) -> pd.DataFrame:
    """Largest relative difference over rates and schemes from the closed form and from ns-3.

    In percent, one row per measure: the control of every simulated verdict.
    """
    systems = [p.at(rate) for rate in means["rate"]]
    schemes = [SCHEMES[name] for name in means["scheme"]]
    queue = list(map(expected_queue, systems, schemes))
    resent = list(map(expected_resent, systems, schemes))
    errors = {
        "queue at the failure, closed form": means["queue_at_crash"] / queue - 1,
        "replayed tuples, closed form": means["resent"] / resent - 1,
        "replayed tuples, ns-3": ns3["resent_error"],
        "recovery time, ns-3": ns3["recovery_ms_error"],
        "bytes on all links, ns-3 (closed form's)": counted_traffic()["error"],
    }
    largest = {name: 100 * error.abs().max() for name, error in errors.items()}
    table = pd.Series(largest, name="largest difference (%)")
    return table.rename_axis("of the simulation from").to_frame()


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
    rows: pd.DataFrame = schemes[schemes["rate"] == nearest].set_index("scheme")[[*names]]
    return rows.rename(columns=names).reset_index(names=f"ns-3 at {nearest:,} tuples/s")


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
        system = System(rate=row["rate"], tcp=switch.tcp, phases=phases[row["trial"]])
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
    parts = gaps[["gap", *GAP_PARTS]].rename(columns=GAP_PARTS).add_suffix(" (ms)")
    return parts.reset_index(names="tuples/s")


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
    table = table[[*names]].rename(columns=names).rename_axis(None, axis=1)
    return table.reset_index(names="tuples/s")


def counted_traffic() -> pd.DataFrame:
    """Traffic for availability by the closed form and as ns-3 counted it, bytes per second.

    Columns scheme; rate; derived: by the closed form; counted: mean over ns-3's stored runs; error:
    the relative difference.
    """
    parts = [f"{name}_bps" for name in ("copies", "acks", "checkpoints", "heartbeats")]
    means = read_runs("traffic").groupby(["scheme", "rate"], sort=False)[parts].mean()
    table = means.sum(axis=1).rename("counted").reset_index()
    points = zip(table["scheme"], table["rate"].tolist(), strict=True)
    table["derived"] = [traffic(System(rate=r), SCHEMES[s]).availability for s, r in points]
    return table.assign(error=table["derived"] / table["counted"] - 1)
