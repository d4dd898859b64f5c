"""Where the gap in recovery time at low rates comes from: TCP's parts, switched one by one."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from aftlib.upstream_backup.experiments.recoveries import recovery_row
from aftlib.upstream_backup.ns3 import tables
from aftlib.upstream_backup.parameters import Parameters, Tcp

BASE, PROPOSAL = "as it is", "proposed"


def tcp_parts() -> pd.DataFrame:
    """Recovery times of upstream backup with one part of TCP changed at a time (D4-4).

    Returns
    -------
    DataFrame
        switch, rate, ns3_ms: mean of ns-3's stored runs, ms: of the simulation with the same
        failures (NaN for Nagle's algorithm and delayed ACKs, which it does not have),
        changes_ms: ns-3's difference from upstream backup as it is.
    """
    stored = tables.switches()
    columns = (stored[name].tolist() for name in ("switch", "rate", "failure_ms"))
    ours = [_simulated(*row) for row in zip(*columns, strict=True)]
    table = stored.assign(ms=ours, ns3_ms=stored["recovery_ms"])
    means = table.groupby(["switch", "rate"], sort=False)[["ns3_ms", "ms"]].mean().reset_index()
    base = means[means["switch"] == BASE].set_index("rate")["ns3_ms"]
    return means.assign(changes_ms=means["ns3_ms"] - means["rate"].map(base))


def tcp_table(parts: pd.DataFrame) -> pd.DataFrame:
    """Recovery times as a table, ns-3 and simulation: switches down, rates across."""
    wide = parts.pivot_table(index="switch", columns="rate", values=["ns3_ms", "ms"], sort=False)
    return wide.rename(columns={"ns3_ms": "ns-3", "ms": "simulation"}, level=0)


def explained(parts: pd.DataFrame) -> pd.DataFrame:
    """Of the gap between upstream backup and the proposal, what each part makes, by rate.

    Returns
    -------
    DataFrame
        Indexed by rate, all ms: gap = handshake + initial_window + tuples, each what goes away when
        the handshake, then the window's limit are switched off, and what is left; nagle_adds,
        window_1_adds: to upstream backup, when they are switched on; gap_with_nagle: when it is on
        in both schemes.
    """
    ms = parts.pivot_table(index="rate", columns="switch", values="ns3_ms")
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


def _simulated(switch: str, rate: float, failure_ms: float) -> float:
    scheme, tcp, options = tables.SWITCHES[switch]
    if options:
        return float("nan")
    parameters = Parameters(rate=rate, tcp=replace(Tcp(), **tcp))  # type: ignore[arg-type]
    return recovery_row(parameters, scheme.name, failure_ms)["recovery_ms"]
