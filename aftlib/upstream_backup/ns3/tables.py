"""Reference tables that ns-3 made, kept beside its scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from aftlib.core.paths import atomic_file
from aftlib.upstream_backup.failures import failure_times
from aftlib.upstream_backup.ns3.scenario import Scenario
from aftlib.upstream_backup.parameters import Parameters, Tcp
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES, UPSTREAM, Scheme

RATES = (200, 500, 1000, 2000, 5000, 10_000, 15_000, 20_000)
SWITCH_RATES = (200, 1000, 5000, 20_000)
TRIALS, SEED = 10, 1
COMMAND = "make ns3"
PLACE = Path(__file__).parent
SWITCHES: dict[str, tuple[Scheme, dict[str, object], dict[str, int]]] = {
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
"""What is changed about TCP, one at a time: scheme, fields of `Tcp`, options of the scenario."""


def recoveries() -> pd.DataFrame:
    """The stored runs: rate, scheme, failure_ms, and what `Scenario.run` returns."""
    return _read("recoveries")


def switches() -> pd.DataFrame:
    """The stored table of TCP's parts: rate, switch, and what `recoveries` has."""
    return _read("switches")


def make_recoveries(
    scenario: Scenario,
    rates: tuple[int, ...] = RATES,
    trials: int = TRIALS,
    told: Callable[[str], None] = lambda text: None,
) -> pd.DataFrame:
    """Run every scheme at every rate, with the same failure times."""
    parts = []
    for rate in rates:
        for scheme in SCHEMES.values():
            found = scenario.run(Parameters(rate=rate), scheme, failure_times(trials, SEED))
            parts.append(found.assign(rate=rate, scheme=scheme.name))
            told(f"{rate} tuples/s, {scheme.name}")
    return _ordered(parts, "scheme")


def make_switches(
    scenario: Scenario,
    rates: tuple[int, ...] = SWITCH_RATES,
    trials: int = TRIALS,
    told: Callable[[str], None] = lambda text: None,
) -> pd.DataFrame:
    """Run upstream backup with one part of TCP changed at a time, and the proposal."""
    parts = []
    for rate in rates:
        for name, (scheme, tcp, options) in SWITCHES.items():
            parameters = Parameters(rate=rate, tcp=replace(Tcp(), **tcp))  # type: ignore[arg-type]
            times = failure_times(trials, SEED)
            found = scenario.run(parameters, scheme, times, **options)  # type: ignore[arg-type]
            parts.append(found.assign(rate=rate, switch=name))
            told(f"{rate} tuples/s, {name}")
    return _ordered(parts, "switch")


def write(name: str, table: pd.DataFrame) -> Path:
    """Store a table with the command that made it in its first line."""
    target = PLACE / f"{name}.csv"
    with atomic_file(target) as path:
        path.write_text(f"# {COMMAND}\n" + table.to_csv(index=False))
    return target


def _ordered(parts: list[pd.DataFrame], by: str) -> pd.DataFrame:
    table = pd.concat(parts, ignore_index=True)
    return table[["rate", by, *(c for c in table.columns if c not in ("rate", by))]]


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(PLACE / f"{name}.csv", comment="#")
